//! The controller with simulated programs.

use super::controller::Controller;
use super::gauge::{Action, Gauge as _};
use super::price::{ChargedOld, block_cost};
use super::simulated::{GROWING, NUMBERS, STATIC, SimulatedProgram, StepKind};
use gctrace_settings::{AutoDecision, AutoGoal, AutoOptions, AutoReport, AutoState};

const OWN: [u32; 3] = [700, 10, 10];

fn run(program: &mut SimulatedProgram, steps: u64, seed: u64) -> AutoReport {
    let mut controller = Controller::new(AutoOptions::default(), OWN, seed);
    program.run(&mut controller, steps);
    controller.report(0)
}

fn names(report: &AutoReport) -> Vec<&'static str> {
    let name = |decision: &AutoDecision| match decision {
        AutoDecision::NothingToGain { .. } => "nothing",
        AutoDecision::Explore { .. } => "explore",
        AutoDecision::Compare { .. } => "compare",
        AutoDecision::OwnIsBest => "own",
        AutoDecision::Hold { .. } => "hold",
        AutoDecision::Proven { .. } => "proven",
        AutoDecision::NotProven { .. } => "not proven",
        AutoDecision::Loss => "loss",
        AutoDecision::Changed { .. } => "changed",
        AutoDecision::OwnChanged { .. } => "own changed",
        AutoDecision::Memory { .. } => "memory",
        AutoDecision::DeviceMemory { .. } => "device memory",
        AutoDecision::Pause { .. } => "pause",
        AutoDecision::RankMemory => "rank memory",
        AutoDecision::MemoryUnknown => "memory unknown",
        AutoDecision::Unfrozen => "unfrozen",
        AutoDecision::TakenBack => "taken back",
    };
    report.events.iter().map(|event| name(&event.decision)).collect()
}

/// Much cyclic garbage and no heap: larger thresholds cost as much.
const CYCLES: StepKind =
    StepKind { work_ns: 150e3, window: 0, life: 1, growth: 0, garbage: 600, garbage_bytes: 100 };

/// A long run with what it decided, and the same run without.
fn both(
    kind: StepKind,
    heap: u64,
    steps: u64,
    seed: u64,
) -> (SimulatedProgram, SimulatedProgram, AutoReport) {
    let (mut alone, mut program) =
        (SimulatedProgram::new(kind, heap, seed), SimulatedProgram::new(kind, heap, seed));
    alone.run_alone(steps);
    let report = run(&mut program, steps, seed);
    (alone, program, report)
}

/// Full collections by the rule.
fn by_rule(program: &SimulatedProgram) -> Vec<u64> {
    program.fulls.iter().filter(|full| !full.1).map(|full| full.0).collect()
}

fn hold_step(report: &AutoReport) -> u64 {
    let is_hold = |decision: &AutoDecision| matches!(decision, AutoDecision::Hold { .. });
    report.events.iter().find(|event| is_hold(&event.decision)).expect("a setting is held").step
}

#[test]
fn what_has_nothing_to_gain_is_left_alone() {
    for seed in 1..=5 {
        let (alone, program, report) = both(NUMBERS, 10_000, 5_000, seed);
        assert_eq!((names(&report), report.state), (vec!["nothing"], AutoState::Watching));
        assert_eq!((program.actions.len(), report.cost_ns), (0, 0));
        assert_eq!(program.cpu_ns, alone.cpu_ns);
    }
}

/// The work of both runs is the same to the nanosecond: what is left is the collector's.
#[test]
fn what_is_saved_is_the_difference_of_whole_runs() {
    let mut found = Vec::new();
    for (kind, heap, steps) in [(STATIC, 600_000, 30_000), (GROWING, 50_000, 12_000)] {
        for seed in 1..=5 {
            let (alone, program, report) = both(kind, heap, steps, seed);
            let saved = report.saved.expect("proven");
            let (cost, difference) = (report.cost_ns as f64, alone.cpu_ns - program.cpu_ns);
            // Full collections are charged by their rate, and come whole: the difference has half of one more
            // or less.
            let slack = alone.full_ns() / 2.0;
            let [low, high] = [saved.low_ns, saved.high_ns].map(|ns| ns as f64);
            found.push((low - slack..=high + slack).contains(&difference));
            assert!(cost <= 0.012 * program.cpu_ns || report.memory_alarms > 0, "{cost}");
            assert!(difference > 0.0, "{difference}");
        }
    }
    assert!(found.iter().filter(|held| !**held).count() <= 1, "{found:?}");
}

