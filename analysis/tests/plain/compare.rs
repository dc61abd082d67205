//! Comparisons of synthetic runs whose true difference is known.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use fastrand::Rng;
use gctrace_analysis::compare::{
    Comparison, ComparisonNote, FactId, FigureId, Outcome, RateUnit, compare,
};
use gctrace_analysis::report::Report;
use gctrace_event::{GcSettings, NamedMarker, Pause, Record, StepMark};
use proptest::prelude::*;
use test_kit::reports;
use test_kit::reports::{MS, START, process};

const PID: u32 = 1;
const STEPS: u64 = 400;

/// A training run: steps of `step_ns` without collections, with noise that neighbors share, a young
/// collection of `young_ns` in each and a full one of ten times that in every 40th.
#[derive(Clone, Copy)]
struct Run {
    step_ns: f64,
    young_ns: f64,
    noise_ns: f64,
    steps: bool,
    threshold: i32,
    /// How many times as long steps and pauses take as their CPU time, at most; 0: it is unknown. Of
    /// steps it is the run that decides, of pauses each.
    crowded: f64,
    seed: u64,
}

const RUN: Run = Run {
    step_ns: 10e6,
    young_ns: 0.4e6,
    noise_ns: 0.3e6,
    steps: true,
    threshold: 700,
    crowded: 0.0,
    seed: 1,
};

impl Run {
    fn report(self) -> Report {
        let mut rng = Rng::with_seed(self.seed);
        let mut records = vec![
            process(PID, 0, "generational"),
            Record::Settings(GcSettings {
                pid: PID,
                at_ns: START,
                enabled: Some(true),
                thresholds: [self.threshold, 10, 10],
                stack: None,
            }),
        ];
        let mut at_ns = START + 100 * MS;
        let mut noise = 0.0;
        let is_crowded = self.crowded > 0.0;
        let step_ns = if is_crowded {
            self.step_ns * (1.0 + (self.crowded - 1.0) * rng.f64())
        } else {
            self.step_ns
        };
        let mut used_ns = 1e6;
        for step in 0..=STEPS {
            if self.steps {
                records.push(Record::Step(StepMark {
                    pid: PID,
                    tid: PID,
                    marker: NamedMarker::Backward,
                    start_ns: at_ns,
                    end_ns: at_ns + MS,
                    cpu_ns: is_crowded.then_some(used_ns as u64),
                }));
            }
            let full = step % 40 == 20;
            let cpu_ns = self.young_ns * if full { 10.0 } else { 1.0 };
            let pause_ns =
                if is_crowded { cpu_ns * (1.0 + (self.crowded - 1.0) * rng.f64()) } else { cpu_ns };
            records.push(Record::Pause(Pause {
                generation: if full { 2 } else { 0 },
                start_ns: at_ns + 2 * MS,
                end_ns: at_ns + 2 * MS + pause_ns as u64,
                cpu_ns: is_crowded.then_some((cpu_ns * (1.0 + 0.1 * rng.f64())) as u64),
                ..reports::pause(PID, 0, 0)
            }));
            // Uniform, with the variance of the noise.
            let fresh = (rng.f64() - 0.5) * 12.0f64.sqrt() * self.noise_ns;
            noise = 0.5 * noise + fresh * 0.75f64.sqrt();
            at_ns += (step_ns + pause_ns + noise) as u64;
            used_ns += self.step_ns * (0.99 + 0.02 * rng.f64()) + cpu_ns;
        }
        let end = reports::end((at_ns - START) / MS + 10);
        reports::report(records, Some(end))
    }
}

impl Run {
    /// Three runs that differ by noise.
    fn reports(self) -> [Report; 3] {
        [0, 100, 200].map(|more| Run { seed: self.seed + more, ..self }.report())
    }

    /// Five such runs.
    fn five_reports(self) -> [Report; 5] {
        [0, 100, 200, 300, 400].map(|more| Run { seed: self.seed + more, ..self }.report())
    }
}

fn of_several(before: Run, after: Run) -> Comparison {
    compare(&before.reports(), &after.reports())
}

