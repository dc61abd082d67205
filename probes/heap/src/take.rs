//! The order: a first pass while the program runs, the stop, the copy, the graph.

use crate::collector::{InterpreterState, Untracked};
use crate::image::{BLOCK, Image};
use crate::layout::Layout;
use crate::moment::{HeapCallback, HeapMoment, NOT_THERE};
use crate::regions::Regions;
use crate::roots::add_roots;
use crate::stop::{StoppedThreads, refusal, unreadable};
use crate::tables::copy_tables;
use crate::walk::Walk;
use crate::watchdog::Watchdog;
use crate::{HeapError, collector};
use gctrace_analysis::heap::{HeapGraph, HeapHeader, HeapPlace};
use gctrace_probes::{
    Memory as _, ProcessMemory, Resolution, ResolveOptions, maps, proc_status, resolve,
};
use nix::errno::Errno;
use std::time::{Duration, Instant, SystemTime};

/// How often a program that turns out to be collecting is stopped, each time for about as long as it
/// takes to stop its threads.
const TRIES: u32 = 100;
/// How long the end of a collection is waited for before each stop, and the time between two polls.
const COLLECTION_LIMIT: Duration = Duration::from_secs(2);
const COLLECTION_POLL: Duration = Duration::from_micros(200);
/// How often the stop is repeated because memory was needed that the first pass had not seen. One
/// block is enough of a reason: it may be the table of the list that grows.
const COMPLETIONS: u32 = 2;
/// Bytes that may be copied of files that a process has mapped and not read.
const OF_FILES: u64 = 16 << 20;
/// How long threads may take to stop.
const STOP_LIMIT: Duration = Duration::from_millis(500);
/// How long the program may be stopped; the watchdog's limit is later.
const COPY_LIMIT: Duration = Duration::from_millis(1500);
/// Bytes copied in a second, for the estimate: 150 MB in 0.1 s.
const RATE: f64 = 1.5e9;
/// What stopping itself takes.
const STOP_COST: Duration = Duration::from_millis(5);

/// What to take.
#[derive(Clone, Debug, Default)]
pub struct HeapOptions {
    /// How the interpreter's file is examined.
    pub resolve: ResolveOptions,
    /// Id of the interpreter; 0 is the main one.
    pub interpreter: i64,
}

/// The heap of a running program, of which a first pass has been made.
#[derive(Debug)]
pub struct RunningHeap {
    pid: u32,
    options: HeapOptions,
    version: String,
    layout: Layout,
    runtime: u64,
    image: Image,
    /// The program that ran when it was opened: after an exec nothing can be read.
    memory: ProcessMemory,
    /// The interpreter, as the last pass found it.
    state: Option<InterpreterState>,
    watchdog: Watchdog,
    /// As of the last copy.
    copied_collections: Option<u64>,
}

/// What was found while the program was stopped.
struct StoppedHeap {
    tracked: Vec<(u64, HeapPlace)>,
    state: InterpreterState,
    /// Ids of all interpreters.
    interpreters: Vec<i64>,
    is_finalizing: bool,
    at_ns: u64,
    taken: SystemTime,
    stopped: Duration,
    /// Bytes that were copied before the stop only.
    stale: u64,
}

impl RunningHeap {
    /// Finds the interpreter of a process and reads its heap once while it runs, to know which
    /// memory to copy. The program is not stopped.
    ///
    /// # Errors
    /// There is no such process, it may not be read, or its interpreter is none whose objects can
    /// be read.
    pub fn open(pid: u32, options: HeapOptions) -> Result<Self, HeapError> {
        let watchdog = Watchdog::start().map_err(|source| HeapError::Watchdog { pid, source })?;
        let (found, runtime) = find(pid, &options.resolve)?;
        if found.free_threaded {
            let version = found.version.to_string();
            return Err(HeapError::FreeThreaded { pid, version });
        }
        let memory = ProcessMemory::open(pid)?;
        let mut image = Image::of_process(pid, regions(pid)?, most_bytes(pid));
        if image.word(runtime).is_none() {
            return Err(refusal(pid, Errno::EPERM));
        }
        let layout = Layout::of(&found, &mut image, runtime)
            .ok_or(HeapError::Version { pid, version: found.version.to_string() })?;
        let mut heap = Self {
            pid,
            options,
            version: found.version.to_string(),
            layout,
            runtime,
            image,
            memory,
            state: None,
            watchdog,
            copied_collections: None,
        };
        heap.read_through()?;
        Ok(heap)
    }

