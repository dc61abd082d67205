//! State and sums of one process, and the process that a record belongs to.

use super::interval_union::IntervalUnion;
use crate::bounded::Keep;
use crate::freeze::FreezeWatch;
use crate::garbage::GarbageSums;
use crate::growth::GrowthState;
use crate::inherited::InheritedHeap;
use crate::leak_watch::{LeakWatch, WatchedLife};
use crate::memory::MemorySums;
use crate::pressure::PressureSums;
use crate::settings::SettingsSums;
use gctrace_event::{Interpreter, Pause, Pressure, Process, ProcessExit, Record};
use std::collections::HashMap;

/// One process. A process id that is reused after its process ended is another process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessSums {
    pub(crate) pid: u32,
    pub(crate) described: Option<Process>,
    pub(crate) exit: Option<ProcessExit>,
    pub(crate) settings: SettingsSums,
    /// Time covered by pauses.
    pub(crate) paused: IntervalUnion,
    pub(crate) pressure: PressureSums,
    pub(crate) garbage: GarbageSums,
    pub(crate) freeze: FreezeWatch,
    pub(crate) growth: GrowthState,
    pub(crate) inherited: InheritedHeap,
    pub(crate) leaks: LeakWatch,
    pub(crate) memory: MemorySums,
}

impl ProcessSums {
    /// A process known by its id alone. `keep`: how much of the past; `pauses`: how many disjoint
    /// pauses are kept for late records.
    pub(crate) fn new(pid: u32, keep: Keep, pauses: usize) -> Self {
        Self {
            pid,
            paused: IntervalUnion::new(keep, pauses),
            garbage: GarbageSums::new(keep),
            ..Self::default()
        }
    }

    /// Adds a description; the earliest `since_ns` counts, because an exec does not end a process.
    pub(crate) fn describe(&mut self, mut process: Process) {
        if let Some(since_ns) = self.since_ns() {
            process.since_ns = process.since_ns.min(since_ns);
        }
        self.described = Some(process);
    }

    /// Adds a pause; `full`: whether it went through the whole heap. Whether the trend of the heap
    /// may have changed.
    pub(crate) fn add_pause(&mut self, pause: &Pause, full: bool) -> bool {
        self.pressure.add_pause(pause);
        self.garbage.add_pause(pause);
        self.freeze.add(pause, full);
        self.inherited.add(pause, full);
        self.memory.add_pause(pause);
        let left = if full { self.growth.add(pause) } else { None };
        matches!(left, Some(left) if self.leaks.objects(pause.start_ns, left))
    }

    /// Adds a record that the report and the live view sum up alike, and ignores any other. Returns whether it
    /// contains new settings.
    pub(crate) fn record(&mut self, record: &Record) -> bool {
        match record {
            Record::Settings(settings) => return self.settings.add(settings),
            Record::Pressure(pressure) => self.add_pressure(pressure),
            Record::Allocations(allocations) => self.pressure.add_allocations(allocations),
            Record::DeviceMemory(memory) => self.leaks.device(memory),
            Record::ObjectKind(kind) => self.garbage.describe(kind),
            Record::CycleSignature(cycle) => self.garbage.describe_cycle(cycle),
            Record::Garbage(garbage) => self.garbage.add(garbage.clone()),
            _ => {}
        }
        false
    }

    /// Adds an interval of allocation pressure.
    fn add_pressure(&mut self, pressure: &Pressure) {
        self.pressure.add(pressure);
        if let (Some(private), Some(resident)) = (pressure.private_bytes, pressure.resident_bytes) {
            self.memory.add_private(private, resident);
        }
        if let Some(kept) = pressure.kept_bytes {
            self.leaks.kept(pressure.at_ns, kept);
        }
        if let Some(bytes) = pressure.resident_bytes {
            self.add_resident(pressure.at_ns, bytes);
        }
    }

