//! A picture for graphviz: `dot -Tpng`.

use super::picture::{Picture, Role};
use std::io;
use std::io::Write;

/// Writes a digraph.
pub(crate) fn write(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "digraph heap {{")?;
    writeln!(out, "  label={}; labelloc=t; fontname=monospace;", quoted(&picture.title))?;
    writeln!(
        out,
        "  node [shape=box, style=\"filled,rounded\", fontname=monospace, fontsize=11];"
    )?;
    writeln!(out, "  edge [fontname=monospace, fontsize=10];")?;
    for (position, picture_box) in picture.boxes.iter().enumerate() {
        let (fill, text) = colors(picture_box.role, picture_box.depth);
        let more = match picture_box.role {
            Role::Omitted => ", style=\"dashed,rounded\"",
            Role::Target | Role::Object | Role::Root => "",
        };
        writeln!(
            out,
            "  b{position} [label={}, fillcolor=\"{}\", fontcolor=\"{}\"{more}];",
            quoted(&picture_box.lines.join("\n")),
            fill,
            text,
        )?;
    }
    for arrow in &picture.arrows {
        let name = quoted(&arrow.name);
        writeln!(out, "  b{} -> b{} [label={name}];", arrow.from, arrow.to)?;
    }
    writeln!(out, "}}")
}

/// Colors of a box and of its text, by its role and its distance from the picture's subject.
fn colors(role: Role, depth: usize) -> (&'static str, &'static str) {
    /// Darker with the distance, as objgraph's; all readable below dark text.
    const BLUES: [&str; 6] = ["#ffffff", "#eef4fb", "#dde9f6", "#cbdef1", "#b9d3ec", "#a8c8e6"];
    match role {
        Role::Target => ("#c62828", "#ffffff"),
        Role::Root => ("#2e7d32", "#ffffff"),
        Role::Omitted => ("#ffffff", "#616161"),
        Role::Object => {
            let blue = BLUES.get(depth.min(BLUES.len() - 1)).copied();
            (blue.unwrap_or("#ffffff"), "#1a2733")
        }
    }
}

/// A string of the DOT language. Labels may have entities of HTML too, so that a bare `&amp;` would be
/// drawn as `&`.
fn quoted(text: &str) -> String {
    let escaped = text.replace('&', "&amp;");
    let escaped = escaped.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n"))
}