    /// Reads the heap again while the program runs: what has to be copied has changed.
    ///
    /// # Errors
    /// The process is gone, or its interpreter.
    pub fn update(&mut self) -> Result<(), HeapError> {
        self.image = Image::of_process(self.pid, regions(self.pid)?, most_bytes(self.pid));
        self.read_through()
    }

    /// Number of full collections that the interpreter has made, `gc.get_stats()[2]["collections"]`;
    /// `None` if it cannot be read: the program has ended, or executes another one.
    #[must_use]
    pub fn full_collections(&self) -> Option<u64> {
        let word = |address| {
            let mut bytes = [0; 8];
            self.memory.read(address, &mut bytes).ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        collector::full_collections(word, &self.layout, self.state.as_ref()?)
    }

    /// As [`RunningHeap::full_collections`], when the heap was last copied.
    #[must_use]
    pub fn copied_collections(&self) -> Option<u64> {
        self.copied_collections
    }

    /// Bytes that will be copied while the program is stopped; a few more if it allocates.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// How long the program will be stopped, predicted from [`RunningHeap::bytes`].
    #[must_use]
    pub fn expected_stop(&self) -> Duration {
        STOP_COST + Duration::from_secs_f64(self.bytes() as f64 / RATE)
    }

    /// Version of its interpreter.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    fn state(&mut self) -> Result<(InterpreterState, Vec<i64>), HeapError> {
        let pid = self.pid;
        let all = collector::interpreters(&mut self.image, &self.layout, self.runtime);
        let known: Vec<i64> = all.iter().map(|one| one.id).collect();
        let wanted = self.options.interpreter;
        match all.into_iter().find(|one| one.id == wanted) {
            Some(state) => Ok((state, known)),
            None if known.is_empty() => Err(HeapError::NoInterpreter { pid }),
            None => Err(HeapError::NoSuchInterpreter { pid, interpreter: wanted, known }),
        }
    }

    /// Reads everything that the graph will need. What it reads may be inconsistent.
    fn read_through(&mut self) -> Result<(), HeapError> {
        let (state, _) = self.state()?;
        self.state = Some(state);
        let tracked = collector::tracked_roughly(&mut self.image, &self.layout, &state);
        let mut walk = Walk::new(&mut self.image, &self.layout, self.pid);
        walk.visit_all(&tracked);
        let _notes = add_roots(&mut walk, &state);
        self.within_limit()
    }

    /// # Errors
    /// The objects led to more memory than may be copied.
    fn within_limit(&self) -> Result<(), HeapError> {
        let pid = self.pid;
        self.image.exceeded().map_or(Ok(()), |limit| Err(HeapError::TooLarge { pid, limit }))
    }

    /// Stops the program, copies its heap, lets it go, and reads the copy.
    ///
    /// # Errors
    /// The process is gone, may not be traced, or was always collecting. It runs again in any case.
    pub fn take(&mut self) -> Result<HeapGraph, HeapError> {
        let taken = self.take_at(&HeapMoment::BetweenCollections)?;
        taken.ok_or(HeapError::Gone { pid: self.pid })
    }

    /// The same while the program is inside a callback of `gc.callbacks` at the end of a collection,
    /// where its lists are whole although it is `collecting`. `None`: it was not there.
    ///
    /// # Errors
    /// As of [`RunningHeap::take`].
    pub fn take_in_callback(
        &mut self,
        callback: &dyn HeapCallback,
    ) -> Result<Option<HeapGraph>, HeapError> {
        self.take_at(&HeapMoment::InCallback(callback))
    }

    fn take_at(&mut self, moment: &HeapMoment<'_>) -> Result<Option<HeapGraph>, HeapError> {
        let mut stops = 0;
        loop {
            let Some(stopped) = self.stop_and_copy(moment)? else {
                return Ok(None);
            };
            stops += 1;
            self.within_limit()?;
            self.image.close();
            let mut walk = Walk::new(&mut self.image, &self.layout, self.pid);
            walk.visit_all(&stopped.tracked);
            let mut notes = add_roots(&mut walk, &stopped.state);
            let mut graph = walk.builder.graph;
            let missing = self.image.missing();
            let may_repeat = matches!(moment, HeapMoment::BetweenCollections);
            if missing > 0 && stops <= COMPLETIONS && may_repeat {
                self.image.reopen(self.pid, regions(self.pid)?);
                continue;
            }
            self.notes(&mut notes, &stopped, missing, stops);
            graph.header = self.header(&stopped, notes);
            return Ok(Some(graph));
        }
    }

