//! Performance counters of a session: their maps and switches, and the sums of whole processes.

use super::{BpfSession, update};
use crate::counts;
use crate::counts::CounterSet;
use crate::error::Error;
use crate::link::written;
use crate::wire::skeleton::OpenGctraceSkel;
use crate::wire::{
    HardwareCounter, ProcessCountsWire, ProcessHardware, SoftwareCounts, TaskCounts,
};
use gctrace_event::{Counter, Counters, ProcessCounters};
use libbpf_rs::{MapCore, MapFlags};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use zerocopy::{FromBytes, IntoBytes as _};

/// `MAX_THREADS` and `MAX_PROCESSES` of `bpf/event.h`.
const MAX_THREADS: u32 = 8192;
const MAX_PROCESSES: u32 = 32768;

/// Enables the requested counters, and gives the other maps no memory.
pub(super) fn prepare(open: &mut OpenGctraceSkel<'_>, set: CounterSet) -> Result<(), Error> {
    let cpus = u32::try_from(libbpf_rs::num_possible_cpus().map_err(Error::Load)?).unwrap_or(1);
    if let Some(rodata) = open.maps.rodata_data.as_mut() {
        rodata.count_software = set.software;
        rodata.hardware_mask = set.hardware;
        rodata.possible_cpus = cpus;
    }
    let maps = &mut open.maps;
    let nothing = !set.software && !set.has_hardware();
    let sizes = [
        (&mut maps.process_counts, nothing, MAX_PROCESSES),
        (&mut maps.process_hardware, !set.has_hardware(), MAX_PROCESSES),
        (&mut maps.thread_hardware, !set.has_hardware(), MAX_THREADS),
        (&mut maps.perf_events, !set.has_hardware(), cpus * HardwareCounter::HARDWARE_COUNTERS.0),
    ];
    for (map, unused, entries) in sizes {
        let entries = if unused { 1 } else { entries };
        map.set_max_entries(entries).map_err(Error::Load)?;
    }
    Ok(())
}

impl BpfSession {
    /// Adds a counter of one CPU. The session keeps the event alive; `event` may be closed.
    ///
    /// # Errors
    /// [`Error::Map`] if the kernel rejects it.
    pub fn add_perf_event(
        &self,
        counter: Counter,
        cpu: u32,
        event: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let Some(slot) = counts::slot(counter) else {
            return Ok(());
        };
        let cpus = self.skeleton.maps.rodata_data.as_ref().map_or(1, |rodata| rodata.possible_cpus);
        let index = slot.0 * cpus + cpu;
        update(
            &self.skeleton.maps.perf_events,
            "perf_events",
            &index.to_ne_bytes(),
            &event.as_raw_fd().to_ne_bytes(),
        )
    }

    /// Starts counting for a process that is already running.
    ///
    /// # Errors
    /// [`Error::Map`] if there are too many.
    pub fn count_process(&self, pid: u32, since_ns: u64) -> Result<(), Error> {
        if !self.counts() {
            return Ok(());
        }
        let mut counts = ProcessCountsWire { since_ns, ..ProcessCountsWire::default() };
        let maps = &self.skeleton.maps;
        if self.counter_set.has_hardware() {
            let none = ProcessHardware::default();
            update(
                &maps.process_hardware,
                "process_hardware",
                &pid.to_ne_bytes(),
                none.as_bytes(),
            )?;
        }
        update(&maps.process_counts, "process_counts", &pid.to_ne_bytes(), counts.as_bytes())?;
        for task in self.tasks()? {
            if task.pid == pid {
                add(&mut counts.base, &task.software);
                counts.base_run_ns += task.run_ns;
            }
        }
        // Threads that exited meanwhile are not lost: they started earlier as well, so they belong
        // to neither.
        update(&maps.process_counts, "process_counts", &pid.to_ne_bytes(), counts.as_bytes())
    }

    /// The counters of a process that has exited; `None` if it was not counted. Returned only once.
    ///
    /// # Errors
    /// [`Error::Map`] if the maps cannot be read.
    pub fn ended_process(&self, pid: u32, at_ns: u64) -> Result<Option<ProcessCounters>, Error> {
        let found = self.process(pid, at_ns, &[])?;
        let maps = &self.skeleton.maps;
        let _ = maps.process_counts.delete(&pid.to_ne_bytes());
        if self.counter_set.has_hardware() {
            let _ = maps.process_hardware.delete(&pid.to_ne_bytes());
        }
        Ok(found)
    }