/// Without noise nothing is left but the books: blocks of the exploration and of pairs, in which the old
/// generation waits, save what their full collections would have cost too.
#[test]
fn every_block_is_in_the_books() {
    let short_lived = StepKind { life: 5, growth: 20, ..STATIC };
    for (kind, heap, steps) in [
        (STATIC, 600_000, 30_000),
        (STATIC, 600_000, 15_000),
        (StepKind { life: 900, ..STATIC }, 600_000, 30_000),
        (short_lived, 600_000, 30_000),
        (GROWING, 50_000, 12_000),
    ] {
        for seed in 1..=3 {
            let (mut alone, mut program) =
                (SimulatedProgram::new(kind, heap, seed), SimulatedProgram::new(kind, heap, seed));
            (alone.noise, program.noise) = (0.0, 0.0);
            alone.run_alone(steps);
            let saved = run(&mut program, steps, seed).saved.expect("proven");
            let difference = alone.cpu_ns - program.cpu_ns;
            let error = (saved.mean_ns as f64 - difference).abs();
            assert!(error <= 0.1 * difference + alone.full_ns() / 2.0, "{difference} {saved:?}");
            let [low, high] = [saved.low_ns, saved.high_ns].map(|ns| ns as f64);
            assert!((low..=high).contains(&difference), "{difference} {saved:?}");
        }
    }
}

/// The simulated collector has CPython's counts (gen1 of 3.8 to 3.13 was seen each 12 collections with 700, 10, 10, and
/// a full one each 133).
#[test]
fn full_collections_come_as_often_as_the_rule_says() {
    for (kind, heap, thresholds, steps) in [
        (STATIC, 20_000, OWN, 300),
        (STATIC, 20_000, [200, 3, 5], 40),
        (STATIC, 600_000, OWN, 300),
        (STATIC, 1_500_000, OWN, 300),
    ] {
        let mut program = SimulatedProgram::new(kind, heap, 1);
        program.thresholds = thresholds;
        program.fulls.clear();
        let (mut rates, mut begin) = (Vec::new(), program.figures());
        for _ in 0..200 {
            program.run_alone(steps);
            let end = program.figures();
            let old = ChargedOld::of(&end, 0.0);
            let cost = block_cost(&begin, &end, &end, steps as f64, thresholds, &old);
            // As in compared blocks.
            if cost.fulls == 0 {
                rates.push(cost.fulls_by_rule);
            }
            begin = end;
        }
        let expected = 200.0 * steps as f64 * rates.iter().sum::<f64>() / rates.len() as f64;
        let seen = program.fulls.len() as f64;
        assert!(seen >= 5.0 && (expected - seen).abs() <= 1.0 + 0.05 * seen, "{expected} {seen}");
    }
}

/// Work of steps differs by a fifth and more: the collector's share does not.
#[test]
fn without_steps_the_collectors_share_is_compared() {
    for (kind, heap, steps) in [(STATIC, 600_000, 30_000), (GROWING, 50_000, 20_000)] {
        let (mut alone, mut program) =
            (SimulatedProgram::new(kind, heap, 1), SimulatedProgram::new(kind, heap, 1));
        alone.run_alone(steps);
        let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
        program.run_by_time(&mut controller, steps);
        let report = controller.report(0);
        let saved = report.saved.expect("proven");
        let [low, high] = [saved.low_ns, saved.high_ns].map(|ns| ns as f64);
        let difference = alone.cpu_ns - program.cpu_ns;
        let slack = alone.full_ns() / 2.0;
        assert!((low - slack..=high + slack).contains(&difference), "{difference} {saved:?}");
        assert!(report.by_time && !controller.is_frozen());
    }
    let mut program = SimulatedProgram::new(CYCLES, 20_000, 1);
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    program.run_by_time(&mut controller, 20_000);
    assert!(controller.report(0).saved.is_none_or(|saved| saved.low_ns < 0));
}