    fn header(&self, stopped: &StoppedHeap, notes: Vec<String>) -> HeapHeader {
        let since_1970 = stopped.taken.duration_since(SystemTime::UNIX_EPOCH);
        HeapHeader {
            pid: self.pid,
            command: proc_status::command_line(self.pid).unwrap_or_default(),
            version: self.version.clone(),
            at_ns: stopped.at_ns,
            taken_s: since_1970.map_or(0, |time| time.as_secs()),
            in_process: false,
            stopped_ns: u64::try_from(stopped.stopped.as_nanos()).ok(),
            notes,
        }
    }

    fn notes(&self, notes: &mut Vec<String>, stopped: &StoppedHeap, missing: usize, stops: u32) {
        let others = stopped.interpreters.len().saturating_sub(1);
        if others > 0 {
            notes.push(format!(
                "Only interpreter {} is in this heap; the process has {others} more",
                stopped.state.id
            ));
        }
        if stopped.is_finalizing {
            notes.push("The interpreter was being finalized".to_owned());
        }
        if stopped.stale > 0 {
            notes.push(format!(
                "Copying took longer than the program may be stopped: {} MiB were copied while it ran, and may not fit the rest",
                stopped.stale >> 20
            ));
        }
        if missing > 0 {
            notes.push(format!(
                "{missing} blocks of 64 KiB were needed and not copied: tables that were allocated during the capture"
            ));
        }
        if stops > 1 {
            notes.push(format!(
                "The program was stopped {stops} times, as it allocated much memory meanwhile; the length is that of the last"
            ));
        }
    }

    /// Stops the program until it is at the right moment, and copies.
    fn stop_and_copy(&mut self, moment: &HeapMoment<'_>) -> Result<Option<StoppedHeap>, HeapError> {
        let mut why = "";
        for _ in 0..TRIES {
            let start = Instant::now();
            while moment.is_disturbed(|| self.is_collecting()) && start.elapsed() < COLLECTION_LIMIT
            {
                std::thread::sleep(COLLECTION_POLL);
            }
            match self.stop_once(moment)? {
                Ok(stopped) => {
                    if let HeapMoment::InCallback(callback) = moment {
                        callback.leave();
                    }
                    return Ok(Some(stopped));
                }
                Err(NOT_THERE) => return Ok(None),
                Err(obstacle) => why = obstacle,
            }
        }
        Err(HeapError::Busy { pid: self.pid, tries: TRIES, why })
    }

    /// Whether a collection is running now.
    fn is_collecting(&self) -> bool {
        let collecting = self.layout.collector.collecting;
        self.state.is_some_and(|state| {
            let mut bytes = [0; 4];
            let address = state.collector.wrapping_add(collecting.into());
            self.memory.read(address, &mut bytes).is_ok() && bytes != [0; 4]
        })
    }

    /// One stop; what was in the way, if anything. In a thread of its own, whose end detaches what
    /// could not be detached otherwise.
    fn stop_once(
        &mut self,
        moment: &HeapMoment<'_>,
    ) -> Result<Result<StoppedHeap, &'static str>, HeapError> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .spawn_scoped(scope, || self.stop_in_this_thread(moment))
                .map_err(|source| HeapError::Thread { source })?;
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn stop_in_this_thread(
        &mut self,
        moment: &HeapMoment<'_>,
    ) -> Result<Result<StoppedHeap, &'static str>, HeapError> {
        let pid = self.pid;
        let watchdog = |source| HeapError::Watchdog { pid, source };
        self.watchdog.arm().map_err(watchdog)?;
        let start = Instant::now();
        let threads = StoppedThreads::stop(pid, start + STOP_LIMIT);
        let result = match &threads {
            Ok(_) => self.copy(start, moment),
            Err(_) => Ok(Err("did not stop")),
        };
        let failed = threads.map(drop);
        let stopped = start.elapsed();
        self.watchdog.disarm().map_err(watchdog)?;
        failed?;
        result.map(|result| result.map(|heap| StoppedHeap { stopped, ..heap }))
    }

    /// While the program is stopped.
    fn copy(
        &mut self,
        start: Instant,
        moment: &HeapMoment<'_>,
    ) -> Result<Result<StoppedHeap, &'static str>, HeapError> {
        self.image.reopen(self.pid, regions(self.pid)?);
        let at_ns = monotonic_ns();
        let taken = SystemTime::now();
        if let HeapMoment::InCallback(callback) = moment
            && !callback.is_there()
        {
            return Ok(Err(NOT_THERE));
        }
        if moment.is_disturbed(|| self.is_collecting()) {
            return Ok(Err("was within a collection"));
        }
        let known = self.image.blocks();
        let stale = self.image.refresh(start + COPY_LIMIT);
        let (state, interpreters) = self.state()?;
        let image = &mut self.image;
        if moment.is_disturbed(|| collector::is_collecting(image, &self.layout, &state)) {
            return Ok(Err("was within a collection"));
        }
        let deadline = start + COPY_LIMIT;
        let tracked = match collector::tracked(&mut self.image, &self.layout, &state, deadline) {
            Ok(tracked) => tracked,
            Err(Untracked::Broken) => return Ok(Err("changed its list of objects")),
            Err(Untracked::Late) => {
                let (pid, limit_ms) = (self.pid, COPY_LIMIT.as_millis());
                return Err(HeapError::TooManyObjects { pid, limit_ms });
            }
        };
        copy_tables(&mut self.image, &self.layout, &tracked, known, deadline);
        let word = |address| self.image.word(address);
        self.copied_collections = collector::full_collections(word, &self.layout, &state);
        let is_finalizing = collector::is_finalizing(&mut self.image, &self.layout, self.runtime);
        Ok(Ok(StoppedHeap {
            tracked,
            state,
            interpreters,
            is_finalizing,
            at_ns,
            taken,
            stopped: Duration::ZERO,
            stale,
        }))
    }
}

