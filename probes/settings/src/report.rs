//! A process's report on the settings that it applied: JSON, written by the library in it.

use super::auto::AutoReport;
use super::setting::GcSetting;
use gctrace_units::sum;
use serde::{Deserialize, Serialize};

/// One process. Times are of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppliedProcess {
    /// Its id, in its own pid namespace.
    pub pid: u32,
    /// Its parent's id when it wrote the report.
    pub parent: u32,
    /// `RANK` in its environment.
    pub rank: Option<u32>,
    /// Its command line, at most 1000 bytes.
    pub command: String,
    /// Version of CPython.
    pub python: String,
    /// Whether the build is free-threaded.
    pub free_threaded: bool,
    /// Forked from a process with settings, without an exec since.
    pub forked: bool,
    /// The report was written at the interpreter's end; otherwise up to a second before the
    /// process ended.
    pub ended: bool,
    /// As requested.
    pub setting: GcSetting,
    /// The applied settings, at most 100 entries.
    pub applied: Vec<AppliedSetting>,
    /// `gctrace apply --undo` took the settings back.
    pub taken_back: bool,
    /// The mark of steps; `None`: nothing marked them.
    pub marker: Option<String>,
    /// Number of steps completed.
    pub steps: u64,
    /// When the library started to apply settings, in ns.
    pub start_ns: u64,
    /// When the report was written, in ns.
    pub end_ns: u64,
    /// CPU time that gctrace's own code took at steps and around collections, without the collections that it
    /// ran, in ns.
    pub agent_ns: u64,
    /// Collections until the first mark of a step; `None`: there was none.
    pub startup: Option<CollectionSums>,
    /// Collections from then on until all settings were applied.
    pub before: CollectionSums,
    /// Collections from then on, or from the first step; `None`: not all were applied.
    pub after: Option<CollectionSums>,
    /// Collections since the settings were taken back; `None`: they were not.
    pub later: Option<CollectionSums>,
    /// Steps after the first 50; `None`: there was none.
    pub settled: Option<SettledSteps>,
    /// Collections that a plan ran, also in `after`.
    pub planned: CollectionSums,
    /// Collections before `gc.freeze()`, in neither `before` nor `after`.
    pub freezing: CollectionSums,
    /// Calls of `gc.collect()` by the program, by line.
    pub asked: Vec<AskedCollections>,
    /// Calls of the program that change settings, by line.
    pub calls: Vec<SettingCalls>,
    /// Settings that did not hold until the next step, by the line that undid them; they were
    /// applied again.
    pub undone: Vec<UndoneSetting>,
    /// Frozen objects after the last `gc.freeze()` of gctrace; `None`: there was none.
    pub frozen_objects: Option<u64>,
    /// Frozen objects at the interpreter's end; `None`: the end was not seen, or nothing was frozen.
    pub frozen_objects_at_end: Option<u64>,
    /// Objects that the collector tracks, frozen ones not counted, when all settings were applied, or
    /// at the first step if that was later; `None`: they were not applied.
    pub tracked_objects_at_start: Option<u64>,
    /// The same at the interpreter's end.
    pub tracked_objects_at_end: Option<u64>,
    /// Resident memory at the same time, or at the process's start.
    pub rss_bytes_at_start: Option<u64>,
    /// Resident memory when the report was written.
    pub rss_bytes_at_end: Option<u64>,
    /// The most resident memory of the process so far.
    pub peak_rss_bytes: Option<u64>,
    /// Most objects in the youngest generation at a step's end since all settings were applied.
    pub most_waiting: u64,
    /// The first threshold that the program itself has.
    pub own_threshold: u64,
    /// Notes for the user about the settings in this build or program.
    pub warnings: Vec<String>,
    /// Why gctrace's code in the process ended early; `None`: it did not.
    pub failure: Option<String>,
    /// The search for the right setting; `None`: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoReport>,
}

/// A setting that was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppliedSetting {
    /// The change with its values, such as `plan:5,gen2:50`.
    pub setting: String,
    /// After this step; 0: at the start.
    pub step: u64,
    /// When, in ns.
    pub at_ns: u64,
    /// Length of applying it, with the collection before `gc.freeze()`.
    pub took_ns: u64,
}

/// Steps of a program that has settled: caches are filled, and lazily made state exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettledSteps {
    /// Number of steps.
    pub steps: u64,
    /// Their wall time in ns, without gctrace's own code.
    pub wall_ns: u64,
    /// CPU time of the thread that makes them, in ns, without gctrace's own code; `None`: it was not one thread.
    pub cpu_ns: Option<u64>,
    /// Time of the collections in them, in ns.
    pub pause_ns: u64,
    /// Their CPU time, in ns.
    #[serde(default)]
    pub collecting_ns: u64,
    /// Number of these by generation.
    pub collections: [u64; 3],
}

/// Collections of a time, by generation where there are three numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CollectionSums {
    /// Steps of that time.
    pub steps: u64,
    /// Length of that time.
    pub duration_ns: u64,
    /// Number of collections.
    pub collections: [u64; 3],
    /// Objects of cyclic garbage that were freed.
    pub garbage: [u64; 3],
    /// Time of the collections.
    pub pause_ns: [u64; 3],
    /// CPU time of all of them, of the threads that ran them, in ns.
    #[serde(default)]
    pub cpu_ns: u64,
    /// The longest collection; 0 also where it is unknown.
    pub longest_ns: u64,
}

impl CollectionSums {
    /// Collections of all generations.
    pub fn count(&self) -> u64 {
        sum(self.collections)
    }

    /// Time of all collections, in ns.
    pub fn all_pause_ns(&self) -> u64 {
        sum(self.pause_ns)
    }

    /// Garbage of all generations, in objects.
    pub fn all_garbage(&self) -> u64 {
        sum(self.garbage)
    }
}

/// Calls of `gc.collect()` at one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedCollections {
    /// `file:line function`.
    pub by: String,
    /// Number of calls.
    pub times: u64,
    /// Objects of cyclic garbage that they freed.
    pub garbage: u64,
    /// Their time.
    pub pause_ns: u64,
}

/// Calls of a function of the module gc at one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingCalls {
    /// Its name.
    pub function: String,
    /// `file:line function`.
    pub by: String,
    /// The step of the first call.
    pub step: u64,
    /// Number of calls.
    pub times: u64,
}

/// A setting that did not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UndoneSetting {
    /// The kind of the change: `threshold`, `freeze`, `disable` or `plan`.
    pub setting: String,
    /// `file:line function`.
    pub by: String,
    /// The last step before it was first seen.
    pub step: u64,
    /// Number of steps that ended with the setting undone.
    pub times: u64,
}
