//! Verdict and advice by replay, and from traces that contain little or nonsense.

use crate::training;

use gctrace_analysis::report::{AdviceId, Basis, Level, Report};
use gctrace_event::{Annotation, GcReason, GpuOp, GpuOpKind, Pause, Record};
use proptest::prelude::*;
use test_kit::reports::{MS, START, end, pause, process, report};
use training::{DEFAULT, PROGRAM, Program, Simulation, US, analyzed, run};

/// Pauses far shorter than the work queued on the GPU.
fn far_ahead() -> Program {
    Program { kernel_ns: 2 * MS, heap: 3_000, objects: 1_100, ..PROGRAM }
}

#[test]
fn hidden_pauses_are_not_the_problem() {
    let measured = run(far_ahead(), DEFAULT);
    let report = analyzed(&measured);
    let verdict = &report.verdict;
    assert_eq!(verdict.level, Level::Negligible, "{verdict:?}");
    assert_eq!(verdict.basis, Basis::Inferred);
    // By pause time alone it would have been.
    assert!(report.totals.pauses.time_ns > 10 * report.gpu_cost.unwrap().cost_ns);
    let ids: Vec<AdviceId> = report.advice.iter().map(|advice| advice.id).collect();
    assert_eq!(ids, [AdviceId::Leave]);
}

#[test]
fn exposed_pauses_cost_and_are_followed_by_advice() {
    let host_bound = Program { kernel_ns: 10 * US, ..PROGRAM };
    let measured = run(host_bound, DEFAULT);
    let report = analyzed(&measured);
    assert_eq!(report.verdict.level, Level::Heavy);
    let cost_ns = report.gpu_cost.unwrap().cost_ns;
    let ids: Vec<AdviceId> = report.advice.iter().map(|advice| advice.id).collect();
    // Half of its objects are garbage, of which nothing is known: no threshold helps.
    assert!(ids.contains(&AdviceId::FindCycles), "{ids:?}");
    assert!(!ids.contains(&AdviceId::RaiseThreshold), "{ids:?}");
    let of_pauses = report.advice.iter().filter(|advice| advice.id != AdviceId::KeepGpuBusy);
    for advice in of_pauses {
        assert!(advice.effect.saves_at_most_ns <= Some(cost_ns), "{advice:?}");
    }
}

/// A run, and the same with a collection at interpreter shutdown.
fn with_shutdown(program: Program) -> [Report; 2] {
    let mut measured = run(program, DEFAULT);
    let before = analyzed(&measured);
    let last_ns = START + measured.length_ns + MS;
    measured.records.push(Record::Pause(Pause {
        start_ns: last_ns,
        end_ns: last_ns + 90 * MS,
        generation: 2,
        reason: GcReason::Shutdown,
        ..pause(1, 0, 1)
    }));
    [before, analyzed(&measured)]
}

/// The verdict's error is that of the process's section: two standard errors.
#[test]
fn one_cost_has_one_error() {
    let uneven = Program { kernel_ns: 46 * US, sync_every: 7, ..PROGRAM };
    for report in with_shutdown(uneven) {
        let error_ns = report.gpu_cost.unwrap().error_ns.unwrap();
        let cause = &report.gpu.unwrap().cause[0];
        let own_ns = cause.standard_error_ns.unwrap() * 2;
        let unexplained_ns = cause.steps.unwrap().unexplained_ns.unwrap_or(0);
        assert!(own_ns > unexplained_ns.unsigned_abs(), "{cause:?}");
        assert!(error_ns.abs_diff(own_ns) <= 1, "{error_ns} {own_ns}");
    }
}

#[test]
fn the_end_of_the_interpreter_is_not_charged() {
    let [before, report] = with_shutdown(far_ahead());
    assert_eq!(report.verdict.level, before.verdict.level);
    assert!(report.pauses_of(GcReason::Shutdown).is_some());
    let cost_ns = |report: &Report| report.gpu_cost.unwrap().cost_ns;
    assert_eq!(cost_ns(&report), cost_ns(&before));
}

/// Without GPU times the saving is of collector time, and the level follows from the pause time.
#[test]
fn without_gpu_times_nothing_is_replayed() {
    let mut measured = run(far_ahead(), DEFAULT);
    measured.records.retain(|record| !matches!(record, Record::GpuOp(_)));
    let report = analyzed(&measured);
    assert_ne!(report.verdict.level, Level::Negligible);
    assert!(report.gpu_cost.is_none() && !report.advice.is_empty());
    let automatic_ns = report.phases.unwrap().training.causes.total().time_ns;
    assert_eq!(report.advice[0].effect.saves_at_most_ns, Some(automatic_ns));
}