#[test]
fn no_gain_is_claimed_where_there_is_none() {
    for seed in 1..=10 {
        let (_, program, report) = both(CYCLES, 20_000, 20_000, seed);
        assert!(report.collector_share > Some(0.1), "{report:?}");
        assert!(report.saved.is_none_or(|saved| saved.low_ns < 0), "{report:?}");
        assert!(!names(&report).contains(&"proven"), "{:?}", names(&report));
        let cost = report.cost_ns as f64;
        assert!(cost <= 0.011 * program.cpu_ns, "{cost}");
    }
}

/// Trap 1: `gc.collect(1)` counts towards the next full collection, as the young collections of blocks do
/// whose old generation waits.
#[test]
fn closing_blocks_brings_no_full_collection() {
    let (alone, program, report) = both(CYCLES, 20_000, 6_000, 3);
    let own = report.events.iter().find(|event| event.decision == AutoDecision::OwnIsBest);
    let own = own.expect("tried in vain").step;
    let set = program.actions.iter().rfind(|(step, _)| *step <= own);
    let Some((_, Action::SetThresholds([700, 10, third]))) = set else {
        panic!("{set:?}");
    };
    let closed = |action: &&(u64, Action)| action.0 <= own && action.1 == Action::Collect(1);
    let closed = program.actions.iter().filter(closed).count();
    assert!(*third as usize >= 10 + closed && closed > 20, "{third} {closed}");
    assert!(by_rule(&program).len() <= by_rule(&alone).len());
}

/// Trap 2: the program's thresholds are below the count that a larger one has let grow.
#[test]
fn no_change_of_thresholds_sets_off_a_collection() {
    let (_, program, report) = both(STATIC, 600_000, 20_000, 1);
    assert_eq!(report.state, AutoState::Holding);
    assert_eq!(program.by_change, 0);
    let changes = |(_, action): &&(u64, Action)| matches!(action, Action::SetThresholds(_));
    assert!(program.actions.iter().filter(changes).count() > 40);
}

/// Trap 3: closing a block lets objects grow old early.
#[test]
fn only_pairs_are_closed_while_a_setting_is_held() {
    let (_, program, report) = both(STATIC, 600_000, 30_000, 1);
    let hold = hold_step(&report);
    let closed = |(step, action): &&(u64, Action)| *step > hold && *action == Action::Collect(1);
    let closed = program.actions.iter().filter(closed).count() as u64;
    let [part] = &report.parts[..] else { panic!("{:?}", report.parts) };
    assert!(closed <= 3 * (part.pairs + 1), "{closed} {}", part.pairs);
    // A block is at least 25 steps, a gap at least 9 blocks: most steps are in neither.
    assert!(part.held_steps > 10 * part.pairs * 25, "{part:?}");
    // A gap has 27 blocks of 200 steps at most, and the full collections of a held setting are no reason for longer
    // ones.
    assert!(part.pairs > 12 + part.held_steps / (29 * 200), "{part:?}");
}

/// Trap 4: `gc.unfreeze()` leaves the old generation small by its count, and full collections follow.
#[test]
fn thawing_is_followed_by_a_collection() {
    let options = AutoOptions { goal: AutoGoal::Longest, ..AutoOptions::default() };
    let mut controller = Controller::new(options, OWN, 1);
    let mut program = SimulatedProgram::new(StepKind { garbage: 400, ..STATIC }, 600_000, 1);
    program.cpu_ns = 30e9;
    program.run(&mut controller, 10_000);
    let report = controller.report(0);
    assert!(controller.is_frozen(), "{report:?}");
    assert!(report.setting.clone().expect("held").to_string().ends_with("freeze@step:2"));
    // A full collection of the heap takes 72 ms.
    assert!(report.longest_held_ns < Some(20_000_000), "{report:?}");
    program.kind.garbage = 2_000;
    program.run(&mut controller, 20_000);
    let thawed = program.actions.iter().position(|(_, action)| *action == Action::Unfreeze);
    let thawed = thawed.expect("another program");
    assert_eq!(program.actions[thawed + 1].1, Action::Collect(2));
    assert!(names(&controller.report(0)).contains(&"changed"));
}

