//! The words for how each kind of cycle is broken.

use super::cycles;
use super::cycles::{born, path, place};
use crate::garbage::telling as garbage;
use crate::report::{CycleShape, GarbageCycle, GarbageKind, GarbageReport, Location, MainCycles};
use crate::units::{cut, percent};

/// Risk of broken cycles.
pub(super) const RISK: &str = "Other input may take other paths: record again, and leave the \
     collector on unless nothing is freed there either.";
/// Maximum characters of a cycle in a line of code.
const COMMENT_WIDTH: usize = 68;

/// For each kind of cycle, where it is and Python that does without it.
pub(super) fn code(garbage: &GarbageReport, main: &MainCycles) -> String {
    let cycles: Vec<&GarbageCycle> = garbage.cycles.iter().flatten().collect();
    let mut parts: Vec<String> = Vec::new();
    let mut shapes = Vec::new();
    for cycle in main.cycles.iter().filter_map(|index| cycles.get(*index)) {
        let mut heading = comment(&path(&cycle.edges));
        for sentence in instances(garbage, cycle) {
            heading.push('\n');
            heading.push_str(&comment(&sentence));
        }
        match shapes.iter().position(|shape| *shape == cycle.shape) {
            Some(at) => {
                if let Some(part) = parts.get_mut(at) {
                    *part = format!("{heading}\n{part}");
                }
            }
            None => {
                shapes.push(cycle.shape);
                parts.push(format!(
                    "{heading}\n# {}:\n{}",
                    cycles::shape(cycle.shape),
                    remedy(cycle.shape)
                ));
            }
        }
    }
    parts.join("\n\n")
}

/// Where the instances on a cycle were born, as far as that was sampled.
fn instances(garbage: &GarbageReport, cycle: &GarbageCycle) -> Vec<String> {
    let is_on_it = |kind: &&GarbageKind| {
        let mut edges = cycle.edges.iter();
        edges.any(|edge| edge.kind.function.is_none() && edge.kind.type_name == kind.name.type_name)
    };
    let kinds = garbage.kinds.iter().filter(is_on_it);
    let lines = kinds.flat_map(|kind| {
        let lines = kind.births.iter().flat_map(born);
        lines.map(move |line| format!("{} born at {line}", kind.name.type_name))
    });
    lines.collect()
}

/// A cycle as a comment, of several lines if it is long.
fn comment(path: &str) -> String {
    let lines = match path.chars().count() {
        0..=COMMENT_WIDTH => vec![path.to_owned()],
        _ => path.split(" -> ").map(|object| format!("-> {object}")).collect(),
    };
    let line = |line: String| format!("# {}", cut(line.trim_start_matches("-> "), COMMENT_WIDTH));
    let mut lines = lines.into_iter();
    let first = lines.next().map(line);
    let rest = lines.map(|object| format!("#  {}", cut(&object, COMMENT_WIDTH)));
    first.into_iter().chain(rest).collect::<Vec<_>>().join("\n")
}

/// Python that does not make the cycle.
fn remedy(shape: CycleShape) -> &'static str {
    match shape {
        CycleShape::Closure => {
            "def closure(value, closure):     # pass it to itself as an argument,\n\
             \x20   ... closure(rest, closure)\n\
             result = closure(value, closure)\n\
             # or end it where its work is done:\n\
             del closure                      # the cell is empty then"
        }
        CycleShape::BoundMethod => {
            "import weakref\n\
             self.callbacks.append(weakref.WeakMethod(self.on_event))\n\
             # and call it while its object is alive:\n\
             for callback in self.callbacks:\n\
             \x20   if (call := callback()) is not None:\n\
             \x20       call()"
        }
        CycleShape::Exception => {
            "try:\n\
             \x20   ...\n\
             except Exception as error:\n\
             \x20   failure = error.with_traceback(None)   # keeps no frame, and no batch in it\n\
             # or, after the last use of a kept exception:\n\
             del failure"
        }
        CycleShape::Class => {
            "# make it once, where the module is imported, not in each call:\n\
             Point = collections.namedtuple(\"Point\", \"x y\")\n\
             # or once per argument:\n\
             @functools.lru_cache(maxsize=None)\n\
             def class_for(fields): ..."
        }
        CycleShape::Instances => {
            "# where the work is done:\n\
             self.children.clear()\n\
             # or, where objects die one by one, and the parent is seldom read (a weak reference costs more\n\
             # than the collector where it is read often):\n\
             import weakref\n\
             self.parent = weakref.ref(parent)   # the child does not keep its parent;\n\
             parent = self.parent()              # None once the parent is gone"
        }
        CycleShape::Frame => {
            "# no variable of a function should refer to its own frame or generator:\n\
             frame = sys._getframe()\n\
             try:\n\
             \x20   ...\n\
             finally:\n\
             \x20   del frame\n\
             # a generator that is not used up:\n\
             generator.close()"
        }
        CycleShape::Containers => {
            "items.clear()   # after the last use of a container that contains itself\n\
             # or keep keys or indexes instead of the container:\n\
             item[\"owner\"] = owner_key"
        }
        CycleShape::Other => {
            "# set one of these references to None after the last use, or make it a weakref.ref"
        }
    }
}

