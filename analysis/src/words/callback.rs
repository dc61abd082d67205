//! Code for programs with a loop in a library: a callback of that library.

use crate::report::{Report, TrainingLibrary};
use crate::words::places;

/// Where a library calls the program.
pub(super) struct TrainerCallback {
    import: &'static str,
    class: &'static str,
    /// Once everything is built, as a comment names it.
    pub(super) begin: &'static str,
    at_begin: &'static str,
    at_step: &'static str,
    /// The number of the step, within `at_step`.
    number: &'static str,
}

/// The callback of the library that runs the loop; `None`: the loop is the program's own, or its library
/// has a switch ([`places::library_switch`]).
pub(super) fn of(report: &Report) -> Option<TrainerCallback> {
    match places::library(report)? {
        // lightning.pytorch.callbacks.Callback (2.x)
        TrainingLibrary::Lightning => Some(TrainerCallback {
            import: "from lightning.pytorch import Callback   # or pytorch_lightning",
            class: "Callback",
            begin: "in on_train_start of a Callback",
            at_begin: "on_train_start(self, trainer, module)",
            at_step: "on_train_batch_end(self, trainer, module, outputs, batch, index)",
            number: "index",
        }),
        // transformers.TrainerCallback (4.x, 5.x)
        TrainingLibrary::Transformers => Some(TrainerCallback {
            import: "from transformers import TrainerCallback",
            class: "TrainerCallback",
            begin: "in on_train_begin of a TrainerCallback",
            at_begin: "on_train_begin(self, args, state, control, **kwargs)",
            at_step: "on_step_end(self, args, state, control, **kwargs)",
            number: "state.global_step",
        }),
        _ => None,
    }
}

impl TrainerCallback {
    /// Collects every `steps` steps, and not otherwise.
    pub(super) fn planned(&self, steps: u64) -> String {
        let Self { import, class, at_begin, at_step, number, .. } = self;
        format!(
            "import gc\n\
             {import}\n\
             class CollectBetweenSteps({class}):\n\
             \x20   def {at_begin}:\n\
             \x20       gc.disable()\n\
             \x20   def {at_step}:\n\
             \x20       if {number} % {steps} == 0:   # the same step on every rank\n\
             \x20           gc.collect()\n\
             # Trainer(..., callbacks=[CollectBetweenSteps()])"
        )
    }
}
