//! The words of advice on the whole run: at its start, before a fork, and where no setting is known to
//! help.

use super::{AdviceText, FREEZE_RISK};
use crate::report::{AdviceEffect, ByCause, Report};
use crate::units::{counted, duration, percent};

pub(super) fn freeze_before_fork(report: &Report) -> AdviceText {
    let training = report.phases.as_ref().map(|phases| &phases.training);
    let why = training.map_or(String::new(), |training| {
        format!(
            "In the forked process {} took {} of {}. Each full one traverses the heap that the process \
             inherited, and writes into its memory, so that pages shared with the parent are copied.",
            counted(training.pauses.count, "collection"),
            duration(training.paused_ns),
            duration(training.duration_ns),
        )
    });
    AdviceText {
        action: "Call gc.freeze() in the parent, before it forks workers.",
        why,
        code: "import gc\n\
               # in the parent, after everything is loaded, before Pool(), fork() or workers:\n\
               gc.collect()\n\
               gc.freeze()"
            .to_owned(),
        risk: FREEZE_RISK.to_owned(),
    }
}

pub(super) fn off_while_loading(report: &Report, effect: &AdviceEffect) -> AdviceText {
    let start_up = report.phases.as_ref().map(|phases| &phases.start_up);
    let why = start_up.map_or(String::new(), |start_up| {
        format!(
            "Until training begins, {} took {} of {}. Loading allocates objects that stay, so that \
             these collections free little, and full ones traverse again and again what was loaded \
             before. Frozen, it is not traversed later either, which is not priced here.",
            counted(start_up.pauses.count, "collection"),
            duration(start_up.paused_ns),
            duration(start_up.duration_ns),
        )
    });
    AdviceText {
        action: "Disable the collector until everything is loaded, then freeze and enable it.",
        why,
        code: "import gc\n\
               gc.disable()   # first, before other imports\n\
               # imports, data, model, optimizer; in a server before it forks workers\n\
               gc.freeze()\n\
               gc.enable()"
            .to_owned(),
        risk: match effect.memory_objects {
            Some(objects @ 1..) => format!(
                "{} of garbage in cycles that loading leaves {} kept, too: with gc.collect() before \
                 gc.freeze() not, for one full collection.",
                counted(objects, "object"),
                if objects == 1 { "is" } else { "are" },
            ),
            _ => FREEZE_RISK.to_owned(),
        },
    }
}

pub(super) fn disable(report: &Report, effect: &AdviceEffect, times: &ByCause) -> AdviceText {
    let freed = effect.memory_objects.unwrap_or(0);
    AdviceText {
        action: "Disable the collector: in this run it freed next to nothing.",
        why: format!(
            "Automatic collections took {} ({} of the pause time) and freed {}: reference counts \
             free the rest.",
            duration(times.automatic().time_ns),
            percent(report.share(times.automatic())),
            counted(freed, "object"),
        ),
        code: "import gc\n\
               gc.disable()   # first, before other imports"
            .to_owned(),
        risk: format!(
            "Garbage in cycles is never freed: {} here, more in a longer run or with other input. \
             What such objects own (tensors, buffers, files) stays with them.",
            counted(freed, "object"),
        ),
    }
}

pub(super) fn find_cycles(report: &Report) -> AdviceText {
    AdviceText {
        action: "Find the cycles: gctrace --mode inject --garbage cycles -- COMMAND",
        why: format!(
            "{} freed {}. Garbage that reference counts free by themselves needs no collection: \
             where a few lines make the cycles, changing them saves more than any setting. What \
             garbage costs outside the pauses (memory, page faults) is not priced.",
            counted(report.totals.pauses.count, "collection"),
            counted(report.totals.pauses.collected, "object"),
        ),
        code: "gctrace --mode inject --garbage cycles -- COMMAND".to_owned(),
        ..AdviceText::default()
    }
}

pub(super) fn measure(report: &Report) -> AdviceText {
    AdviceText {
        action: "Measure the settings: gctrace tune -- COMMAND",
        why: format!(
            "{} took {}, and what a setting saves of that depends on what one recording does not \
             show. gctrace tune tries the settings in one run, without a change to the program.",
            counted(report.totals.pauses.count, "collection"),
            duration(report.totals.pauses.time_ns),
        ),
        code: "gctrace tune -- COMMAND".to_owned(),
        ..AdviceText::default()
    }
}