/// `break app.Node.children -> ... -> back (FILE:10): clear one of the references when the work is done`.
pub(super) fn action(garbage: &GarbageReport) -> String {
    if let Some(first) = garbage.main_cycle() {
        let from =
            first.location.as_ref().map_or(String::new(), |line| format!(" ({})", place(line)));
        return format!("break {}{from}: {}", path(&first.edges), in_short(first.shape));
    }
    let (names, shape) = kinds_on_cycles(&garbage.kinds);
    format!("break the cycles of {names}: {}", in_short(shape))
}

/// The name of the most likely kind of garbage, where only its kinds were recorded, and the kind of its cycles.
fn kinds_on_cycles(kinds: &[GarbageKind]) -> (String, CycleShape) {
    let Some((kind, shape)) = garbage::telling(kinds) else {
        return ("its garbage".to_owned(), CycleShape::Other);
    };
    let born = match kind.births.as_ref() {
        Some(births) => format!(", {}", cycles::births(births)),
        None => String::new(),
    };
    (format!("{}{born}", cycles::kind_within(&kind.name, usize::MAX)), shape)
}

/// Finalizers end in an object of a class; other code belongs to generators.
fn shape_by_code(line: &Location) -> CycleShape {
    match line.function.ends_with("__del__") {
        true => CycleShape::Instances,
        false => CycleShape::Frame,
    }
}

/// The change where only the code that collections run to free the garbage is known.
pub(super) fn action_by_code(line: &Location) -> String {
    let shape = shape_by_code(line);
    let what = if shape == CycleShape::Frame { "generator" } else { "what has the finalizer" };
    let what = cycles::kind(what, Some(&line.function), Some(&line.file), line.line);
    format!("break the cycles of {what}: {}", in_short(shape))
}

/// Python that does without these cycles.
pub(super) fn code_by_code(line: &Location) -> String {
    let shape = shape_by_code(line);
    format!("# {}:\n{}", cycles::shape(shape), remedy(shape))
}

/// The part of all garbage that comes from these cycles.
pub(super) fn why(main: &MainCycles) -> String {
    format!(
        "{main} {} of the garbage comes from them; without them reference counts free it at once.",
        percent(main.ratio)
    )
}

/// Python that does not make such cycles, where only kinds of garbage were recorded.
pub(super) fn code_of_kinds(garbage: &GarbageReport) -> String {
    let (_, shape) = kinds_on_cycles(&garbage.kinds);
    format!("# {}:\n{}", cycles::shape(shape), remedy(shape))
}

/// The change that gained the most where it was measured, in a few words (docs/evidence.md).
fn in_short(shape: CycleShape) -> &'static str {
    match shape {
        CycleShape::Closure => "pass the closure to itself, or del it after its last use",
        CycleShape::BoundMethod => "weakref.WeakMethod, or remove the callback",
        CycleShape::Exception => "del the exception after its last use",
        CycleShape::Class => "make the class once",
        CycleShape::Instances => "clear one of the references when the work is done",
        CycleShape::Frame => "del the frame, close the generator",
        CycleShape::Containers => "clear it after its last use",
        CycleShape::Other => "clear one of the references after its last use",
    }
}
