//! A picture as SVG, without scripts and fonts of its own: boxes, arrows and their names.

use super::layout::{Arrow, Layout, Point, Size, layout};
use super::picture::{Picture, PictureBox, Role};
use std::io;
use std::io::Write;

/// Size of the text, width of a character and distance of lines, in pixels.
const FONT: f64 = 12.0;
const CHARACTER: f64 = 7.3;
const LINE: f64 = 15.0;
/// Between text and box, and around the picture.
const PADDING: f64 = 10.0;
const MARGIN: f64 = 16.0;
/// Space above the picture for its title.
const TITLE: f64 = 30.0;
/// How far an arrow from a box to itself leads.
const LOOP: f64 = 26.0;

/// Colors of a box.
pub(super) struct Colors {
    pub fill: &'static str,
    pub stroke: &'static str,
    pub text: &'static str,
}

/// The colors of a box, by what it is and its distance from what the picture is about.
pub(super) fn color(role: Role, depth: usize) -> Colors {
    /// Darker with the distance, as objgraph's; all readable below dark text.
    const BLUES: [&str; 6] = ["#ffffff", "#eef4fb", "#dde9f6", "#cbdef1", "#b9d3ec", "#a8c8e6"];
    let (fill, stroke, text) = match role {
        Role::Target => ("#c62828", "#8e1b1b", "#ffffff"),
        Role::Root => ("#2e7d32", "#1b5e20", "#ffffff"),
        Role::Omitted => ("#ffffff", "#9e9e9e", "#616161"),
        Role::Object => {
            let last = BLUES.len() - 1;
            let blue = BLUES.get(depth.min(last)).copied();
            (blue.unwrap_or("#ffffff"), "#4a6785", "#1a2733")
        }
    };
    Colors { fill, stroke, text }
}

/// Draws a picture.
pub(super) fn write(picture: &Picture, out: &mut impl Write) -> io::Result<()> {
    let loops: Vec<Size> = (0..picture.boxes.len()).map(|at| loops(picture, at)).collect();
    let own: Vec<Size> = picture.boxes.iter().map(box_size).collect();
    // On both sides, so that the box stays in the middle.
    let sizes: Vec<Size> = own
        .iter()
        .zip(&loops)
        .map(|(own, loops)| Size {
            width: own.width + 2.0 * loops.width,
            height: own.height.max(loops.height),
        })
        .collect();
    let arrows: Vec<Arrow> = picture
        .arrows
        .iter()
        .map(|arrow| Arrow { from: arrow.from, to: arrow.to, name: name_size(&arrow.name) })
        .collect();
    let laid = layout(&sizes, &arrows);
    let title = text_width(&picture.title);
    let width = laid.size.width.max(title) + 2.0 * MARGIN;
    let height = laid.size.height + 2.0 * MARGIN + TITLE;
    let left = MARGIN + (width - 2.0 * MARGIN - laid.size.width) / 2.0;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, \
         monospace\" font-size=\"{FONT}\">"
    )?;
    writeln!(out, "<title>{}</title>", escaped(&picture.title))?;
    writeln!(
        out,
        "<defs><marker id=\"head\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0,1 L10,5 L0,9 z\" fill=\"#455a64\"/>\
         </marker></defs>"
    )?;
    writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>")?;
    writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#37474f\">{}</text>",
        width / 2.0,
        MARGIN + FONT,
        escaped(&picture.title)
    )?;
    writeln!(out, "<g transform=\"translate({left:.1},{:.1})\">", MARGIN + TITLE)?;
    write_arrows(picture, &laid, &own, out)?;
    for ((own, size), center) in picture.boxes.iter().zip(&own).zip(&laid.boxes) {
        write_box(own, *size, *center, out)?;
    }
    writeln!(out, "</g>\n</svg>")
}

fn write_arrows(
    picture: &Picture,
    laid: &Layout,
    own: &[Size],
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "<g fill=\"none\" stroke=\"#455a64\" stroke-width=\"1.2\">")?;
    let ends = ends(picture, laid, own);
    let line = |out: &mut dyn Write, path: &str| {
        writeln!(out, "<path d=\"{path}\" marker-end=\"url(#head)\"/>")
    };
    let mut names = Vec::new();
    for (at, arrow) in picture.arrows.iter().enumerate() {
        let way = laid.ways.get(at).map(Vec::as_slice).unwrap_or_default();
        if let ([_, inner @ .., _], Some((start, end))) = (way, ends.get(at)) {
            let points: Vec<Point> =
                std::iter::once(*start).chain(inner.iter().copied()).chain([*end]).collect();
            line(out, &curve(&points))?;
            names.push((laid.names.get(at).copied().unwrap_or_default(), arrow.name.as_str()));
        } else if let (Some(center), Some(size)) = (laid.boxes.get(arrow.from), own.get(arrow.from))
        {
            let nth = picture.arrows.iter().take(at);
            let nth = nth.filter(|other| other.from == arrow.from && other.to == arrow.to).count();
            let right = center.x + size.width / 2.0;
            let (up, down) = (center.y - size.height / 4.0, center.y + size.height / 4.0);
            let far = right + LOOP * 1.3;
            if nth == 0 {
                line(
                    out,
                    &format!(
                        "M{right:.1},{up:.1} C{far:.1},{up:.1} {far:.1},{down:.1} {right:.1},{down:.1}"
                    ),
                )?;
            }
            let x = right + LOOP + text_width(&arrow.name) / 2.0 + 2.0;
            let y = center.y + nth as f64 * LINE;
            names.push((Point { x, y }, arrow.name.as_str()));
        }
    }
    writeln!(out, "</g>\n<g font-size=\"11\" fill=\"#263238\" text-anchor=\"middle\">")?;
    for (center, name) in names.into_iter().filter(|(_, name)| !name.is_empty()) {
        let size = name_size(name);
        writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#ffffff\" \
             fill-opacity=\"0.9\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            center.x - size.width / 2.0,
            center.y - size.height / 2.0,
            size.width,
            size.height,
            center.x,
            center.y + 4.0,
            escaped(name)
        )?;
    }
    writeln!(out, "</g>")
}

