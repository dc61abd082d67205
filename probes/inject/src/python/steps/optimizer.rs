//! Steps of torch's optimizers: the global hook that torch (2.1 and later) has for it.
//!
//! A hook that torch's compiler does not know would end the graph that it compiles, with a warning,
//! or fail a program that demands one graph (`fullgraph`). So the hook is a Python function that
//! the compiler can look into: it calls ours, unless it is compiled. A step that is compiled
//! (`torch.compile(optimizer.step)`) marks nothing.

use crate::python::api::{MethodDef, NULL, Object, PythonApi, api};
use crate::python::interpreter::method;
use crate::python::object::OwnedRef;
use crate::python::{apply, empty_cache, layers};
use crate::recording::{expected, guarded};
use gctrace_ring::StepMarker;
use std::ffi::CStr;
use std::sync::Mutex;

static STEPPED: MethodDef = method(c"gctrace_stepped", stepped);

/// Makes the hook, from torch's function and ours.
const HOOK: &CStr = c"lambda is_compiling, stepped: lambda optimizer, args, kwargs: \
    None if is_compiling() else stepped(optimizer)";

/// Adds the hook.
pub(super) fn watch(api: &'static PythonApi, modules: &[OwnedRef]) -> Option<()> {
    let [optimizer, compiler] = modules else {
        return None;
    };
    let register = optimizer.attribute(c"register_optimizer_step_post_hook")?;
    let is_compiling = compiler.attribute(c"is_compiling")?;
    // SAFETY: the lock is held; the method is static.
    let stepped =
        unsafe { OwnedRef::new(api, (api.PyCFunction_NewEx)(&raw const STEPPED, NULL, NULL)) }?;
    let text = |text| OwnedRef::interned(api, text);
    let builtins = OwnedRef::import(api, c"builtins")?;
    let compile = builtins.attribute(c"compile")?;
    let code = compile.call_all(&[&text(HOOK)?, &text(c"<gctrace>")?, &text(c"eval")?])?;
    let globals = OwnedRef::dictionary(api)?;
    let make = builtins.attribute(c"eval")?.call_all(&[&code, &globals])?;
    let hook = make.call_all(&[&is_compiling, &stepped])?;
    register.call(Some(&hook)).map(drop)
}

/// `stepped(optimizer)`, called at the end of each `step` of any optimizer.
unsafe extern "C" fn stepped(_: Object, arguments: *const Object, count: isize) -> Object {
    // The function was created by it.
    let Some(api) = expected(api()) else {
        return NULL;
    };
    let is_marked = guarded(|| {
        if count < 1 || !super::are_wanted() {
            return false;
        }
        // SAFETY: called by the interpreter, with its lock and this many arguments.
        let optimizer = unsafe { OwnedRef::share(api, *arguments) };
        let marks = MARKING.try_lock();
        let is_marked = marks.is_ok_and(|mut marking| marking.marks(optimizer.object().addr()));
        if is_marked && let Some(class) = optimizer.class_name() {
            super::write(StepMarker::Optimizer, class.text().unwrap_or_default());
        }
        empty_cache::look();
        is_marked
    });
    if is_marked == Some(true) {
        apply::step(api, StepMarker::Optimizer);
    }
    if layers::is_active() && count > 0 {
        // SAFETY: as above.
        let optimizer = unsafe { OwnedRef::share(api, *arguments) };
        if is_marked != Some(true) {
            layers::also_stepped(&optimizer);
        } else if !layers::step(api, StepMarker::Optimizer, Some(&optimizer)) {
            return NULL;
        }
    }
    api.none()
}

static MARKING: Mutex<MarkingOptimizer> = Mutex::new(MarkingOptimizer::NONE);

/// The interpreter is gone, and its optimizers.
pub(super) fn forget() {
    if let Ok(mut marking) = MARKING.try_lock() {
        *marking = MarkingOptimizer::NONE;
    }
}

/// Chooses the optimizer that marks the steps among several (generator's and discriminator's): the first, as long as it
/// steps.
struct MarkingOptimizer {
    /// Address of the object; 0: none has stepped.
    marking: usize,
    /// Another optimizer that has stepped since, and how often.
    other: usize,
    others: u32,
}

impl MarkingOptimizer {
    const NONE: Self = Self { marking: 0, other: 0, others: 0 };

    /// Another optimizer replaces the first after this number of steps without a step of the first: more than a
    /// discriminator has per step of its generator.
    const REPLACED_AFTER: u32 = 8;

    /// Whether a step of this object is a mark.
    fn marks(&mut self, optimizer: usize) -> bool {
        if self.marking == 0 {
            self.marking = optimizer;
        }
        if self.marking != optimizer {
            if self.others == 0 {
                self.other = optimizer;
            }
            if self.other == optimizer {
                self.others += 1;
            }
            if self.others < Self::REPLACED_AFTER {
                return false;
            }
            self.marking = self.other;
        }
        self.others = 0;
        self.marking == optimizer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each step of these optimizers, whether it is a mark.
    fn marks(steps: &[usize]) -> Vec<bool> {
        let mut marking = MarkingOptimizer::NONE;
        steps.iter().map(|step| marking.marks(*step)).collect()
    }

    #[test]
    fn the_first_one_marks_while_it_steps() {
        let gan: Vec<usize> = [1, 2, 2, 2, 2, 2].repeat(4);
        let expected: Vec<bool> = gan.iter().map(|step| *step == 1).collect();
        assert_eq!(marks(&gan), expected);
        // One for each parameter.
        let each: Vec<usize> = (1..=300).collect();
        assert_eq!(marks(&each.repeat(3)).iter().filter(|mark| **mark).count(), 3);
        // Another phase of training.
        let phases = [vec![1; 5], vec![2; 20]].concat();
        let marked = marks(&phases);
        assert_eq!(marked.iter().filter(|mark| **mark).count(), 5 + 20 - 7);
        assert!(marked.iter().skip(12).all(|mark| *mark));
    }
}
