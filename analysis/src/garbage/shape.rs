//! What kind of cycle a signature is, and the line that it names. The words of its remedy are the
//! caller's.

use crate::figure::Location;
use crate::paths;
use gctrace_event::KindName;
use serde::Serialize;

/// One object of a cycle and its reference to the next one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GarbageEdge {
    /// The object's type, empty if unknown, and code.
    #[serde(flatten, serialize_with = "KindName::with_nulls")]
    pub kind: KindName,
    /// The reference to the next object as Python writes it, for example `.hooks`; `null` if
    /// unknown.
    pub name: Option<String>,
}

/// Kinds of cycles, in order of recognition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CycleShape {
    /// A class made at run time: it refers to itself by its `__mro__` and by its descriptors.
    Class,
    /// An exception that is kept by a frame of its own traceback.
    Exception,
    /// A bound method that its own object keeps, for example as a callback.
    BoundMethod,
    /// A function that refers to itself by its closure.
    Closure,
    /// A generator, a coroutine or a frame that one of its own variables refers to.
    Frame,
    /// Instances that refer to each other, for example by a pointer to the parent.
    Instances,
    /// Lists, dicts, sets and tuples only.
    Containers,
    /// Any other, or of unknown types.
    Other,
}

/// Types that hold others and have no attributes of their own.
const CONTAINERS: [&str; 7] =
    ["list", "dict", "tuple", "set", "frozenset", "collections.deque", "collections.defaultdict"];
/// Types of objects that run code.
const RUNNING: [&str; 4] = ["frame", "generator", "coroutine", "async_generator"];
/// Types with classes as instances.
const CLASSES: [&str; 2] = ["type", "abc.ABCMeta"];

/// The kind of a cycle, by the types of its objects and the names of their references.
pub(crate) fn shape(edges: &[GarbageEdge]) -> CycleShape {
    let is = |edge: &GarbageEdge, types: &[&str]| types.contains(&edge.kind.type_name.as_str());
    let any = |types: &[&str]| edges.iter().any(|edge| is(edge, types));
    let all = |types: &[&str]| edges.iter().all(|edge| is(edge, types));
    let named = |name: &str| edges.iter().any(|edge| edge.name.as_deref() == Some(name));
    let unknown = |edge: &GarbageEdge| {
        edge.kind.type_name.is_empty() || edge.kind.type_name == KindName::UNREADABLE
    };
    // Instances of a class that refer to it are no cycle: the class refers to itself.
    if named(".__mro__") || named(".__bases__") || edges.len() <= 3 && any(&CLASSES) {
        CycleShape::Class
    } else if any(&["traceback"]) || named(".__traceback__") {
        CycleShape::Exception
    } else if any(&["method"]) {
        CycleShape::BoundMethod
    } else if any(&RUNNING) {
        CycleShape::Frame
    } else if all(&["function", "cell", "tuple"]) && any(&["function"]) {
        CycleShape::Closure
    } else if edges.is_empty() || edges.iter().any(unknown) {
        CycleShape::Other
    } else if all(&CONTAINERS) {
        CycleShape::Containers
    } else if any(&["function", "cell", "builtin_function_or_method"]) {
        CycleShape::Other
    } else {
        CycleShape::Instances
    }
}

/// See [`crate::report::GarbageCycle::location`].
pub(crate) fn location(edges: &[GarbageEdge]) -> Option<Location> {
    let of = |GarbageEdge { kind, .. }: &GarbageEdge| {
        let file = kind.file.clone()?;
        Some(Location {
            library: paths::is_library(&file),
            function: gctrace_units::if_known(kind.function.clone()),
            line: kind.line,
            file,
        })
    };
    let mut lines = edges.iter().filter_map(of);
    let line = lines.clone().find(|location| !location.library);
    line.or_else(|| lines.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(objects: &[(&str, &str)]) -> CycleShape {
        let edge = |(type_name, name): &(&str, &str)| GarbageEdge {
            kind: KindName { type_name: (*type_name).to_owned(), ..KindName::default() },
            name: (!name.is_empty()).then(|| (*name).to_owned()),
        };
        shape(&objects.iter().map(edge).collect::<Vec<_>>())
    }

    #[test]
    fn shapes_of_the_usual_cycles() {
        let closure = [("cell", ".cell_contents"), ("function", ".__closure__"), ("tuple", "[]")];
        assert_eq!(cycle(&closure), CycleShape::Closure);
        assert_eq!(cycle(&closure[..2]), CycleShape::Closure);
        let callback = [("__main__.Trainer", ".hooks"), ("list", "[]"), ("method", ".__self__")];
        assert_eq!(cycle(&callback), CycleShape::BoundMethod);
        let kept =
            [("ValueError", ".__traceback__"), ("traceback", ".tb_frame"), ("frame", "error")];
        assert_eq!(cycle(&kept), CycleShape::Exception);
        assert_eq!(cycle(&[("type", ".__mro__"), ("tuple", "[]")]), CycleShape::Class);
        assert_eq!(cycle(&[("generator", ".gi_frame"), ("frame", "me")]), CycleShape::Frame);
        let tree = [("__main__.Node", ".parent"), ("__main__.Node", ".children"), ("list", "[]")];
        assert_eq!(cycle(&tree), CycleShape::Instances);
        assert_eq!(cycle(&[("list", "[]")]), CycleShape::Containers);
        assert_eq!(cycle(&[("", ""), ("list", "[]")]), CycleShape::Other);
        assert_eq!(cycle(&[]), CycleShape::Other);
    }
}
