//! Which of the kinds of garbage tells what cycles it is in.

use super::report::{GarbageCycle, GarbageKind, GarbageReport};
use super::shape::CycleShape;
use crate::paths::is_of_python;

impl GarbageReport {
    /// The first of its main cycles; `None` if no cycles are known.
    pub(crate) fn main_cycle(&self) -> Option<&GarbageCycle> {
        let cycles = self.cycles.as_ref()?;
        self.verdict.as_ref()?.cycles.iter().find_map(|index| cycles.get(*index))
    }

    /// Whether code of the standard library makes its cycles.
    pub(crate) fn is_of_python(&self) -> bool {
        if let Some(first) = self.main_cycle() {
            return first.location.as_ref().is_some_and(|line| is_of_python(&line.file));
        }
        let Some((kind, _)) = telling(&self.kinds) else { return false };
        kind.name.file.as_deref().is_some_and(is_of_python)
    }
}

/// The most likely kind of garbage, where only its kinds were recorded, and the kind of its cycles.
pub(crate) fn telling(kinds: &[GarbageKind]) -> Option<(&GarbageKind, CycleShape)> {
    /// Less of all garbage says nothing.
    const PART: f64 = 0.02;
    /// Types of objects, and the cycles that they are on, the most telling first.
    const SHAPES: [(&[&str], CycleShape); 5] = [
        (&["traceback"], CycleShape::Exception),
        (&["generator", "coroutine", "async_generator"], CycleShape::Frame),
        (&["type"], CycleShape::Class),
        // The method may be on the cycle, or only held by it.
        (&["method"], CycleShape::Other),
        (&["function", "cell"], CycleShape::Closure),
    ];
    let worth = || kinds.iter().filter(|kind| kind.ratio >= PART);
    let of_type = |name: &&str| worth().find(|kind| kind.name.type_name == *name);
    let of_shape = |types: &[&str]| types.iter().find_map(of_type);
    let telling = SHAPES.iter().find_map(|(types, shape)| Some((of_shape(types)?, *shape)));
    let class = worth().find(|kind| kind.is_class()).map(|kind| (kind, CycleShape::Instances));
    // If there are a few functions beside instances of a class, the functions' cycles hold the instances.
    match (telling, class) {
        (Some((kind, CycleShape::Closure)), Some((of, shape))) if of.ratio > kind.ratio => {
            Some((of, shape))
        }
        (Some(telling), _) => Some(telling),
        (None, Some(class)) => Some(class),
        (None, None) => kinds.first().map(|kind| (kind, CycleShape::Containers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::KindName;

    /// The most telling kind has a file; a class of the program is telling where no method is.
    #[test]
    fn cycles_of_the_standard_library_are_known() {
        let of = |type_name: &str, file: Option<&str>| {
            let name = KindName {
                type_name: type_name.to_owned(),
                file: file.map(str::to_owned),
                ..KindName::default()
            };
            let kind = GarbageKind {
                name,
                objects: 100,
                bytes: None,
                ratio: 0.5,
                per_step: None,
                births: None,
                estimate: None,
            };
            GarbageReport { kinds: vec![kind], ..GarbageReport::default() }.is_of_python()
        };
        assert!(of("method", Some("/usr/lib/python3.12/asyncio/selector_events.py")));
        assert!(!of("method", Some("/usr/lib/python3.12/site-packages/app/serve.py")));
        assert!(!of("method", Some("/app/serve.py")));
        assert!(!of("app.Node", None));
    }
}
