//! A picture for graphviz: `dot -Tpng`.

use super::picture::{Picture, Role};
use super::svg::color;
use std::io;
use std::io::Write;

/// Writes a digraph.
pub(super) fn write(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "digraph heap {{")?;
    writeln!(out, "  label={}; labelloc=t; fontname=monospace;", quoted(&picture.title))?;
    writeln!(
        out,
        "  node [shape=box, style=\"filled,rounded\", fontname=monospace, fontsize=11];"
    )?;
    writeln!(out, "  edge [fontname=monospace, fontsize=10];")?;
    for (position, own) in picture.boxes.iter().enumerate() {
        let colors = color(own.role, own.depth);
        let more = match own.role {
            Role::Omitted => ", style=\"dashed,rounded\"",
            Role::Target | Role::Object | Role::Root => "",
        };
        writeln!(
            out,
            "  b{position} [label={}, fillcolor=\"{}\", fontcolor=\"{}\"{more}];",
            quoted(&own.lines.join("\n")),
            colors.fill,
            colors.text,
        )?;
    }
    for arrow in &picture.arrows {
        let name = quoted(&arrow.name);
        writeln!(out, "  b{} -> b{} [label={name}];", arrow.from, arrow.to)?;
    }
    writeln!(out, "}}")
}

/// A string of the DOT language. Labels may have entities of HTML too, so that a bare `&amp;` would be
/// drawn as `&`.
fn quoted(text: &str) -> String {
    let escaped = text.replace('&', "&amp;");
    let escaped = escaped.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n"))
}