/// Ends of the interval of a difference.
fn interval(comparison: &Comparison, figure: FigureId) -> (f64, f64) {
    let difference = comparison.figure(figure).unwrap().difference.unwrap();
    (difference.low.unwrap(), difference.high.unwrap())
}

#[test]
fn known_differences_are_inside_the_interval() {
    let mut held = 0;
    let mut shown = 0;
    for seed in 0..20 {
        let before = Run { seed, ..RUN };
        let after = Run { step_ns: 9.8e6, young_ns: 0.2e6, seed: seed + 1_000, ..RUN };
        // Ten times the pause in one of 40 steps: 1.225 young pauses per step.
        let true_ns = -0.2e6 - 0.2e6 * 1.225;
        let comparison = of_several(before, after);
        let (low, high) = interval(&comparison, FigureId::StepTime);
        held += u32::from(low <= true_ns && true_ns <= high);
        shown += u32::from(comparison.verdict.outcome == Outcome::Better);
    }
    assert!(held >= 19, "{held} of 20");
    assert!(shown >= 19, "{shown} of 20");
}

#[test]
fn identical_runs_seldom_differ() {
    let mut flagged = [0; 2];
    for seed in 0..20 {
        let comparison = of_several(Run { seed, ..RUN }, Run { seed: seed + 1_000, ..RUN });
        let figures = [FigureId::StepTime, FigureId::GcShare];
        for (flagged, figure) in flagged.iter_mut().zip(figures) {
            let figure = comparison.figure(figure).unwrap();
            *flagged += u32::from(figure.outcome() != Some(Outcome::NoDifference));
        }
    }
    // 20 at 5 %: more than 3 in one of 60 such tests.
    assert!(flagged.iter().all(|flagged| *flagged <= 3), "{flagged:?}");
}

#[test]
fn swapping_the_sides_flips_the_signs() {
    let (before, after) = (RUN.reports(), Run { young_ns: 0.1e6, seed: 2, ..RUN }.reports());
    let there = compare(&before, &after);
    let back = compare(&after, &before);
    assert_eq!(there.verdict.outcome, Outcome::Better);
    assert_eq!(back.verdict.outcome, Outcome::Worse);
    for (there, back) in there.figures.iter().zip(&back.figures) {
        assert_eq!((there.before, there.after), (back.after, back.before));
        let [there, back] = [there, back].map(|figure| figure.difference.unwrap().value);
        assert_eq!(there, -back);
    }
}

/// On a machine whose other programs take the CPU in the middle of pauses.
#[test]
fn cpu_time_of_pauses_shows_what_their_time_hides() {
    let run = Run { crowded: 2.5, noise_ns: 3e6, ..RUN };
    // 1.225 young pauses per step (ten times the pause in one of 40).
    let after = Run { young_ns: run.young_ns * 0.97, seed: 7, ..run };
    let comparison = compare(&run.five_reports(), &after.five_reports());
    let figure = comparison.figure(FigureId::GcCpuTime).unwrap();
    assert_eq!(figure.outcome(), Some(Outcome::Better), "{figure:?}");
    let ratio = figure.change_ratio.unwrap();
    assert!(ratio.low.unwrap() <= -0.03 && -0.03 <= ratio.high.unwrap(), "{ratio:?}");
    assert_ne!(comparison.figure(FigureId::GcShare).unwrap().outcome(), Some(Outcome::Better));
    let unknown = compare(&RUN.reports(), &run.five_reports());
    let unknown = unknown.figure(FigureId::GcCpuTime).unwrap();
    assert_eq!((unknown.before, unknown.difference), (None, None));
}

