//! A setting is held, and pairs of blocks check its gain. The pairs are fresh, none are of the exploration: there the
//! best setting is also the best by chance.

use super::block::{Block, BlockKind, is_other};
use super::explore::setting;
use super::pairs::BlockPairs;
use super::price::{BlockCost, ChargedOld, Figures, Thresholds};
use gctrace_settings::{AutoPart, AutoSaving, GcSetting};
use gctrace_stats::coin::Coin;
use gctrace_stats::mixture::own_by_held;
use gctrace_stats::{float, signed, whole};

/// Fewest pairs of a proof.
const FEWEST: usize = 12;
/// After this many pairs a proof is no longer sought in every block.
const MOST: usize = 60;
/// Gains below are none: the charge of full collections is off by more (share of the CPU time).
pub(super) const RESERVE: f64 = 0.005;
/// Held blocks between two pairs once the gain is proven: 9 to 27, by chance, so that no period of the
/// program meets them.
pub(super) const LEAST_GAP: u64 = 9;
pub(super) const GAPS: usize = 19;
/// Pairs in the average of containers per step.
const RECENT: usize = 3;

/// The old generation when it was frozen.
#[derive(Clone, Copy, Debug)]
struct FrozenHeap {
    /// Objects that were frozen, nearly.
    objects: f64,
    /// Full collections by then.
    fulls: u64,
}

/// One setting, held.
#[derive(Debug)]
pub(super) struct Hold {
    since: u64,
    thresholds: Thresholds,
    frozen: Option<FrozenHeap>,
    block: u64,
    pub(super) is_proving: bool,
    pub(super) is_proven: bool,
    /// Blocks of the pair that are still to run: whether held.
    queue: Vec<bool>,
    pair: [Option<BlockCost>; 2],
    pub(super) gap: u64,
    pub(super) pairs: BlockPairs,
    steps: u64,
    cpu_ns: f64,
    /// Steps with it, and their young collections with the later freeing of survivors, in ns of CPU time: of pairs
    /// (their blocks are closed), and of blocks that are not closed.
    young: [(u64, f64); 2],
    /// Containers per step when it was chosen, and of the last pairs.
    allocations: f64,
    recent: Vec<f64>,
}

