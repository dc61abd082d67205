//! A simulated program with CPython's collector, for the tests of the controller.

use super::controller::Controller;
use super::gauge::{Action, DeviceMemory, Gauge};
use super::price::{Figures, MeasuredFull, Thresholds};
use gctrace_stats::coin::Coin;
use gctrace_stats::{float, whole};
use gctrace_units::beyond;

/// The program's work in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepKind {
    /// Work without collections, in ns.
    pub(super) work_ns: f64,
    /// Containers that live for `life` steps.
    pub(super) window: u64,
    pub(super) life: u64,
    /// Containers that live for ever.
    pub(super) growth: u64,
    /// Containers of cyclic garbage.
    pub(super) garbage: u64,
    /// Bytes of each of these.
    pub(super) garbage_bytes: u64,
}

pub(super) const NUMBERS: StepKind =
    StepKind { work_ns: 400e3, window: 0, life: 1, growth: 0, garbage: 0, garbage_bytes: 0 };
/// As `static` of the prototype: a large heap, a window of survivors, some cycles.
pub(super) const STATIC: StepKind = StepKind {
    work_ns: 770e3,
    window: 200,
    life: 200,
    growth: 0,
    garbage: 100,
    garbage_bytes: 200,
};
pub(super) const GROWING: StepKind =
    StepKind { work_ns: 220e3, window: 0, life: 1, growth: 300, garbage: 0, garbage_bytes: 0 };

/// CPU time per object, in ns: of a young collection, of a full one, of an object that is freed.
const YOUNG_NS: f64 = 25.0;
const FULL_NS: f64 = 120.0;
const FREED_NS: f64 = 60.0;

pub(super) struct SimulatedProgram {
    pub(super) kind: StepKind,
    coin: Coin,
    /// Standard deviation of a step's time, as a share; half of it remains from step to step.
    pub(super) noise: f64,
    memory: f64,
    load: f64,
    /// The program's thresholds, or the controller's.
    pub(super) thresholds: Thresholds,
    counts: [u64; 3],
    /// Living containers by generation; in the last generation: `heap`.
    young: [u64; 2],
    /// Living containers of the window, in all generations.
    window: u64,
    pub(super) heap: u64,
    /// The part of these that lives for ever.
    base: u64,
    garbage: [u64; 3],
    frozen: u64,
    pub(super) old: u64,
    pending: u64,
    figures: Figures,
    pub(super) steps: u64,
    /// CPU time that no charge corrects, in ns: what a whole run is measured by.
    pub(super) cpu_ns: f64,
    pub(super) rss: u64,
    pub(super) headroom: Option<u64>,
    /// Memory of its GPU: each container of garbage takes a MiB of it; `None`: it has none.
    pub(super) device_bytes: Option<u64>,
    /// The most of it that was in use.
    pub(super) most_device_bytes: u64,
    pub(super) actions: Vec<(u64, Action)>,
    /// Full collections, with the step: by the rule, or asked for.
    pub(super) fulls: Vec<(u64, bool)>,
    pub(super) tid: u32,
    /// Collections that a change of thresholds set off.
    pub(super) by_change: u64,
    /// The program asks for a full collection each so many steps; 0: never.
    pub(super) asks_each: u64,
}

impl SimulatedProgram {
    pub(super) fn new(kind: StepKind, heap: u64, seed: u64) -> Self {
        let mut program = Self {
            kind,
            coin: Coin::new(seed),
            noise: 0.05,
            memory: 0.0,
            load: 1.0,
            thresholds: [700, 10, 10],
            counts: [0; 3],
            young: [0; 2],
            window: 0,
            heap,
            base: heap,
            garbage: [0; 3],
            frozen: 0,
            old: heap,
            pending: 0,
            figures: Figures::default(),
            steps: 0,
            cpu_ns: 2e9,
            rss: 200 << 20,
            headroom: None,
            device_bytes: None,
            most_device_bytes: 0,
            actions: Vec::new(),
            fulls: Vec::new(),
            tid: 1,
            by_change: 0,
            asks_each: 0,
        };
        // Loading has had full collections.
        program.collect(2, false);
        program
    }