    /// The counters of all processes that were not returned by [`BpfSession::ended_process`].
    ///
    /// # Errors
    /// [`Error::Map`] if the maps cannot be read.
    pub fn living_processes(&self, at_ns: u64) -> Result<Vec<ProcessCounters>, Error> {
        if !self.counts() {
            return Ok(Vec::new());
        }
        let tasks = self.tasks()?;
        let pids = self.skeleton.maps.process_counts.keys();
        let pids = pids.filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)));
        pids.filter_map(|pid| self.process(pid, at_ns, &tasks).transpose()).collect()
    }

    fn counts(&self) -> bool {
        self.counter_set != CounterSet::default()
    }

    /// `tasks`: live threads, of this process and of others.
    fn process(
        &self,
        pid: u32,
        at_ns: u64,
        tasks: &[TaskCounts],
    ) -> Result<Option<ProcessCounters>, Error> {
        let maps = &self.skeleton.maps;
        let Some(wire) = read::<ProcessCountsWire>(&maps.process_counts, "process_counts", pid)?
        else {
            return Ok(None);
        };
        let mut counters = Counters::default();
        if self.counter_set.software {
            let (mut sum, mut run_ns) = (wire.ended, wire.ended_run_ns);
            for task in tasks {
                if task.pid == pid {
                    add(&mut sum, &task.software);
                    run_ns += task.run_ns;
                }
            }
            subtract(&mut sum, &wire.base);
            let run_ns = run_ns.saturating_sub(wire.base_run_ns);
            counts::add_software(&mut counters, &sum, Some(run_ns));
        }
        if let Some(hardware) =
            read::<ProcessHardware>(&maps.process_hardware, "process_hardware", pid)?
        {
            counts::add_hardware(&mut counters, &hardware.counts, self.counter_set.hardware);
            counters.migrated = hardware.dropped > 0;
        }
        Ok(Some(ProcessCounters { pid, since_ns: wire.since_ns, at_ns, counters }))
    }

    /// The live threads of all counted processes.
    fn tasks(&self) -> Result<Vec<TaskCounts>, Error> {
        let failed = |source| Error::Map { map: "process_counts", source };
        written(&self.skeleton.progs.list_tasks).map_err(failed)
    }
}

fn read<T: FromBytes>(
    map: &impl MapCore,
    name: &'static str,
    pid: u32,
) -> Result<Option<T>, Error> {
    let value = map
        .lookup(&pid.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| Error::Map { map: name, source })?;
    Ok(value.and_then(|bytes| crate::wire::read(&bytes)))
}

fn add(sum: &mut SoftwareCounts, one: &SoftwareCounts) {
    combine(sum, one, |sum, one| sum + one);
}

/// A thread can exit between two readings of its process: never below 0.
fn subtract(sum: &mut SoftwareCounts, base: &SoftwareCounts) {
    combine(sum, base, u64::saturating_sub);
}

fn combine(sum: &mut SoftwareCounts, other: &SoftwareCounts, with: impl Fn(u64, u64) -> u64) {
    sum.page_faults = with(sum.page_faults, other.page_faults);
    sum.major_faults = with(sum.major_faults, other.major_faults);
    sum.context_switches = with(sum.context_switches, other.context_switches);
    sum.cpu_migrations = with(sum.cpu_migrations, other.cpu_migrations);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelSupport, SessionConfig};

    fn session(test: &str, counters: CounterSet) -> Option<BpfSession> {
        let support = KernelSupport::probe();
        if !support.permitted || !support.missing().is_empty() {
            eprintln!("skipped {test}: loading BPF programs is not possible here ({support:?})");
            return None;
        }
        let config = SessionConfig {
            follow_children: true,
            ring_bytes: 1 << 20,
            stack_depth: 0,
            counters,
            samples: false,
        };
        Some(BpfSession::open(config, &support).unwrap())
    }

    /// The programs pass the verifier with everything enabled, and their probes fire.
    #[test]
    fn all_counters_load() {
        let Some(mut session) =
            session("all_counters_load", CounterSet::new(Counter::ALL.iter().copied()))
        else {
            return;
        };
        let (calibration, probes) = session.calibrate(None).unwrap();
        crate::detach(probes);
        assert!(calibration.collect.unwrap().cost(None).least_ns > 0.0);
    }

    #[test]
    fn a_running_process_is_counted_from_now_on() {
        let set = CounterSet::new([Counter::PageFaults]);
        let Some(session) = session("a_running_process_is_counted_from_now_on", set) else {
            return;
        };
        session.count_process(std::process::id(), 5).unwrap();
        const PAGES: usize = 1000;
        let mut memory = vec![0u8; PAGES * 4096];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&memory);
        let found = session.living_processes(9).unwrap();
        let this_process = found.iter().find(|one| one.pid == std::process::id());
        let this_process = this_process.unwrap();
        assert_eq!((this_process.since_ns, this_process.at_ns), (5, 9));
        let faults = this_process.counters.get(Counter::PageFaults).unwrap();
        assert!(faults > 0, "{this_process:?}");
        assert!(this_process.counters.get(Counter::TaskClock).is_some());
        assert!(this_process.counters.get(Counter::Cycles).is_none());
        assert_eq!(session.ended_process(1, 9).unwrap(), None);
    }

    #[test]
    fn without_counters_nothing_is_counted() {
        let Some(session) = session("without_counters_nothing_is_counted", CounterSet::default())
        else {
            return;
        };
        session.count_process(std::process::id(), 5).unwrap();
        assert_eq!(session.living_processes(9).unwrap(), []);
    }
}
