//! The sentences of the report that are made of several of its figures, in both of its forms.
//!
//! Fixed phrases are the `Display` of their findings; sentences of the text form alone are in its
//! sections.

pub(crate) mod advice;
mod callback;
mod called;
pub mod cleanup;
pub mod cycles;
pub(crate) mod idle;
pub mod layers;
pub mod places;
pub mod samples;
pub(crate) mod verdict;
pub(crate) mod waits;
mod whole_run;

pub use whole_run::{Measuring, measuring};

/// The risk of calling `gc.collect()` no more.
const EXPLICIT_CALLS_RISK: &str = "A call before a phase that needs a lot of memory may be \
     intentional; calls before torch.cuda.empty_cache() free GPU memory only if tensors are in \
     cycles.";
/// The risk of `gc.freeze()`, whatever the interpreter.
const FREEZE_RISK: &str = "Frozen objects that become garbage in a cycle are never freed \
     (gc.unfreeze() undoes it).";

/// The risk of a higher first threshold.
const THRESHOLDS_RISK: &str = "Cyclic garbage lives up to ten times longer before it is freed";

/// The call that sets these thresholds.
#[must_use]
pub fn set_threshold([young, middle, old]: [i32; 3]) -> String {
    format!("gc.set_threshold({young}, {middle}, {old})")
}

/// The text of an advice; `code` and `risk` are empty where there are none. An action that ends with a colon
/// is to run the code, a command.
#[derive(Default)]
struct AdviceText {
    action: &'static str,
    why: String,
    code: String,
    risk: String,
}

#[cfg(test)]
mod tests;
