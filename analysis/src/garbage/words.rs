//! The words for garbage: kinds of objects, and cycles.

use super::report::{BirthLines, GarbageCycle, MainCycles, PerStep};
use super::shape::{CycleShape, GarbageEdge};
use crate::figure::{Basis, Location};
use crate::paths;
use crate::units::{count, percent, short_count, three_digits};
use gctrace_event::KindName;

/// Lines named in a verdict.
const LINES: usize = 2;
/// A mean this near to a whole number is shown as one.
const WHOLE: f64 = 0.05;

/// `6 cycles in every step, all from train.py:10; hardly anything else is garbage.`
pub(crate) fn verdict(cycles: &[GarbageCycle], main: &MainCycles) -> String {
    let main_cycles = main.cycles.iter().filter_map(|index| cycles.get(*index));
    let number = number(main);
    let mark = match main.basis {
        Basis::Measured => "",
        _ => " (inferred)",
    };
    // Places of most garbage first, as the cycles are.
    let mut places: Vec<String> = Vec::new();
    for location in main_cycles.clone().filter_map(|cycle| cycle.location.as_ref()) {
        let line = place(location);
        if !places.contains(&line) {
            places.push(line);
        }
    }
    let all_known = main_cycles.clone().all(|cycle| cycle.location.is_some());
    let named: Vec<String> = places.iter().take(LINES).cloned().collect();
    let first = main_cycles.clone().next();
    let from = match (named.as_slice(), places.len() - named.len()) {
        // Lines of smaller ones would pass for its origin.
        _ if matches!(first, Some(cycle) if cycle.location.is_none()) => {
            let more = match main_cycles.count() - 1 {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            format!(", {}{more}", gctrace_units::if_known(first.map(|cycle| path(&cycle.edges))))
        }
        ([], _) => String::new(),
        ([line], 0) if all_known => format!(", all from {line}"),
        (lines, 0) => format!(", from {}", lines.join(" and ")),
        (lines, more) => format!(", from {} and {more} more", lines.join(", ")),
    };
    let then = if main.is_all() {
        "; hardly anything else is garbage".to_owned()
    } else {
        format!(": {} of the garbage", percent(main.ratio))
    };
    format!("{number}{mark}{from}{then}.")
}

/// `6 cycles in every step`, `about 3.4 cycles per step`, `12.5 cycles per second`.
fn number(main: &MainCycles) -> String {
    let cycles = |mean: f64| if mean == 1.0 { "cycle" } else { "cycles" };
    match (main.per_step, main.per_s) {
        (Some(per_step), _) if per_step.constant => {
            let shown = mean(per_step);
            let noun = if shown == "1" { "cycle" } else { "cycles" };
            format!("{shown} {noun} in every step")
        }
        (Some(per_step), _) => {
            format!("{} {} per step on average", mean(per_step), cycles(per_step.mean))
        }
        (None, Some(rate)) => format!("{} {} per second", figure(rate), cycles(rate)),
        (None, None) => "Cycles".to_owned(),
    }
}

/// A mean number per step: `6`, `3.42`.
pub fn mean(per_step: PerStep) -> String {
    let nearest = per_step.mean.round();
    match per_step.mean {
        0.0 => "0".to_owned(),
        cycles if nearest >= 1.0 && (cycles - nearest).abs() <= WHOLE.min(nearest * 0.02) => {
            count(nearest as u64)
        }
        cycles => figure(cycles),
    }
}

/// Three digits, grouped: `57.7`, `468,000`, `1.28 M`.
pub fn figure(value: f64) -> String {
    const LARGE: f64 = 999.5;
    if value < LARGE {
        return three_digits(value);
    }
    let unit = 10_f64.powi(value.log10().floor() as i32 - 2);
    short_count(((value / unit).round() * unit) as u64)
}

/// `train.py:10`, of a library `json/decoder.py:353`.
pub fn place(location: &Location) -> String {
    let file = if location.library {
        paths::short(&location.file)
    } else {
        if let Some((_, name)) = location.file.rsplit_once('/') { name } else { &*location.file }
    };
    match location.line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    }
}

/// An object of a kind: `cell Trainer.step.<locals>.closure (train.py:10)`, `torch.Tensor`.
pub fn kind(
    type_name: &str,
    function: Option<&str>,
    file: Option<&str>,
    line: Option<u32>,
) -> String {
    let place = file.map(|file| {
        place(&Location {
            file: file.to_owned(),
            function: String::new(),
            line,
            library: paths::is_library(file),
        })
    });
    match (function, place) {
        (Some(function), Some(place)) => format!("{type_name} {function} ({place})"),
        (Some(function), None) => format!("{type_name} {function}"),
        (None, Some(place)) => format!("{type_name} ({place})"),
        (None, None) => type_name.to_owned(),
    }
}

/// What objects of one of CPython's own types are, in a sentence; `None` if its name says it.
pub fn explanation(type_name: &str) -> Option<String> {
    let what = match type_name {
        "cell" => "a variable that a function shares with functions in it",
        "frame" => "a call and its local variables",
        "getset_descriptor" | "member_descriptor" => "an attribute of a class",
        "traceback" => "a call that an exception passed through",
        _ => return None,
    };
    Some(format!("A {type_name} is {what}."))
}