/// Trap 5: load makes collections and steps longer; the program is the same.
#[test]
fn changes_are_seen_by_counts() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program = SimulatedProgram::new(STATIC, 600_000, 1);
    program.run(&mut controller, 12_000);
    program.kind.work_ns *= 3.0;
    program.run(&mut controller, 12_000);
    assert_eq!(names(&controller.report(0)), ["explore", "hold", "proven"]);
    program.kind.garbage *= 4;
    program.run(&mut controller, 12_000);
    let names = names(&controller.report(0));
    assert_eq!(&names[..4], ["explore", "hold", "proven", "changed"], "{names:?}");
}

/// Trap 6: the best of several by chance must be proven by other blocks.
#[test]
fn the_exploration_proves_nothing() {
    let (_, program, report) = both(GROWING, 50_000, 8_000, 2);
    let hold = hold_step(&report);
    let is_proof = |decision: &AutoDecision| matches!(decision, AutoDecision::Proven { .. });
    let proof = report.events.iter().find(|event| is_proof(&event.decision)).expect("proven");
    let AutoDecision::Proven { pairs, .. } = proof.decision else { unreachable!() };
    let closed = |(step, action): &&(u64, Action)| {
        *step > hold && *step <= proof.step && *action == Action::Collect(1)
    };
    let closed = program.actions.iter().filter(closed).count() as u64;
    assert!(pairs >= 12 && closed >= 2 * pairs, "{pairs} {closed}");
    assert!(proof.step >= hold + 2 * pairs * 5);
}

/// Trap 7: what the program asks for is what it is compared with.
#[test]
fn the_programs_own_setting_may_change() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program = SimulatedProgram::new(STATIC, 600_000, 1);
    program.run(&mut controller, 12_000);
    assert_eq!(controller.report(0).state, AutoState::Holding);
    program.thresholds = [900, 10, 10];
    let mut action = controller.program_set([900, 10, 10], &mut program);
    while let Some(next) = action {
        program.carry_out(next);
        action = controller.next(&mut program);
    }
    let before = program.actions.len();
    program.run(&mut controller, 12_000);
    let report = controller.report(0);
    assert_eq!(names(&report)[3..6], ["own changed", "explore", "hold"], "{:?}", names(&report));
    let is_old = |(_, action): &(u64, Action)| matches!(action, Action::SetThresholds([700, ..]));
    assert!(!program.actions[before..].iter().any(is_old));
    // The same again changes nothing but the block.
    program.thresholds = [900, 10, 10];
    controller.program_set([900, 10, 10], &mut program);
    assert_eq!(controller.report(0).events.len(), report.events.len());
}

/// Trap 8: loading had the longest collections.
#[test]
fn figures_begin_with_the_first_step() {
    let mut program = SimulatedProgram::new(StepKind { growth: 0, ..CYCLES }, 2_000_000, 1);
    let loading = program.fulls.len();
    let report = run(&mut program, 1_000, 1);
    assert_eq!(program.fulls.len(), loading);
    assert!(report.longest_own_ns < Some(1_000_000), "{:?}", report.longest_own_ns);
    assert!(report.cpu_ns < 2_000_000_000);
}

