//! What the processes report of the settings that they applied; written by agent.py.

use serde::{Deserialize, Serialize};

/// One process. Times are of CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AppliedProcess {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// `RANK` in its environment.
    pub(crate) rank: Option<u32>,
    /// Its command line, at most 1000 bytes.
    pub(crate) command: String,
    /// Version of CPython.
    pub(crate) python: String,
    pub(crate) free_threaded: bool,
    /// Forked from a process with settings, without an exec since.
    pub(crate) forked: bool,
    /// The report was written at the interpreter's end; otherwise up to a second before the
    /// process ended.
    pub(crate) ended: bool,
    /// As requested; several alternate.
    pub(crate) settings: Vec<String>,
    /// What was applied, at most 100 entries.
    pub(crate) applied: Vec<AppliedSetting>,
    /// `gctrace apply --undo` took the settings back.
    pub(crate) taken_back: bool,
    /// What marked steps; `None`: nothing did.
    pub(crate) marker: Option<String>,
    /// Number of steps completed.
    pub(crate) steps: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Time that gctrace's own code took at steps, without the collections that it ran.
    pub(crate) agent_ns: u64,
    /// Collections until the first mark of a step; `None`: there was none.
    pub(crate) startup: Option<CollectionSums>,
    /// Collections from then on until all settings were applied.
    pub(crate) before: CollectionSums,
    /// Collections from then on, or from the first step; `None`: not all were applied.
    pub(crate) after: Option<CollectionSums>,
    /// Collections since the settings were taken back; `None`: they were not.
    pub(crate) later: Option<CollectionSums>,
    /// Collections that a plan ran, also in `after`.
    pub(crate) planned: CollectionSums,
    /// Collections before `gc.freeze()`, in neither `before` nor `after`.
    pub(crate) freezing: CollectionSums,
    /// Calls of `gc.collect()` by the program, by line.
    pub(crate) asked: Vec<AskedCollections>,
    /// Calls of the program that change settings, by line.
    pub(crate) calls: Vec<SettingCalls>,
    /// Settings that did not hold until the next step, by the line that undid them; they were
    /// applied again.
    pub(crate) undone: Vec<UndoneSetting>,
    /// Frozen objects after the last `gc.freeze()` of gctrace; `None`: there was none.
    pub(crate) frozen_objects: Option<u64>,
    pub(crate) frozen_objects_at_end: Option<u64>,
    /// Objects that the collector tracks, frozen ones not counted, when all settings were applied, or
    /// at the first step if that was later; `None`: they were not applied.
    pub(crate) tracked_objects_at_start: Option<u64>,
    pub(crate) tracked_objects_at_end: Option<u64>,
    /// Resident memory at the same time, or at the process's start.
    pub(crate) rss_bytes_at_start: Option<u64>,
    pub(crate) rss_bytes_at_end: Option<u64>,
    pub(crate) peak_rss_bytes: Option<u64>,
    /// Most objects in the youngest generation at a step's end since all settings were applied.
    pub(crate) most_waiting: u64,
    /// The first threshold that the program itself has.
    pub(crate) own_threshold: u64,
    pub(crate) warnings: Vec<String>,
    /// Why gctrace's code in the process ended early; `None`: it did not.
    pub(crate) failure: Option<String>,
}

/// A setting that was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AppliedSetting {
    pub(crate) setting: String,
    /// After this step; 0: at the start.
    pub(crate) step: u64,
    pub(crate) at_ns: u64,
    /// Length of applying it, with the collection before `gc.freeze()`.
    pub(crate) took_ns: u64,
}

/// Collections of a time, by generation where there are three numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CollectionSums {
    /// Steps of that time.
    pub(crate) steps: u64,
    pub(crate) duration_ns: u64,
    pub(crate) collections: [u64; 3],
    /// Objects of cyclic garbage that were freed.
    pub(crate) garbage: [u64; 3],
    pub(crate) pause_ns: [u64; 3],
    /// The longest collection; 0 also where it is unknown.
    pub(crate) longest_ns: u64,
}

impl CollectionSums {
    /// Collections of all generations.
    pub(crate) fn count(&self) -> u64 {
        sum(self.collections)
    }

    /// Time of all collections, in ns.
    pub(crate) fn all_pause_ns(&self) -> u64 {
        sum(self.pause_ns)
    }

    /// Garbage of all generations, in objects.
    pub(crate) fn all_garbage(&self) -> u64 {
        sum(self.garbage)
    }
}

fn sum(values: [u64; 3]) -> u64 {
    values.into_iter().fold(0, u64::saturating_add)
}

/// Calls of `gc.collect()` at one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AskedCollections {
    /// `file:line function`.
    pub(crate) by: String,
    pub(crate) times: u64,
    pub(crate) garbage: u64,
    pub(crate) pause_ns: u64,
}

/// Calls of a function of the module gc at one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SettingCalls {
    pub(crate) function: String,
    /// `file:line function`.
    pub(crate) by: String,
    /// The step of the first call.
    pub(crate) step: u64,
    pub(crate) times: u64,
}

/// A setting that did not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UndoneSetting {
    pub(crate) setting: String,
    /// `file:line function`.
    pub(crate) by: String,
    /// The step after which it was first seen.
    pub(crate) step: u64,
    pub(crate) times: u64,
}
