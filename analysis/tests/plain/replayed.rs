//! What changes save in simulated programs with GPU times, against all that their pauses cost.

use crate::training;

use gctrace_analysis::report::AdviceId;
use training::{DEFAULT, PROGRAM, Program, US, analyzed, run};

/// Programs with the host far ahead of the GPU, slightly ahead, and behind it.
fn programs() -> [Program; 4] {
    [
        PROGRAM,
        Program { kernel_ns: 50 * US, ..PROGRAM },
        Program { kernel_ns: 10 * US, ..PROGRAM },
        Program { kernel_ns: 46 * US, sync_every: 7, ..PROGRAM },
    ]
}

#[test]
fn nothing_saves_more_than_all_pauses_cost() {
    for program in programs() {
        let report = analyzed(&run(program, DEFAULT));
        let cost = report.gpu_cost.unwrap();
        for advice in &report.advice {
            match advice.effect.saves_at_most_ns {
                Some(_) if advice.id == AdviceId::KeepGpuBusy => {}
                Some(most_ns) => assert!(most_ns <= cost.cost_ns, "{advice:?}"),
                None => assert_eq!(advice.id, AdviceId::Leave, "{advice:?}"),
            }
        }
    }
}