/// Traces of the PyTorch profiler contain neither generation nor reason nor objects.
#[test]
fn unknown_generations_have_an_upper_bound_at_most() {
    let mut measured = run(PROGRAM, DEFAULT);
    for record in &mut measured.records {
        if let Record::Pause(pause) = record {
            pause.generation = Pause::UNKNOWN_GENERATION;
            pause.reason = GcReason::Unknown;
            (pause.collected, pause.oldest_objects) = (None, None);
        }
    }
    let report = analyzed(&measured);
    let cost_ns = report.gpu_cost.unwrap().cost_ns;
    for advice in report.advice.iter().filter(|advice| advice.id != AdviceId::KeepGpuBusy) {
        assert!(advice.effect.saves_at_most_ns <= Some(cost_ns), "{advice:?}");
    }
}

/// Timestamps that no tool would write: close together, far apart, at the end of time.
fn timestamp() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0u64..5_000).prop_map(|us| START + us * US),
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ]
}

proptest! {
    /// Any trace has a report.
    #[test]
    fn any_trace_has_a_report(
        work in prop::collection::vec((timestamp(), timestamp(), 0u64..3), 0..30),
        pauses in prop::collection::vec((timestamp(), timestamp(), 0u8..4, 0usize..4, any::<Option<u64>>()), 0..20),
        steps in prop::collection::vec((timestamp(), timestamp()), 0..8),
    ) {
        let program = Program { steps: 3, ..PROGRAM };
        let mut records = run(program, DEFAULT).records;
        let mut simulation = Simulation::new(DEFAULT, 0);
        for (one, other, correlation) in work {
            simulation.correlation = correlation;
            simulation.now_ns = one.max(other);
            simulation.call("cudaLaunchKernel", one.min(other));
            records.push(Record::GpuOp(GpuOp {
                pid: Some(1),
                device: 0,
                stream: 7,
                kind: GpuOpKind::Kernel,
                name: "any".to_owned(),
                start_ns: one.min(other),
                end_ns: one.max(other),
                correlation: Some(correlation),
                ..GpuOp::default()
            }));
        }
        records.append(&mut simulation.records);
        let reasons = [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];
        for (one, other, generation, reason, objects) in pauses {
            records.push(Record::Pause(Pause {
                start_ns: one.min(other),
                end_ns: one.max(other),
                generation: if generation == 3 { Pause::UNKNOWN_GENERATION } else { generation },
                reason: reasons[reason],
                oldest_objects: objects,
                collected: objects,
                ..pause(1, 0, 1)
            }));
        }
        for (step, (one, other)) in steps.into_iter().enumerate() {
            records.push(Record::Annotation(Annotation {
                pid: 1,
                tid: 1,
                name: format!("ProfilerStep#{step}"),
                start_ns: one.min(other),
                end_ns: one.max(other),
            }));
        }
        let mut all = vec![process(1, 0, "generational")];
        all.append(&mut records);
        let report = report(all, Some(end(1_000)));
        for advice in &report.advice {
            let settings = advice.effect.settings.as_deref();
            prop_assert!(settings.is_none_or(|settings| !settings.is_empty()), "{:?}", advice);
        }
        // In no figure, and so in no sentence.
        let figures = format!("{report:?}");
        prop_assert!(!figures.contains("NaN"));
    }
}

/// What collections gave back, of those that were measured.
#[test]
fn what_collections_gave_back_is_summed() {
    let mut measured = run(PROGRAM, DEFAULT);
    let report = analyzed(&measured);
    assert_eq!(report.processes[0].memory.freed_bytes, None);

    let (mut measured_too, mut freed) = (false, (0, 0, 0));
    for record in &mut measured.records {
        if let Record::Pause(pause) = record {
            // Every other collection is measured, at 10 KiB per object.
            measured_too = !measured_too;
            let objects = pause.collected.unwrap_or(0);
            pause.freed_bytes = measured_too.then_some(objects * 10_240);
            if measured_too {
                freed = (freed.0 + 1, freed.1 + objects, freed.2.max(objects));
            }
        }
    }
    let report = analyzed(&measured);
    let memory = report.processes[0].memory;
    assert_eq!((memory.collections, memory.freed_objects), (freed.0, Some(freed.1)));
    assert_eq!(memory.freed_bytes, Some(freed.1 * 10_240));
    assert_eq!(memory.most_freed_bytes, Some(freed.2 * 10_240));
}
