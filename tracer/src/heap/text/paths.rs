//! Paths of references as text, a line for each object.

use crate::document::{Block, cut, line};
use crate::print::clean;
use crate::units::{bytes, count};
use gctrace_heap::report::{HeapObject, HeapPath};

/// Widest column of references.
const WIDEST_NAME: usize = 28;

/// A line for each object, with the reference to it.
pub(super) fn path(path: &HeapPath) -> Vec<Block> {
    let names: Vec<String> = path
        .steps
        .iter()
        .enumerate()
        .map(|(position, step)| match (&step.name, position, &path.root) {
            (_, 0, Some(root)) => clean::line(root).into_owned(),
            (Some(name), ..) => clean::line(name).into_owned(),
            (None, ..) => "->".to_owned(),
        })
        .collect();
    // The first line has the name of the root, or of a cycle none.
    let width =
        names.iter().skip(usize::from(path.root.is_some())).map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0).min(WIDEST_NAME);
    let mut blocks = Vec::new();
    for (position, (name, step)) in names.iter().zip(&path.steps).enumerate() {
        if path.omitted_before == Some(position as u64) {
            blocks.push(line(format!("… {} more …", count(path.omitted))));
        }
        let object = object(&step.object, position + 1 == path.steps.len());
        blocks.push(line(match (position, &path.root) {
            (0, Some(_)) if object.starts_with(name.as_str()) => object,
            (0, Some(_)) => format!("{name}: {object}"),
            (0, None) => object,
            _ => format!("{:width$}  {object}", cut(name, WIDEST_NAME)),
        }));
    }
    if let (None, Some(first), Some(step)) = (&path.root, names.first(), path.steps.first()) {
        blocks.push(line(format!("{first:width$}  {} again", step.object.address)));
    }
    blocks
}

/// `list at 0x7f3a5c012340, 48,000 references`.
fn object(object: &HeapObject, is_last: bool) -> String {
    let mut text = title(object);
    let is_named = object.kind.function.is_some() || object.kind.type_name == "module";
    if is_last || !is_named {
        text += &format!(" at {}", object.address);
    }
    if is_last {
        if let Some(size) = object.bytes {
            text += &format!(", {}", bytes(size));
        }
        if let Some(references) = object.references {
            text += &format!(", referred to {}", times(references.into()));
        }
    } else if object.refers_to > 1 && !is_named {
        text += &format!(", refers to {}", count(object.refers_to));
    }
    text
}

fn times(number: u64) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{} times", count(more)),
    }
}

/// `function collect (train.py:12)`, `module train`, `list`.
pub(super) fn title(object: &HeapObject) -> String {
    let type_name = match (object.kind.type_name.as_str(), &object.kind.function) {
        ("type", Some(_)) => "class",
        (type_name, _) => type_name,
    };
    let mut title = type_name.to_owned();
    if let Some(name) = object.kind.function.as_ref().or(object.label.as_ref()) {
        title += &format!(" {name}");
    }
    let file = object.kind.file.as_deref().map(crate::text::file_name);
    match (file, object.kind.line) {
        (Some(file), Some(line)) => title += &format!(" ({file}:{line})"),
        (Some(file), None) => title += &format!(" ({file})"),
        (None, _) => {}
    }
    clean::line(&title).into_owned()
}