/// Where each arrow leaves its box and reaches the other: those of one side beside each other, in
/// the order of where they lead.
fn ends(picture: &Picture, laid: &Layout, own: &[Size]) -> Vec<(Point, Point)> {
    // Box and whether its upper side, where the way leads, arrow, whether its start.
    let mut sides: Vec<(usize, bool, f64, usize, bool)> = Vec::new();
    for (at, (arrow, way)) in picture.arrows.iter().zip(&laid.ways).enumerate() {
        if let [start, second, .., before, end] = way.as_slice() {
            sides.push((arrow.from, second.y < start.y, second.x, at, true));
            sides.push((arrow.to, before.y < end.y, before.x, at, false));
        } else if let [start, middle, end] = way.as_slice() {
            sides.push((arrow.from, middle.y < start.y, middle.x, at, true));
            sides.push((arrow.to, middle.y < end.y, middle.x, at, false));
        }
    }
    sides.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| a.2.total_cmp(&b.2)));
    let mut ends = vec![(Point::default(), Point::default()); picture.arrows.len()];
    for side in sides.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        for (nth, (at, is_upper, _, arrow, is_start)) in side.iter().enumerate() {
            let (Some(center), Some(size)) = (laid.boxes.get(*at), own.get(*at)) else {
                continue;
            };
            let share = (nth as f64 + 1.0) / (side.len() as f64 + 1.0) - 0.5;
            let half = if *is_upper { -size.height } else { size.height } / 2.0;
            let point = Point { x: center.x + share * size.width * 0.8, y: center.y + half };
            if let Some(ends) = ends.get_mut(*arrow) {
                if *is_start { ends.0 = point } else { ends.1 = point }
            }
        }
    }
    ends
}

/// A smooth line through points, vertical at each.
fn curve(points: &[Point]) -> String {
    let mut path = String::new();
    let mut before: Option<Point> = None;
    for point in points {
        path += &match before {
            None => format!("M{:.1},{:.1}", point.x, point.y),
            Some(before) => {
                let half = (point.y - before.y) / 2.0;
                format!(
                    " C{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}",
                    before.x,
                    before.y + half,
                    point.x,
                    point.y - half,
                    point.x,
                    point.y
                )
            }
        };
        before = Some(*point);
    }
    path
}

fn write_box(own: &PictureBox, size: Size, center: Point, out: &mut impl Write) -> io::Result<()> {
    let colors = color(own.role, own.depth);
    let dashes = match own.role {
        Role::Omitted => " stroke-dasharray=\"4 3\"",
        Role::Target | Role::Object | Role::Root => "",
    };
    writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"5\" fill=\"{}\" \
         stroke=\"{}\"{dashes}/>",
        center.x - size.width / 2.0,
        center.y - size.height / 2.0,
        size.width,
        size.height,
        colors.fill,
        colors.stroke
    )?;
    let top = center.y - LINE * (own.lines.len() as f64 - 1.0) / 2.0;
    for (number, line) in own.lines.iter().enumerate() {
        let weight = match (number, own.lines.len()) {
            (0, 2..) => " font-weight=\"bold\"",
            _ => "",
        };
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{}\"{weight}>{}</text>",
            center.x,
            top + LINE * number as f64 + 4.0,
            colors.text,
            escaped(line)
        )?;
    }
    Ok(())
}

fn box_size(own: &PictureBox) -> Size {
    let widest = own.lines.iter().map(|line| text_width(line)).fold(0.0, f64::max);
    Size { width: widest + 2.0 * PADDING, height: own.lines.len() as f64 * LINE + PADDING }
}

fn name_size(name: &str) -> Size {
    match name {
        "" => Size { width: 8.0, height: 8.0 },
        name => Size { width: text_width(name) + 6.0, height: LINE },
    }
}

/// Space beside a box for the names of its arrows to itself.
fn loops(picture: &Picture, at: usize) -> Size {
    let arrows = picture.arrows.iter().filter(|arrow| arrow.from == at && arrow.to == at);
    let names: Vec<f64> = arrows.map(|arrow| text_width(&arrow.name)).collect();
    if names.is_empty() {
        Size::default()
    } else {
        Size {
            width: LOOP + names.iter().copied().fold(0.0, f64::max) + 6.0,
            height: names.len() as f64 * LINE,
        }
    }
}

fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Text in XML.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