/// On a machine whose other programs make whole runs up to 30 % longer.
#[test]
fn cpu_time_of_steps_shows_what_their_time_hides() {
    let run = Run { crowded: 1.3, ..RUN };
    let after = Run { step_ns: run.step_ns * 0.97, seed: 7, ..run };
    let comparison = compare(&run.five_reports(), &after.five_reports());
    let figure = comparison.figure(FigureId::StepCpuTime).unwrap();
    assert_eq!(figure.outcome(), Some(Outcome::Better), "{figure:?}");
    let ratio = figure.change_ratio.unwrap();
    // Of 10.49 ms a step, 0.49 ms are pauses.
    let expected = -0.3 / 10.49;
    assert!(ratio.low.unwrap() <= expected && expected <= ratio.high.unwrap(), "{ratio:?}");
    let verdict = &comparison.verdict;
    assert_eq!((verdict.figure, verdict.outcome), (FigureId::StepTime, Outcome::NoDifference));
    let sentence = &verdict.sentence;
    assert!(sentence.starts_with("Less CPU time, no difference in step time shown"), "{sentence}");
    assert!(sentence.contains("CPU time per step 10."), "{sentence}");
    let unknown = compare(&RUN.reports(), &run.five_reports());
    let figure = unknown.figure(FigureId::StepCpuTime).unwrap();
    assert_eq!((figure.before, figure.difference), (None, None));
    assert!(!unknown.verdict.sentence.contains("CPU"), "{}", unknown.verdict.sentence);
    let one = compare(&[run.report()], &[after.report()]);
    let figure = one.figure(FigureId::StepCpuTime).unwrap();
    assert_eq!((figure.outcome(), figure.p), (None, None), "{figure:?}");
}

/// However large the difference: another run may differ as much.
#[test]
fn one_run_on_a_side_has_figures_and_no_verdict() {
    let (one, several) = (RUN.report(), RUN.reports());
    let other = Run { step_ns: 30e6, young_ns: 4e6, seed: 2, ..RUN };
    for (before, after) in [
        (std::slice::from_ref(&one), &[other.report()][..]),
        (&several[..], &[other.report()][..]),
        (std::slice::from_ref(&one), &other.reports()[..]),
    ] {
        let comparison = compare(before, after);
        assert_eq!(comparison.verdict.outcome, Outcome::Unknown);
        assert!(comparison.notes.contains(&ComparisonNote::OneRun));
        let step = comparison.figure(FigureId::StepTime).unwrap();
        assert!(step.difference.unwrap().value > 20e6 && step.change_ratio.unwrap().value > 1.5);
        for figure in &comparison.figures {
            assert_eq!((figure.outcome(), figure.p), (None, None), "{figure:?}");
            let ends = figure.change_ratio.map(|ratio| (ratio.low, ratio.high));
            assert!(ends.is_none_or(|ends| ends == (None, None)), "{figure:?}");
        }
    }
}

/// Noise between runs is seen only if there are several: runs that are each precise, but of
/// different speed.
#[test]
fn several_runs_show_the_noise_between_them() {
    let runs = |means: [f64; 3], seed: u64| {
        let run = |(index, step_ns): (u64, f64)| Run {
            step_ns,
            noise_ns: 1e4,
            seed: seed + index,
            ..RUN
        };
        (0..).zip(means).map(run).map(Run::report).collect::<Vec<_>>()
    };
    let before = runs([10.0e6, 10.4e6, 9.6e6], 1);
    let after = runs([10.3e6, 9.9e6, 10.5e6], 10);
    let one = compare(&before[..1], &after[..1]);
    assert_eq!(one.verdict.outcome, Outcome::Unknown);
    assert!(one.notes.contains(&ComparisonNote::OneRun));
    let several = compare(&before, &after);
    assert_eq!(several.verdict.outcome, Outcome::NoDifference);
    assert!(!several.notes.contains(&ComparisonNote::OneRun));
    assert!(several.figure(FigureId::StepTime).unwrap().p.unwrap() > 0.2);
    let faster = compare(&before, &runs([7.0e6, 7.1e6, 7.2e6], 20));
    assert_eq!(faster.verdict.outcome, Outcome::Better);
    assert!(faster.figure(FigureId::StepTime).unwrap().p.unwrap() < 0.01);
}