    fn noise(&mut self) -> f64 {
        let normal = (0..12).map(|_| self.coin.share()).sum::<f64>() - 6.0;
        self.memory = 0.5 * self.memory + self.noise * 0.87 * normal;
        if self.coin.share() < 0.002 {
            self.load = if self.load > 1.0 { 1.0 } else { 1.2 };
        }
        let spike = if self.noise > 0.0 && self.coin.share() < 0.005 { 4.0 } else { 1.0 };
        let load = if self.noise > 0.0 { self.load } else { 1.0 };
        self.memory.exp() * load * spike
    }

    /// One step.
    pub(super) fn step(&mut self) {
        /// Parts of a step: in each, containers are made and the collector looks.
        const CHUNKS: u64 = 20;
        self.steps += 1;
        let work = self.kind.work_ns * self.noise();
        self.spend(work);
        let StepKind { window, life, growth, garbage, garbage_bytes, .. } = self.kind;
        let part = |count: u64, chunk: u64| count * (chunk + 1) / CHUNKS - count * chunk / CHUNKS;
        for chunk in 0..CHUNKS {
            let (new, grown, cyclic) =
                (part(window, chunk), part(growth, chunk), part(garbage, chunk));
            self.young[0] += new + grown;
            self.window += new;
            self.garbage[0] += cyclic;
            self.rss += cyclic * garbage_bytes + grown * 200;
            let waiting = self.garbage.iter().sum::<u64>() << 20;
            self.most_device_bytes = self.most_device_bytes.max(waiting);
            self.counts[0] += new + grown + cyclic;
            // The oldest of the window die.
            let dead = beyond(self.window, window * life);
            self.window -= dead;
            let of_heap = dead.min(self.heap - self.base);
            self.heap -= of_heap;
            let of_middle = (dead - of_heap).min(self.young[1]);
            self.young[1] -= of_middle;
            self.young[0] = beyond(self.young[0], dead - of_heap - of_middle);
            self.counts[0] = beyond(self.counts[0], dead);
            self.look();
        }
        if self.asks_each > 0 && self.steps.is_multiple_of(self.asks_each) {
            self.collect(2, true);
        }
    }

    fn spend(&mut self, ns: f64) {
        self.cpu_ns += ns;
        self.figures.cpu_ns = whole(self.cpu_ns);
        self.figures.wall_ns = whole(self.cpu_ns * 1.1);
    }

    /// `gc_collect_generations`.
    fn look(&mut self) {
        if self.counts[0] <= u64::from(self.thresholds[0]) || self.thresholds[0] == 0 {
            return;
        }
        for generation in [2_usize, 1, 0] {
            if self.counts[generation] <= u64::from(self.thresholds[generation]) {
                continue;
            }
            if generation == 2 && self.pending < self.old / 4 {
                continue;
            }
            self.collect(generation, false);
            return;
        }
    }

    pub(super) fn collect(&mut self, generation: usize, is_asked: bool) {
        let garbage: u64 = self.garbage[..=generation].iter().sum();
        let living = match generation {
            0 => self.young[0],
            1 => self.young[0] + self.young[1],
            _ => self.young[0] + self.young[1] + self.heap,
        };
        let each = if generation == 2 { FULL_NS } else { YOUNG_NS };
        let ns = 2_000.0 + float(living) * each + float(garbage) * (each + FREED_NS);
        self.spend(ns);
        self.figures.collections[generation] += 1;
        self.figures.collecting_ns[generation] += whole(ns);
        self.figures.freed += garbage;
        let longest = &mut self.figures.longest_ns[usize::from(generation == 2)];
        *longest = (*longest).max(whole(ns));
        self.garbage[..=generation].fill(0);
        self.rss -= (garbage * self.kind.garbage_bytes).min(self.rss);
        match generation {
            0 => {
                self.young[1] += self.young[0];
                self.young[0] = 0;
            }
            1 => {
                self.pending += living;
                self.heap += living;
                self.young = [0; 2];
            }
            _ => {
                let (left_before, pending) = (self.old, self.pending);
                self.heap = living;
                self.young = [0; 2];
                (self.old, self.pending) = (living, 0);
                self.figures.full = Some(MeasuredFull {
                    cpu_ns: whole(ns),
                    left: living,
                    freed: garbage,
                    left_before,
                    pending,
                });
                self.fulls.push((self.steps, is_asked));
            }
        }
        self.counts[..=generation].fill(0);
        if let Some(older) = self.counts.get_mut(generation + 1) {
            *older += 1;
        }
    }