/// The same as `kind`, the function shortened from its start until it fits: `cell …closure (train.py:10)`.
pub fn kind_within(of: &KindName, width: usize) -> String {
    let label = |function: Option<&str>| kind(&of.type_name, function, of.file.as_deref(), of.line);
    let whole = label(of.function.as_deref());
    let Some(function) = of.function.as_deref() else { return whole };
    let mut rest = function;
    let mut shown = whole;
    while shown.chars().count() > width
        && let Some((_, inner)) = rest.split_once('.')
    {
        rest = inner.trim_start_matches("<locals>.");
        shown = label(Some(&format!("…{rest}")));
    }
    shown
}

/// `born at train.py:31 in build (12 of 15 sampled) and train.py:40 in grow (3)`.
pub fn births(births: &BirthLines) -> String {
    format!("born at {}", born(births).join(" and "))
}

/// The lines with the most samples.
pub(crate) fn born(births: &BirthLines) -> Vec<String> {
    let lines = births.lines.iter().take(LINES).enumerate();
    let line = lines.map(|(index, line)| {
        let of = match index {
            0 => format!(" of {} sampled", short_count(births.samples)),
            _ => String::new(),
        };
        let samples = short_count(line.samples);
        let (place, function) = (place(&line.location), &line.location.function);
        format!("{place} in {function} ({samples}{of})")
    });
    line.collect()
}

/// A cycle: `cell.cell_contents -> function Trainer.step.<locals>.closure (train.py:10).__closure__
/// -> tuple[] -> back`. Code that several objects belong to is named with the function, if there is
/// one, otherwise with the first.
pub fn path(edges: &[GarbageEdge]) -> String {
    let names = |edge: &&GarbageEdge| edge.kind.function.is_some();
    let function = edges.iter().filter(names).find(|edge| edge.kind.type_name == "function");
    let named = function.or_else(|| edges.iter().find(names));
    let object = |edge: &GarbageEdge| {
        let of = &edge.kind;
        let repeated = named.is_some_and(|named| {
            !std::ptr::eq(named, edge)
                && (&named.kind.function, &named.kind.file) == (&of.function, &of.file)
        });
        let type_name = match of.type_name.as_str() {
            "" => "?",
            known => known,
        };
        let label = if repeated {
            type_name.to_owned()
        } else {
            kind(type_name, of.function.as_deref(), of.file.as_deref(), of.line)
        };
        format!("{label}{}", gctrace_units::if_known(edge.name.as_deref()))
    };
    let mut objects: Vec<String> = edges.iter().map(object).collect();
    objects.push("back".to_owned());
    objects.join(" -> ")
}

/// What to call a cycle of this kind.
pub fn shape(shape: CycleShape) -> &'static str {
    match shape {
        CycleShape::Class => "class made at run time",
        CycleShape::Exception => "exception kept with its traceback",
        CycleShape::BoundMethod => "bound method kept by its own object",
        CycleShape::Closure => "closure that names itself",
        CycleShape::Frame => "frame or generator that its own variable refers to",
        CycleShape::Instances => "objects that refer to each other",
        CycleShape::Containers => "container that contains itself",
        CycleShape::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(type_name: &str, function: Option<&str>, name: &str) -> GarbageEdge {
        GarbageEdge {
            kind: KindName {
                type_name: type_name.to_owned(),
                function: function.map(str::to_owned),
                file: function.map(|_| "/srv/train.py".to_owned()),
                line: function.map(|_| 10),
            },
            name: Some(name.to_owned()),
        }
    }

    #[test]
    fn lines_of_small_cycles_are_not_the_origin_of_large_ones() {
        let cycle = |line: Option<u32>, objects| GarbageCycle {
            edges: vec![edge("app.Attribute", None, ".me")],
            shape: CycleShape::Other,
            location: line.map(|line| Location {
                function: "f".to_owned(),
                file: "/srv/app.py".to_owned(),
                line: Some(line),
                library: false,
            }),
            count: objects,
            objects,
            held_objects: 0,
            bytes: None,
            ratio: 0.4,
            estimate: None,
            per_step: None,
        };
        let main = MainCycles {
            cycles: vec![0, 1],
            ratio: 0.9,
            per_step: None,
            per_s: Some(1138.0),
            basis: Basis::Measured,
            sentence: String::new(),
        };
        let first_unknown = verdict(&[cycle(None, 90), cycle(Some(3), 5)], &main);
        assert_eq!(
            first_unknown,
            "1,140 cycles per second, app.Attribute.me -> back, and 1 more: 90.0 % of the garbage."
        );
        let known = verdict(&[cycle(Some(30), 90), cycle(Some(3), 5)], &main);
        assert_eq!(
            known,
            "1,140 cycles per second, from app.py:30 and app.py:3: 90.0 % of the garbage."
        );
    }

    #[test]
    fn a_cycle_in_one_line() {
        let closure = Some("step.<locals>.closure");
        let edges = [
            edge("cell", closure, ".cell_contents"),
            edge("function", closure, ".__closure__"),
            edge("tuple", None, "[]"),
        ];
        assert_eq!(
            path(&edges),
            "cell.cell_contents -> function step.<locals>.closure (train.py:10).__closure__ -> \
             tuple[] -> back"
        );
        assert_eq!(path(&[]), "back");
    }

    #[test]
    fn means_are_whole_if_they_nearly_are() {
        let shown = |cycles| mean(PerStep { basis: Basis::Measured, mean: cycles, constant: true });
        assert_eq!(shown(5.97), "6");
        assert_eq!(shown(5.5), "5.50");
        assert_eq!(shown(1.04), "1.04");
        assert_eq!(shown(0.02), "0.0200");
        assert_eq!(shown(1200.3), "1,200");
    }
}