impl Hold {
    /// `freezes`: the heap is about to be frozen, after a full collection.
    pub(super) fn new(
        since: u64,
        thresholds: Thresholds,
        block: u64,
        allocations: f64,
        freezes: Option<&Figures>,
    ) -> Self {
        Self {
            since,
            thresholds,
            frozen: freezes.map(|figures| FrozenHeap {
                objects: ChargedOld::of(figures, 0.0).objects,
                fulls: figures.collections[2] + 1,
            }),
            block,
            is_proving: true,
            is_proven: false,
            queue: Vec::new(),
            pair: [None; 2],
            gap: 0,
            pairs: BlockPairs::default(),
            steps: 0,
            cpu_ns: 0.0,
            young: [(0, 0.0); 2],
            allocations,
            recent: Vec::new(),
        }
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(super) fn is_proving(&self) -> bool {
        self.is_proving
    }

    /// As `gctrace apply` takes it.
    pub(super) fn setting(&self) -> GcSetting {
        setting(self.thresholds, self.is_frozen())
    }

    /// The old generation while blocks of this kind run. Objects that are frozen stay so in all: what the
    /// program's own settings would cost is charged with them.
    pub(super) fn old_generation(
        &self,
        old: ChargedOld,
        figures: &Figures,
        kind: BlockKind,
    ) -> ChargedOld {
        // The last full collection with a held setting may be long ago.
        let quarter_of = if kind.is_held() { float(figures.old) } else { old.quarter_of };
        let old = ChargedOld { quarter_of, ..old };
        let Some(frozen) = self.frozen else { return old };
        if !kind.is_held() {
            return ChargedOld { objects: frozen.objects, quarter_of: frozen.objects, ..old };
        }
        if figures.collections[2] > frozen.fulls {
            return old;
        }
        // Nothing but what came since.
        ChargedOld { objects: float(figures.pending).min(frozen.objects), ..old }
    }

    pub(super) fn next_block(&mut self, own: Thresholds, is_over: bool, coin: &mut Coin) -> Block {
        let steps = self.block;
        if self.queue.is_empty() && self.gap == 0 && !is_over {
            let first = coin.toss();
            self.queue = vec![!first, first];
        }
        if let Some(is_held) = self.queue.pop() {
            let thresholds = if is_held { self.thresholds } else { own };
            return Block { kind: BlockKind::Paired { is_held }, thresholds, steps };
        }
        self.gap = self.gap.saturating_sub(1);
        self.resting_block(own)
    }

    /// A block that is not compared.
    pub(super) fn resting_block(&self, own: Thresholds) -> Block {
        let steps = self.block;
        if self.is_proving {
            return Block { kind: BlockKind::Own, thresholds: own, steps };
        }
        Block { kind: BlockKind::Held, thresholds: self.thresholds, steps }
    }

    /// Steps charged with full collections after a block of a pair. Once the gain is proven, as if both blocks ran with
    /// the held setting: its full collections may be many pairs apart.
    pub(super) fn steps_as_held(&self, kind: BlockKind, steps: u64) -> u64 {
        match (self.is_proving, kind.is_held()) {
            (true, _) => steps,
            (false, true) => 2 * steps,
            (false, false) => 0,
        }
    }

    /// Whether a pair runs.
    pub(super) fn is_amid(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Drops the measurements of the running pair.
    pub(super) fn drop_pair(&mut self) {
        self.queue.clear();
        self.pair = [None; 2];
    }

    pub(super) fn add(&mut self, kind: BlockKind, cost: BlockCost, steps: u64) {
        let is_held = kind.is_held();
        if !is_held && kind != (BlockKind::Paired { is_held: false }) {
            return;
        }
        if is_held {
            self.steps += steps;
            self.cpu_ns += cost.cpu_ns * float(steps);
            let (of_such, young_ns) = &mut self.young[usize::from(kind == BlockKind::Held)];
            *of_such += steps;
            *young_ns += (cost.collecting_ns - cost.full_ns + cost.garbage_ns) * float(steps);
        }
        if kind == BlockKind::Held {
            return;
        }
        self.pair[usize::from(is_held)] = Some(cost);
        if let [Some(own), Some(held)] = self.pair {
            self.pair = [None; 2];
            self.pairs.push(&held, &own);
            if self.recent.len() == RECENT {
                self.recent.remove(0);
            }
            self.recent.push(own.allocations);
            if !self.is_proving {
                self.gap = LEAST_GAP;
            }
        }
    }

    /// CPU time that was lost, in ns, if the setting is worse than the program's own.
    pub(super) fn lost_ns(&self) -> f64 {
        (self.cpu_ns * (1.0 - own_by_held(self.pairs.cpu.mean()))).max(0.0)
    }

    /// How much less young collections took in unclosed blocks than in as many steps of pairs, in ns of CPU time. Pairs
    /// collect living objects at each block's end, sooner than the setting would. 0 before the first unclosed block.
    fn unclosed_ns(&self) -> f64 {
        let [(paired, paired_ns), (others, others_ns)] = self.young;
        if others_ns <= 0.0 {
            return 0.0;
        }
        paired_ns / float(paired.max(1)) * float(others) - others_ns
    }

    /// The saving, if it is proven.
    pub(super) fn saving(&self) -> Option<AutoSaving> {
        let pairs = &self.pairs.cpu;
        if !self.is_proven {
            return None;
        }
        let interval = pairs.interval()?;
        let unclosed_ns = self.unclosed_ns();
        let ns = |difference| signed(self.cpu_ns * (own_by_held(difference) - 1.0) + unclosed_ns);
        Some(AutoSaving {
            mean_ns: ns(pairs.mean()),
            low_ns: ns(interval.high),
            high_ns: ns(interval.low),
            pairs: pairs.count() as u64,
            computed_share: self.pairs.computed_share()?,
        })
    }

    pub(super) fn part(&self) -> AutoPart {
        AutoPart {
            setting: self.setting(),
            step: self.since,
            held_steps: self.steps,
            held_cpu_ns: whole(self.cpu_ns),
            pairs: self.pairs.cpu.count() as u64,
            is_proven: self.is_proven,
            differences: self.pairs.reported(),
        }
    }
}

/// Conclusion from the pairs so far.
pub(super) enum HoldVerdict {
    GoOn,
    Loss,
    NotProven,
    Changed { before: f64, now: f64 },
    Proven { low: f64, high: f64 },
}

impl Hold {
    pub(super) fn verdict(&self) -> HoldVerdict {
        let (pairs, interval) = (self.pairs.cpu.count(), self.pairs.cpu.interval());
        if matches!(interval, Some(one) if one.low > 0.0) {
            return HoldVerdict::Loss;
        }
        let now = self.recent.iter().sum::<f64>() / float(RECENT as u64);
        if self.recent.len() == RECENT && is_other(self.allocations, now) {
            return HoldVerdict::Changed { before: self.allocations, now };
        }
        if let Some(one) = interval
            && one.high < -RESERVE
            && !self.is_proven
            && pairs >= FEWEST
        {
            return HoldVerdict::Proven { low: one.low, high: one.high };
        }
        if self.is_proving && pairs >= MOST {
            return HoldVerdict::NotProven;
        }
        HoldVerdict::GoOn
    }
}