/// Most bytes of a process that are copied. A block is copied for something in it that the program has
/// written, so there are no more blocks than pages that are in memory or swapped out; some of files
/// may be neither. And half of what this machine has left. Memory that a process maps and never
/// writes takes nothing there, but would here.
fn most_bytes(pid: u32) -> u64 {
    let kib = |bytes: &[u8], name: &str| {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let status = proc_status::read(pid, "status").unwrap_or_default();
    let used: u64 = ["VmRSS:", "VmSwap:"].iter().filter_map(|name| kib(&status, name)).sum();
    let of_process = (used / 4 * BLOCK).saturating_add(OF_FILES);
    // A virtual file of some kB.
    let machine = std::fs::read("/proc/meminfo").unwrap_or_default();
    let left = kib(&machine, "MemAvailable:").map_or(u64::MAX, |kib| kib << 9);
    of_process.min(left)
}

fn regions(pid: u32) -> Result<Regions, HeapError> {
    Regions::of(pid).map_err(|error| unreadable(pid, error))
}

/// The interpreter of a process, and the address of its `_PyRuntime`.
fn find(pid: u32, options: &ResolveOptions) -> Result<(Resolution, u64), HeapError> {
    for candidate in maps::candidates(pid)? {
        if let Some(found) = resolve(&candidate.openable, options)? {
            let base = candidate.start.wrapping_sub(found.lowest_address);
            let runtime = base.wrapping_add(found.runtime);
            return Ok((found, runtime));
        }
    }
    Err(HeapError::NotPython { pid })
}

/// CLOCK_MONOTONIC.
fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let ns = |time: nix::sys::time::TimeSpec| {
        let seconds = u64::try_from(time.tv_sec()).ok()?.checked_mul(1_000_000_000)?;
        seconds.checked_add(u64::try_from(time.tv_nsec()).ok()?)
    };
    now.ok().and_then(ns).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::process::{Command, Stdio};
    use test_kit::interpreters;

    /// What is read from a program may be anything: the walk ends, and does not panic.
    #[test]
    fn damaged_memory_is_no_panic() {
        let python = interpreters::interpreters("damaged_memory_is_no_panic");
        let python = python.iter().find(|python| !python.is("free-threaded"));
        let python = python.expect("an interpreter");
        let mut child = Command::new(&python.path)
            .args(["-S", "-c", "import sys; print(1, flush=True); sys.stdin.read()"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python");
        let mut line = [0];
        let mut output = child.stdout.take().expect("piped");
        io::Read::read_exact(&mut output, &mut line).expect("started");
        let mut heap = RunningHeap::open(child.id(), HeapOptions::default()).expect("a heap");
        let stopped = heap.stop_and_copy(&HeapMoment::BetweenCollections);
        let stopped = stopped.expect("stopped").expect("between collections");
        heap.image.close();
        let _ended = child.kill();
        let _ended = child.wait();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut nodes = Vec::new();
        for round in 0..16 {
            for _ in 0..round * 250 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                heap.image.damage(random);
            }
            let mut walk = Walk::new(&mut heap.image, &heap.layout, 1);
            let tracked = collector::tracked_roughly(walk.image, &heap.layout, &stopped.state);
            walk.visit_all(&tracked);
            let _notes = add_roots(&mut walk, &stopped.state);
            nodes.push(walk.builder.graph.nodes.len());
            let mut walk = Walk::new(&mut heap.image, &heap.layout, 1);
            walk.visit_all(&stopped.tracked);
            let _notes = add_roots(&mut walk, &stopped.state);
        }
        assert!(nodes.first().is_some_and(|nodes| *nodes > 1000), "{nodes:?}");
    }
}