    pub(super) fn carry_out(&mut self, action: Action) {
        self.actions.push((self.steps, action));
        match action {
            Action::SetThresholds(thresholds) => {
                self.thresholds = thresholds;
                // Passing through thresholds below the count collects at once.
                let before = self.figures.collections;
                self.look();
                self.by_change += u64::from(self.figures.collections != before);
            }
            Action::Collect(generation) => self.collect(usize::from(generation), true),
            Action::Freeze => {
                self.frozen += std::mem::take(&mut self.heap);
                self.base = 0;
                self.counts = [0; 3];
            }
            Action::Unfreeze => {
                self.base = std::mem::take(&mut self.frozen);
                self.heap += self.base;
            }
        }
    }

    /// Runs with a controller.
    pub(super) fn run(&mut self, controller: &mut Controller, steps: u64) {
        for _ in 0..steps {
            self.step();
            let mut action = controller.step(1, self);
            while let Some(next) = action {
                self.carry_out(next);
                action = controller.next(self);
            }
        }
    }

    /// Runs with a controller that knows no steps: it looks each 25 of them.
    pub(super) fn run_by_time(&mut self, controller: &mut Controller, steps: u64) {
        controller.go_by_time();
        let mut looked_ms = 0;
        for step in 0..steps {
            self.step();
            if step % 25 != 0 {
                continue;
            }
            let collected_ns = self.figures.all_collecting_ns();
            let worked_ms = beyond(self.figures.cpu_ns, collected_ns) / 1_000_000;
            let mut action = controller.step(worked_ms - looked_ms, self);
            looked_ms = worked_ms;
            while let Some(next) = action {
                self.carry_out(next);
                action = controller.next(self);
            }
        }
    }

    /// CPU time of the last full collection, in ns.
    pub(super) fn full_ns(&self) -> f64 {
        if let Some(full) = self.figures.full { float(full.cpu_ns) } else { 0.0 }
    }

    /// Runs as it is.
    pub(super) fn run_alone(&mut self, steps: u64) {
        (0..steps).for_each(|_| self.step());
    }
}

impl Gauge for SimulatedProgram {
    fn figures(&mut self) -> Figures {
        let figures = Figures {
            tid: self.tid,
            waiting: self.counts[0],
            old: self.old,
            pending: self.pending,
            ..self.figures
        };
        self.figures.longest_ns = [0; 2];
        figures
    }

    fn fulls(&mut self) -> u64 {
        self.figures.collections[2]
    }

    fn rss_bytes(&mut self) -> Option<u64> {
        Some(self.rss)
    }

    fn malloc_bytes(&mut self) -> Option<u64> {
        None
    }

    fn headroom_bytes(&mut self) -> Option<u64> {
        self.headroom.map(|total| beyond(total, self.rss))
    }

    fn device_memory(&mut self, _searches: bool) -> Option<DeviceMemory> {
        let total = self.device_bytes?;
        // A framework's allocator keeps the memory it has obtained.
        let used = self.most_device_bytes;
        Some(DeviceMemory { used, left: beyond(total, used) })
    }

    fn now_ns(&mut self) -> u64 {
        self.figures.wall_ns
    }
}