#[test]
fn garbage_that_takes_memory_is_given_back_within_a_step() {
    let kind = StepKind { garbage_bytes: 20_000, ..STATIC };
    let (_, program, report) = both(kind, 600_000, 20_000, 1);
    assert_eq!(
        report.events.last().map(|event| &event.decision),
        report
            .events
            .iter()
            .rev()
            .map(|event| &event.decision)
            .find(|one| matches!(one, AutoDecision::Memory { .. }))
    );
    let Some(AutoDecision::Memory { rss_bytes, limit_bytes }) =
        report.events.last().map(|event| event.decision.clone())
    else {
        panic!("{:?}", names(&report));
    };
    // A step of 0.8 ms makes 2 MB, and 5 ms pass between two looks.
    assert!(rss_bytes > limit_bytes && rss_bytes - limit_bytes < 16 << 20);
    assert_eq!((report.state, program.thresholds), (AutoState::Stopped, OWN));
    let step = report.events.last().map(|event| event.step);
    assert_eq!(program.actions.last().map(|(step, _)| *step), step);
}

/// Tensors in cycles: what waits fills the GPU, of which the host's memory shows nothing.
#[test]
fn garbage_that_takes_the_gpus_memory_is_given_back_before_it_is_full() {
    for seed in 1..=5 {
        let gpu_bytes = 16 << 30;
        let mut program = SimulatedProgram::new(STATIC, 600_000, seed);
        program.device_bytes = Some(gpu_bytes);
        let report = run(&mut program, 20_000, seed);
        assert_eq!(names(&report).last(), Some(&"device memory"), "{:?}", report.events);
        assert_eq!((report.state, program.thresholds), (AutoState::Stopped, OWN));
        assert!(program.most_device_bytes < gpu_bytes / 2, "{}", program.most_device_bytes);
        // Enough for it, if it were a thousandth of that.
        let mut without = SimulatedProgram::new(STATIC, 600_000, seed);
        assert!(names(&run(&mut without, 20_000, seed)).contains(&"proven"));
    }
}

/// What the rule would have had collected by now does not wait for the end of a proof.
#[test]
fn old_garbage_waits_no_longer_than_without() {
    for seed in 1..=5 {
        let (alone, program, report) = both(GROWING, 50_000, 12_000, seed);
        assert!(report.parts.iter().any(|part| part.pairs > 10), "{:?}", report.parts);
        let longest = |fulls: &[(u64, bool)], until: u64| {
            let steps = fulls.iter().map(|full| full.0).filter(|step| (250..until).contains(step));
            let steps: Vec<u64> = steps.collect();
            steps.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(until)
        };
        let proven =
            report.events.iter().find(|one| matches!(one.decision, AutoDecision::Proven { .. }));
        let until = proven.expect("proven").step;
        let (with, without) = (longest(&program.fulls, until), longest(&alone.fulls, until));
        assert!(with <= 2 * without + 2 * 200, "{with} {without}");
    }
}

/// At a step's end a full collection may take several times as long as within a step: the frame that holds the heap
/// has returned, and objects are found from others.
#[test]
fn what_was_put_off_is_collected_by_the_rule() {
    for seed in 1..=5 {
        let (_, program, report) = both(STATIC, 300_000, 12_000, seed);
        let hold = hold_step(&report);
        let explored = |step: u64| (450..hold).contains(&step);
        assert!(program.fulls.iter().any(|full| explored(full.0)), "{:?}", program.fulls);
        let asked =
            program.actions.iter().find(|one| explored(one.0) && one.1 == Action::Collect(2));
        assert_eq!(asked, None);
    }
}

/// The collection that is awaited never comes.
#[test]
fn a_program_that_stops_allocating_is_watched_again() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program = SimulatedProgram::new(STATIC, 300_000, 1);
    while !controller.awaits_full {
        assert!(program.steps < 10_000);
        program.run(&mut controller, 1);
    }
    program.kind = NUMBERS;
    program.run(&mut controller, 3_000);
    let report = controller.report(0);
    assert_eq!((names(&report).last(), report.state), (Some(&"nothing"), AutoState::Watching));
    assert_eq!(program.thresholds, OWN);
}