#[test]
fn without_steps_rates_are_per_second_and_step_time_is_not_compared() {
    let quiet = Run { steps: false, ..RUN };
    let comparison = of_several(quiet, Run { young_ns: 0.1e6, ..quiet });
    assert_eq!(comparison.per, RateUnit::Second);
    assert!(comparison.figure(FigureId::StepTime).is_none());
    assert!(comparison.notes.contains(&ComparisonNote::NoSteps));
    assert_eq!(comparison.verdict.figure, FigureId::GcShare);
    assert_eq!(comparison.verdict.outcome, Outcome::Better);
}

/// The phases of the two are not the same part of the program: what both have is the whole run.
#[test]
fn whole_runs_are_compared_where_phases_differ() {
    let before = Run { crowded: 1.5, ..RUN };
    let after = Run { steps: false, young_ns: 0.1e6, ..before };
    let one = compare(&[before.report()], &[after.report()]);
    assert_eq!((one.per, one.verdict.figure), (RateUnit::Run, FigureId::GcCpuTime));
    assert!(one.notes.contains(&ComparisonNote::DifferentPhases), "{:?}", one.notes);
    assert!(!one.notes.contains(&ComparisonNote::NoSteps));
    // 401 pauses, 10 of them ten times as long: CPU time first, and no training.
    let cpu = one.figures.first().unwrap();
    assert_eq!(cpu.figure, FigureId::GcCpuTime);
    let expected = 0.4e6 * (391.0 + 100.0);
    assert!((cpu.before.unwrap() / expected - 1.05).abs() < 0.05, "{cpu:?}");
    assert!((cpu.change_ratio.unwrap().value + 0.75).abs() < 0.05, "{cpu:?}");
    let sentence = &one.verdict.sentence;
    assert!(sentence.starts_with("One run on a side: CPU time of GC in the run "), "{sentence}");
    assert!(sentence.contains("of the run") && !sentence.contains("training"), "{sentence}");
    assert!(one.figure(FigureId::StepTime).is_none() && one.lines.is_empty());
    let several = of_several(before, after);
    assert_eq!(several.verdict.outcome, Outcome::Better, "{:?}", several.verdict);
    let same = of_several(before, Run { steps: false, ..before });
    assert_eq!(same.verdict.outcome, Outcome::NoDifference, "{:?}", same.verdict);
    // Without its CPU time the verdict is on the share.
    let unknown = of_several(RUN, Run { steps: false, ..RUN });
    assert_eq!(unknown.verdict.figure, FigureId::GcShare);
}

#[test]
fn what_changed_is_told_from_what_is_unknown() {
    let comparison = of_several(RUN, Run { threshold: 7_000, ..RUN });
    let changed: Vec<FactId> = comparison.changed.iter().map(|changed| changed.fact).collect();
    assert_eq!(changed, [FactId::Thresholds]);
    assert_eq!(comparison.changed[0].before, ["700, 10, 10"]);
    assert_eq!(comparison.changed[0].after, ["7000, 10, 10"]);
    assert!(comparison.unchanged.contains(&FactId::Enabled));
    assert!(comparison.unknown.contains(&FactId::Torch));
    assert!(comparison.unknown.contains(&FactId::Commit));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(32)))]
    #[test]
    fn a_run_does_not_differ_from_itself(
        step_ns in 1e6..50e6,
        young_ns in 0.0..5e6,
        noise_ns in 0.0..0.3e6,
        seed in any::<u64>(),
        steps in any::<bool>(),
    ) {
        let run = Run { step_ns, young_ns, noise_ns, steps, seed, ..RUN };
        let runs = [run.report(), run.report()];
        let comparison = compare(&runs, &runs);
        prop_assert_eq!(comparison.verdict.outcome, Outcome::NoDifference);
        prop_assert!(comparison.changed.is_empty());
        for figure in &comparison.figures {
            let difference = figure.difference.unwrap();
            prop_assert_eq!(difference.value, 0.0);
            prop_assert!(difference.low.is_none_or(|low| low <= 0.0));
            prop_assert!(difference.high.is_none_or(|high| high >= 0.0));
            prop_assert!(figure.p.is_none_or(|p| p > 0.99), "{:?}", figure);
        }
    }
}
