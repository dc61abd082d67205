//! Ranks of any traces: no figure without sense, no panic, whatever the records.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use crate::ranks_job;

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::ranks::{jobs, report};
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_event::{Collective, GpuOp, GpuOpKind, Record};
use proptest::prelude::*;
use ranks_job::{Plan, RankRun, START, run};
use test_kit::reports;

/// Moments that follow each other, now and then an absurd one.
fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![
        20 => START..START + 100_000_000,
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => (1u64 << 62)..u64::MAX,
    ]
}

fn any_collective() -> impl Strategy<Value = Record> {
    let names = prop::sample::select(vec![
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
        "nccl",
        "gemm",
    ]);
    let key = prop::option::of((0..2u64, 0..40u64));
    (names, any_time(), 0..3_000_000u64, 0..3u64, 0..2u32, key).prop_map(
        |(name, start_ns, length_ns, stream, device, key)| {
            Record::GpuOp(GpuOp {
                pid: Some(1),
                device,
                stream,
                kind: GpuOpKind::Kernel,
                name: name.to_owned(),
                start_ns,
                end_ns: start_ns.saturating_add(length_ns),
                correlation: (start_ns % 3 == 0).then_some(start_ns % 64),
                bytes: None,
                collective: key.map(|(group, sequence)| {
                    Box::new(Collective {
                        group: Some(group.to_string()),
                        sequence: Some(sequence),
                        ..Collective::default()
                    })
                }),
            })
        },
    )
}

proptest! {

    #[test]
    fn any_ranks_have_a_report(
        ranks in prop::collection::vec(prop::collection::vec(any_collective(), 1..60), 2..5),
    ) {
        let runs = (0..).zip(&ranks).map(|(rank, records)| {
            let mut run = RankRun::default();
            run.rank = rank % 3;
            run.records.clone_from(records);
            run
        });
        let timelines: Vec<Timeline> =
            runs.enumerate().map(|(trace, run)| run.timeline(trace)).collect();
        assert_sound(&timelines)?;
    }

    /// Records of a real job, some of them lost, some moved.
    #[test]
    fn damaged_ranks_have_a_report(
        seed in 1..1000u64,
        lost in prop::collection::vec(0..2000usize, 0..400),
        absurd in prop::collection::vec((0..2000usize, any_time()), 0..20),
    ) {
        let plan = Plan { seed, steps: 6, ranks: 3, ..Plan::default() }.with_random_pauses(5);
        let mut runs = run(&plan, START);
        for (at, rank) in runs.iter_mut().enumerate() {
            for (index, start_ns) in &absurd {
                if let Some(Record::GpuOp(op)) = rank.records.get_mut(*index) {
                    (op.start_ns, op.end_ns) = (*start_ns, start_ns.saturating_add(5));
                }
            }
            let mut index = 0;
            rank.records.retain(|_| {
                index += 1;
                !lost.contains(&(index * (at + 1)))
            });
        }
        let timelines: Vec<Timeline> =
            runs.iter().enumerate().map(|(trace, run)| run.timeline(trace)).collect();
        assert_sound(&timelines)?;
    }
}

/// Invariants of every report on ranks.
fn assert_sound(timelines: &[Timeline]) -> Result<(), TestCaseError> {
    let timelines: Vec<&Timeline> = timelines.iter().collect();
    let found = jobs(&timelines);
    let members: usize = found.jobs.iter().map(|job| job.members.len()).sum();
    prop_assert_eq!(members + found.alone.len(), timelines.len());
    let report = report(&timelines).expect("two ranks or more");
    for (job, ranked) in found.jobs.iter().zip(&report.jobs) {
        prop_assert!(job.members.is_sorted_by(|a, b| a.rank < b.rank));
        for collective in &job.collectives {
            prop_assert!(collective.members.len() >= 2);
            prop_assert!(collective.members.is_sorted_by(|a, b| a.timeline < b.timeline));
        }
        prop_assert!(job.unmatched_outside <= job.unmatched);
        for rank in &ranked.ranks {
            prop_assert!(rank.last_after_pause <= rank.last && rank.last <= rank.collectives);
            for device in &rank.devices {
                prop_assert!(device.useful_busy_ns <= device.busy_ns);
            }
        }
        for source in ranked.pauses.iter().flat_map(|pauses| &pauses.sources) {
            prop_assert!(source.earlier_ns.iter().all(|earlier_ns| *earlier_ns >= 0));
            let all = ranked.pauses.as_ref().map_or(0, |pauses| pauses.all.total_ns);
            prop_assert!(source.total_ns <= all);
        }
    }
    Ok(())
}

/// The whole report, through the analysis.
#[test]
fn a_job_without_any_pause_has_no_victims() {
    let mut analysis = Analysis::default();
    for run in run(&Plan::default(), START) {
        let Record::Process(mut process) = reports::process(1000 + run.rank, 0, "generational")
        else {
            panic!("a process");
        };
        process.rank = Some(run.rank);
        let mut records = vec![Record::Process(process)];
        records.extend(run.records);
        reports::add(&mut analysis, "t.json", records, Some(reports::end(200_000)));
    }
    analysis.settle();
    let ranks = analysis.report().gpu.and_then(|gpu| gpu.ranks);
    let ranks = ranks.expect("a report on ranks");
    assert!(ranks.jobs[0].pauses.is_none());
    assert_eq!(ranks.jobs[0].collectives.on_all_ranks, 60);
}
