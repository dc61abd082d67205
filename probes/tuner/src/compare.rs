//! Named settings, compared with the first of them: rounds of one block of each, in random order. The blocks of a round
//! are neighbors, so each makes a pair with the first setting's block.

use super::block::{Block, BlockKind};
use super::explore::block_steps;
use super::pairs::BlockPairs;
use super::price::{BlockCost, COMPUTED_ERROR, Thresholds};
use gctrace_settings::{AutoDifference, AutoDifferences, ComparedSetting, GcSetting};
use gctrace_stats::coin::Coin;
use gctrace_stats::{float, whole};

/// The rounds so far.
#[derive(Debug)]
pub(super) struct Comparison {
    settings: Vec<NamedSetting>,
    /// Steps of a block.
    pub(super) block: u64,
    /// Settings still to run in the round, by place.
    queue: Vec<usize>,
}

/// One setting.
#[derive(Debug)]
struct NamedSetting {
    name: GcSetting,
    thresholds: Thresholds,
    /// The block of the running round.
    block: Option<BlockCost>,
    /// CPU time, wall time, collecting and the computed part of that, per step: over blocks of complete rounds,
    /// in ns.
    sums: [f64; 4],
    rounds: u64,
    /// Also of the first with itself: no difference.
    pairs: BlockPairs,
}

impl Comparison {
    /// For settings of thresholds only. `own`: the program's thresholds; `cost`: a block's cost with them.
    pub(super) fn new(names: &[GcSetting], own: Thresholds, cost: &BlockCost) -> Self {
        let setting = |name: &GcSetting| {
            Some(NamedSetting {
                name: name.clone(),
                thresholds: name.thresholds(own)?,
                block: None,
                sums: [0.0; 4],
                rounds: 0,
                pairs: BlockPairs::default(),
            })
        };
        let settings: Vec<NamedSetting> = names.iter().filter_map(setting).collect();
        // Containers in a period of generation 1.
        let period =
            |[first, second, _]: Thresholds| f64::from(first.max(1)) * (f64::from(second) + 2.0);
        let of_first = if let Some(first) = settings.first() { first.thresholds } else { own };
        let middle = cost.middle * period(own) / period(of_first);
        let block = block_steps(&BlockCost { middle, ..*cost });
        Self { settings, block, queue: Vec::new() }
    }

    pub(super) fn next_block(&mut self, coin: &mut Coin) -> Option<Block> {
        if self.queue.is_empty() {
            self.queue.extend(0..self.settings.len());
            coin.shuffle(&mut self.queue);
        }
        let place = *self.queue.last()?;
        let thresholds = self.settings.get(place)?.thresholds;
        Some(Block { kind: BlockKind::Tried(place), thresholds, steps: self.block })
    }

    /// Whether a round runs.
    pub(super) fn is_amid(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Steps charged with full collections after a block: as if the whole round ran with the first setting. So full
    /// collections come as often as with it, and find as much.
    pub(super) fn steps_as_first(&self, kind: BlockKind, steps: u64) -> u64 {
        let is_first = kind == BlockKind::Tried(0);
        if is_first { steps * self.settings.len() as u64 } else { 0 }
    }

    /// Drops the measurements of the running round.
    pub(super) fn drop_round(&mut self) {
        self.queue.clear();
        self.settings.iter_mut().for_each(|one| one.block = None);
    }

    /// A block has ended.
    pub(super) fn add(&mut self, place: usize, cost: BlockCost) {
        self.queue.pop();
        if let Some(setting) = self.settings.get_mut(place) {
            setting.block = Some(cost);
        }
        let Some(first) = self.settings.first() else { return };
        let Some(first) = first.block else { return };
        if self.settings.iter().any(|one| one.block.is_none()) {
            return;
        }
        for setting in &mut self.settings {
            let Some(cost) = setting.block.take() else { continue };
            setting.pairs.push(&cost, &first);
            setting.rounds += 1;
            let parts = [cost.cpu_ns, cost.wall_ns, cost.collecting_ns, cost.full_ns];
            setting.sums.iter_mut().zip(parts).for_each(|(sum, ns)| *sum += ns);
        }
    }

    pub(super) fn reported(&self) -> Vec<ComparedSetting> {
        self.settings.iter().enumerate().map(|(at, one)| one.reported(at == 0)).collect()
    }
}

impl NamedSetting {
    fn reported(&self, is_first: bool) -> ComparedSetting {
        let [cpu_ns, wall_ns, collecting_ns, full_ns] =
            self.sums.map(|sum| whole(sum / float(self.rounds.max(1))));
        let means = ComparedSetting {
            setting: self.name.clone(),
            pairs: self.rounds,
            cpu_ns,
            wall_ns,
            collecting_ns,
            full_ns,
            ..ComparedSetting::default()
        };
        if is_first {
            return means;
        }
        let found = self.pairs.reported();
        let computed = found.computed_share.unwrap_or(0.0) * found.cpu.mean.unwrap_or(0.0);
        let error = COMPUTED_ERROR * computed.abs();
        // It is a smaller share of wall time, by as much as wall time is longer.
        let of_wall = error * float(means.cpu_ns) / float(means.wall_ns.max(1));
        let differences = AutoDifferences {
            cpu: widened(found.cpu, error),
            wall: widened(found.wall, of_wall),
            collections: widened(found.collections, error),
            ..found
        };
        ComparedSetting { differences, ..means }
    }
}

/// An interval that contains what the charge may be off by.
fn widened(found: AutoDifference, error: f64) -> AutoDifference {
    AutoDifference {
        low: found.low.map(|low| low - error),
        high: found.high.map(|high| high + error),
        ..found
    }
}

#[cfg(test)]
mod tests {
    use super::super::controller::Controller;
    use super::super::simulated::{GROWING, STATIC, SimulatedProgram, StepKind};
    use super::*;
    use gctrace_settings::{AutoDecision, AutoOptions, AutoReport, AutoState};
    use gctrace_stats::mixture::difference;