/// A heap that grows is no garbage: it would be as large without us.
#[test]
fn a_growing_heap_keeps_its_setting() {
    let (alone, program, report) = both(GROWING, 50_000, 12_000, 1);
    assert_eq!(report.state, AutoState::Holding, "{:?}", names(&report));
    assert!(program.rss > 600 << 20 && report.memory_alarms < 8, "{}", report.memory_alarms);
    assert!(program.fulls.len() < alone.fulls.len());
}

#[test]
fn what_is_nearly_full_is_given_back() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program = SimulatedProgram::new(GROWING, 50_000, 1);
    program.headroom = Some(500 << 20);
    program.run(&mut controller, 12_000);
    let report = controller.report(0);
    assert_eq!((report.state, program.thresholds), (AutoState::Stopped, OWN));
    assert!(names(&report).contains(&"memory"));
}

#[test]
fn blocks_of_two_threads_are_left_out() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program = SimulatedProgram::new(STATIC, 600_000, 1);
    for step in 0..3_000 {
        program.tid = 1 + step % 2;
        program.run(&mut controller, 1);
    }
    // 200 steps begin and end in the same thread only if one of them is left out.
    assert!(controller.report(0).parts.is_empty());
}

/// Full collections that the program itself makes leave none to the rule.
#[test]
fn what_the_program_collects_is_not_saved() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program =
        SimulatedProgram::new(StepKind { window: 20, garbage: 20, ..STATIC }, 600_000, 1);
    program.asks_each = 100;
    program.run(&mut controller, 20_000);
    let report = controller.report(0);
    assert!(report.saved.is_none(), "{report:?}");
}

#[test]
fn taking_back_ends_everything() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program = SimulatedProgram::new(STATIC, 600_000, 1);
    program.run(&mut controller, 12_000);
    assert!(controller.report(0).saved.is_some());
    controller.take_back();
    let (actions, report) = (program.actions.len(), controller.report(0));
    program.run(&mut controller, 1_000);
    assert_eq!((program.actions.len(), report.state), (actions, AutoState::Stopped));
    assert!(report.saved.is_some());
}

fn has_tried_off(report: &AutoReport) -> bool {
    report.compared.iter().any(|one| one.setting.to_string() == "disable@start")
}

/// Where nothing is freed, nothing is lost without collections.
#[test]
fn collections_that_free_nothing_are_switched_off() {
    let mut held = 0;
    for seed in 1..=5 {
        let (_, program, report) = both(GROWING, 50_000, 12_000, seed);
        assert!(has_tried_off(&report), "{report:?}");
        let off = report.setting.as_ref().is_some_and(|one| one.to_string() == "disable@start");
        held += u32::from(off);
        assert!(!off || program.thresholds[0] > 1_000_000, "{:?}", program.thresholds);
    }
    assert!(held > 0);
    let (_, _, report) = both(STATIC, 600_000, 12_000, 1);
    assert!(!report.compared.is_empty() && !has_tried_off(&report), "{report:?}");
}

/// Looks come after collections there.
#[test]
fn by_time_some_collections_stay() {
    let mut controller = Controller::new(AutoOptions::default(), OWN, 1);
    let mut program = SimulatedProgram::new(GROWING, 50_000, 1);
    program.run_by_time(&mut controller, 20_000);
    assert!(has_tried_off(&controller.report(0)));
    let firsts = program.actions.iter().filter_map(|(_, action)| match action {
        Action::SetThresholds([first, ..]) => Some(*first),
        _ => None,
    });
    assert!(firsts.max() <= Some(500_000));
}

/// Shorter runs have the program's own settings throughout.
#[test]
fn nothing_is_tried_before_the_first_step_for_it() {
    let options = AutoOptions { from_step: 2_000, wait_s: 1e6, ..AutoOptions::default() };
    let mut controller = Controller::new(options, OWN, 1);
    let mut program = SimulatedProgram::new(STATIC, 600_000, 1);
    program.run(&mut controller, 1_999);
    assert!(program.actions.is_empty(), "{:?}", program.actions);
    program.run(&mut controller, 1_000);
    assert!(!program.actions.is_empty());
}