    /// Adds its resident memory. Whether the trend of its memory may have changed.
    pub(crate) fn add_resident(&mut self, at_ns: u64, bytes: u64) -> bool {
        self.memory.report.resident_bytes = Some(bytes);
        self.leaks.resident(at_ns, bytes)
    }

    /// Memory that it may use, in bytes; `None` if unknown.
    pub(crate) fn memory_limit_bytes(&self) -> Option<u64> {
        self.described.as_ref()?.memory_limit_bytes
    }

    /// What its trends depend on. `since_ns`, `until_ns`: of its recording; `set_up_ns`: end of its set-up,
    /// if that is known.
    pub(crate) fn life(
        &self,
        (since_ns, until_ns): (u64, u64),
        set_up_ns: Option<u64>,
    ) -> WatchedLife {
        WatchedLife {
            since_ns,
            until_ns,
            set_up_ns,
            frozen_ns: self.freeze.at_ns(),
            limit_bytes: self.memory_limit_bytes(),
        }
    }

    /// From when on its pauses are complete, if it is described.
    pub(crate) fn since_ns(&self) -> Option<u64> {
        self.described.as_ref().map(|process| process.since_ns)
    }

    /// The process that started it; `None` if that is not recorded.
    pub(crate) fn parent(&self) -> Option<u32> {
        self.described.as_ref()?.parent
    }

    pub(crate) fn rank(&self) -> Option<u32> {
        self.described.as_ref()?.rank
    }

    pub(crate) fn interpreter(&self) -> Option<&Interpreter> {
        self.described.as_ref()?.interpreter.as_ref()
    }

    /// Version of its interpreter.
    pub(crate) fn version(&self) -> Option<&str> {
        let interpreter = self.interpreter();
        interpreter.map(|interpreter| interpreter.version.as_str())
    }

    pub(crate) fn free_threaded(&self) -> bool {
        let Some(interpreter) = self.interpreter() else { return false };
        interpreter.free_threaded
    }

    /// Whether a collection that reports this generation examined the whole heap. Each collection of a free-threaded
    /// build does.
    pub(crate) fn is_full(&self, generation: u8) -> bool {
        generation == 2 || self.free_threaded()
    }

    /// Whether it is known to run no Python.
    pub(crate) fn without_python(&self) -> bool {
        self.described.is_some() && self.interpreter().is_none()
    }

    /// Whether it ended by a time.
    pub(crate) fn ended_by(&self, at_ns: u64) -> bool {
        let Some(exit) = self.exit else { return false };
        exit.at_ns <= at_ns
    }
}

/// The latest process of each id, and the one before.
#[derive(Debug, Default)]
pub(crate) struct PidTable<K>(HashMap<u32, (K, Option<K>)>);

impl<K: Copy + PartialEq> PidTable<K> {
    pub(crate) fn latest(&self, pid: u32) -> Option<K> {
        self.0.get(&pid).map(|(latest, _)| *latest)
    }

    /// The process that had this id at that time. `since_ns`: start of the process, if it is described.
    pub(crate) fn at(
        &self,
        pid: u32,
        at_ns: u64,
        since_ns: impl FnOnce(K) -> Option<u64>,
    ) -> Option<K> {
        match *self.0.get(&pid)? {
            (latest, Some(before)) if since_ns(latest) > Some(at_ns) => Some(before),
            (latest, _) => Some(latest),
        }
    }

    /// Another process has this id from now on.
    pub(crate) fn begin(&mut self, pid: u32, key: K) {
        let before = self.latest(pid);
        self.0.insert(pid, (key, before));
    }

    /// Drops a process.
    pub(crate) fn forget(&mut self, pid: u32, key: K) {
        match self.0.get_mut(&pid) {
            Some((latest, _)) if *latest == key => {
                self.0.remove(&pid);
            }
            Some((_, before)) if *before == Some(key) => *before = None,
            _ => {}
        }
    }
}