    const OWN: Thresholds = [700, 10, 10];

    fn controller(settings: &str, seed: u64) -> Controller {
        let options: AutoOptions = format!("auto|{settings}").parse().expect("options");
        Controller::new(options, OWN, seed)
    }

    fn run(kind: StepKind, settings: &str, steps: u64, seed: u64) -> AutoReport {
        let mut controller = controller(settings, seed);
        let mut program = SimulatedProgram::new(kind, 300_000, seed);
        program.run(&mut controller, steps);
        controller.report(0)
    }

    /// Programs with one setting throughout; their work is the same to the nanosecond.
    #[test]
    fn the_difference_of_whole_runs_is_inside_the_interval() {
        let names = ["none", "threshold=7000", "threshold=50000,10,10"];
        let steps = 30_000;
        for kind in [STATIC, StepKind { growth: 10, ..STATIC }] {
            let truth = names.map(|name| {
                let mut program = SimulatedProgram::new(kind, 300_000, 9);
                let name: GcSetting = name.parse().expect("a setting");
                program.thresholds = name.thresholds(OWN).expect("thresholds");
                program.run_alone(steps);
                program.cpu_ns - 2e9
            });
            for seed in 1..=3 {
                let report = run(kind, &names.join("|"), steps, seed);
                assert_eq!(report.state, AutoState::Comparing);
                let [first, others @ ..] = &report.compared[..] else { panic!("{report:?}") };
                assert_eq!((first.differences.cpu.mean, first.pairs), (None, others[0].pairs));
                for (one, truth_ns) in others.iter().zip(&truth[1..]) {
                    let expected = difference(*truth_ns, truth[0]);
                    let (low, high) =
                        one.differences.cpu.low.zip(one.differences.cpu.high).expect("an interval");
                    // Full collections come whole.
                    let slack = 40e6 / truth[0];
                    assert!(
                        (low - slack..=high + slack).contains(&expected),
                        "{expected} of {one:?}"
                    );
                    assert!(high < 0.0 && one.differences.cpu.p < Some(0.05), "{one:?}");
                    assert!(one.pairs > 100 && one.cpu_ns < first.cpu_ns, "{one:?} {first:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_claimed_of_one_setting_under_two_names() {
        let mut claimed = 0;
        for seed in 1..=20 {
            let report = run(STATIC, "none|threshold=700|threshold=700,10", 6_000, seed);
            for one in &report.compared[1..] {
                assert!(one.pairs > 20 && one.differences.cpu.low.is_some(), "{one:?}");
                claimed += u32::from(one.differences.cpu.p < Some(0.05));
            }
        }
        // 5 % of 40 would be 2; more than 5 have a chance of 1 %.
        assert!(claimed <= 5, "{claimed} of 40");
    }

    /// After the set-up and the block that is watched, both of 50 steps.
    #[test]
    fn each_round_has_each_setting_once() {
        let mut controller = controller("none|threshold=7000|threshold=50000", 3);
        let mut program = SimulatedProgram::new(STATIC, 300_000, 3);
        let mut firsts = Vec::new();
        for _ in 0..5_101 {
            program.run(&mut controller, 1);
            firsts.push(program.thresholds[0]);
        }
        let report = controller.report(0);
        let AutoDecision::Compare { block_steps, .. } = report.events[0].decision else {
            panic!("{report:?}");
        };
        assert_eq!(report.events[0].step, 101);
        let block = usize::try_from(block_steps).expect("few");
        let mut orders = std::collections::HashSet::new();
        let rounds: Vec<_> = firsts[100..].chunks_exact(3 * block).collect();
        for round in &rounds {
            let order: Vec<u32> = round.chunks(block).map(|block| block[0]).collect();
            for (block, first) in round.chunks(block).zip(&order) {
                assert!(block.iter().all(|one| one == first), "{block:?}");
            }
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [700, 7_000, 50_000]);
            orders.insert(order);
        }
        assert_eq!(report.compared[2].pairs, rounds.len() as u64);
        assert_eq!(orders.len(), 6, "all orders: {orders:?}");
    }

    #[test]
    fn what_the_program_sets_begins_another_comparison() {
        let mut controller = controller("none|threshold=7000", 1);
        let mut program = SimulatedProgram::new(GROWING, 50_000, 1);
        program.run(&mut controller, 6_000);
        assert!(controller.report(0).compared[1].pairs > 20);
        program.thresholds = [900, 10, 10];
        let mut action = controller.program_set([900, 10, 10], &mut program);
        while let Some(next) = action {
            program.carry_out(next);
            action = controller.next(&mut program);
        }
        program.run(&mut controller, 600);
        assert!((1..20).contains(&controller.report(0).compared[1].pairs));
        let before = controller.report(0).compared;
        controller.take_back();
        assert_eq!(controller.to_give_back().unwrap_or(program.thresholds)[0], 900);
        assert_eq!(controller.report(0).compared, before);
    }
}
