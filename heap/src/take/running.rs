//! The order: a first pass while the program runs, the stop, the copy, the graph.
//!
//! `running/stopped.rs` has what happens while the program is stopped, `running/estimate.rs` how long that
//! will take.

mod estimate;
mod stopped;

use crate::take::collector;
use crate::take::image::{BLOCK, Image};
use crate::take::layout::Layout;
use crate::take::limits::{Exceeded, Limits};
use crate::take::regions::Regions;
use crate::take::roots::add_roots;
use crate::take::stop::{HeapCallback, HeapMoment, refusal};
use crate::take::walk::Walk;
use crate::take::watchdog::{StopPurpose, Watchdog};
use crate::{HeapError, HeapGraph, HeapHeader};
use gctrace_cpython::{FoundInterpreter, Memory as _, interpreters};
use gctrace_probes::{ProcessMemory, Resolution, ResolveOptions, maps, proc_status, resolve};
use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};
use std::sync::Arc;
use std::time::SystemTime;
use stopped::{COPY_LIMIT, StoppedHeap};

/// How often the stop is repeated because memory was needed that the first pass had not seen. One
/// block is enough of a reason: it may be the table of the list that grows.
const COMPLETIONS: u32 = 2;
/// What to take.
#[derive(Clone, Debug, Default)]
pub struct HeapOptions {
    /// How the interpreter's file is examined.
    pub resolve: ResolveOptions,
    /// Id of the interpreter; 0 is the main one.
    pub interpreter: i64,
}

/// The heap of a running program, after a first pass.
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
    state: Option<FoundInterpreter>,
    watchdog: Arc<Watchdog>,
    /// As of the last copy.
    copied_collections: Option<u64>,
}

impl RunningHeap {
    /// Finds the interpreter of a process and reads its heap once while it runs, to know the memory to copy. The
    /// program is not stopped.
    ///
    /// # Errors
    /// There is no such process, it may not be read, or objects of its interpreter cannot be read.
    pub fn open(pid: u32, options: HeapOptions) -> Result<Self, HeapError> {
        let watchdog = Watchdog::start(StopPurpose::Heap)
            .map_err(|source| HeapError::Watchdog { pid, source })?;
        let (found, runtime) = find(pid, &options.resolve)?;
        if found.free_threaded {
            let version = found.version.to_string();
            return Err(HeapError::FreeThreaded { pid, version });
        }
        let memory = ProcessMemory::open(pid)?;
        let mut image = image(pid)?;
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
            watchdog: Arc::new(watchdog),
            copied_collections: None,
        };
        heap.read_through()?;
        Ok(heap)
    }

    /// Reads the heap again while the program runs: the memory to copy has changed.
    ///
    /// # Errors
    /// The process is gone, or its interpreter.
    pub fn update(&mut self) -> Result<(), HeapError> {
        self.image = image(self.pid)?;
        self.read_through()
    }

    /// Number of full collections that the interpreter has made, `gc.get_stats()[2]["collections"]`;
    /// `None` if it cannot be read: the program has ended, or executes another one.
    #[must_use]
    pub fn full_collections(&self) -> Option<u64> {
        collector::full_collections(&mut &self.memory, &self.layout, self.state.as_ref()?)
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

    /// Version of its interpreter.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    fn state(&mut self) -> Result<(FoundInterpreter, Vec<i64>), HeapError> {
        let pid = self.pid;
        let all = interpreters(&mut self.image, &self.layout.collector, self.runtime);
        let known: Vec<i64> = all.iter().map(|one| one.id).collect();
        let wanted = self.options.interpreter;
        match all.into_iter().find(|one| one.id == wanted) {
            Some(state) => Ok((state, known)),
            None if known.is_empty() => Err(HeapError::NoInterpreter { pid }),
            None => Err(HeapError::NoSuchInterpreter { pid, interpreter: wanted, known }),
        }
    }

    /// Reads all data for the graph. The data may be inconsistent.
    fn read_through(&mut self) -> Result<(), HeapError> {
        let (state, _) = self.state()?;
        self.state = Some(state);
        let tracked = collector::tracked_roughly(&mut self.image, &self.layout, &state);
        let mut walk = Walk::new(&mut self.image, &self.layout, self.pid);
        walk.visit_all(tracked);
        let _notes = add_roots(&mut walk, &state);
        let exceeded = walk.exceeded();
        self.within_limits(exceeded)
    }

    /// # Errors
    /// A limit was reached.
    fn within_limits(&self, exceeded: Option<Exceeded>) -> Result<(), HeapError> {
        let pid = self.pid;
        match exceeded {
            None => Ok(()),
            Some(Exceeded::Copied(limit)) => Err(HeapError::TooLarge { pid, limit }),
            Some(Exceeded::Read) => Err(HeapError::Implausible { pid }),
            Some(Exceeded::Memory) => Err(HeapError::NoMemory { pid }),
            Some(Exceeded::Time) => {
                Err(HeapError::TooManyObjects { pid, limit_ms: COPY_LIMIT.as_millis() })
            }
        }
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
        if self.image.blocks() == 0 {
            self.update()?;
        }
        let mut stops = 0;
        loop {
            let Some(mut stopped) = self.stop_and_copy(moment)? else {
                return Ok(None);
            };
            stops += 1;
            self.image.close();
            let mut walk = Walk::new(&mut self.image, &self.layout, self.pid);
            walk.visit_all(std::mem::take(&mut stopped.tracked));
            let mut notes = add_roots(&mut walk, &stopped.state);
            let exceeded = walk.exceeded();
            let builder = walk.builder;
            self.within_limits(exceeded)?;
            let missing = self.image.missing();
            let may_repeat = matches!(moment, HeapMoment::BetweenCollections);
            if missing > 0 && stops <= COMPLETIONS && may_repeat {
                self.image.reopen(self.pid, Regions::of(self.pid)?, None);
                continue;
            }
            // Makes room for the graph.
            self.image.clear();
            let mut graph = builder.finish();
            self.notes(&mut notes, &stopped, missing, stops);
            notes.extend(outside_of_objects(self.pid, &graph));
            graph.header = self.header(&stopped, notes);
            return Ok(Some(graph));
        }
    }

    fn header(&self, stopped: &StoppedHeap, notes: Vec<String>) -> HeapHeader {
        let since_1970 = stopped.taken.duration_since(SystemTime::UNIX_EPOCH);
        HeapHeader {
            pid: self.pid,
            command: proc_status::last_command_line(self.pid),
            version: self.version.clone(),
            at_ns: stopped.at_ns,
            taken_s: since_1970.map_or(0, |time| time.as_secs()),
            in_process: false,
            stopped_ns: u64::try_from(stopped.stopped.as_nanos()).ok(),
            notes,
        }
    }

    fn notes(&self, notes: &mut Vec<String>, stopped: &StoppedHeap, missing: usize, stops: u32) {
        let others = stopped.interpreters.iter().skip(1).count();
        if others > 0 {
            notes.push(format!(
                "Only interpreter {} is in this heap; the process has {others} more",
                stopped.state.id
            ));
        }
        if stopped.is_finalizing {
            notes.push("The interpreter was being finalized".to_owned());
        }
        if missing > 0 {
            notes.push(format!(
                "{missing} blocks of 64 KiB were needed and not copied: tables that were allocated during the capture"
            ));
        }
        if stops > 1 {
            notes.push(format!(
                "The program was stopped {stops} times, as it allocated much memory meanwhile; the length is the last stop's"
            ));
        }
    }
}

/// A note if most of the memory that the process itself wrote belongs to no object that is known: then no
/// object's bytes show what holds it.
fn outside_of_objects(pid: u32, graph: &HeapGraph) -> Option<String> {
    /// An interpreter has some, and PyTorch's libraries 200 MiB, in bytes.
    const USUAL: u64 = 512 << 20;
    let written = anonymous_bytes(pid)?;
    let known = gctrace_units::sum(graph.nodes.iter().filter_map(|node| node.bytes));
    (written / 2 > known && written - known > USUAL).then(|| {
        format!(
            "The process has {} MiB of memory of its own, {} MiB of them in these objects: data of tensors and \
             numpy's arrays, and other memory of C code, count for no object, and leaks of these are not found \
             by size but by number, with gctrace heap diff",
            written >> 20,
            known >> 20
        )
    })
}

/// Resident memory of a process that is of no file, in bytes (statm of proc_pid_statm(5): resident less
/// shared).
fn anonymous_bytes(pid: u32) -> Option<u64> {
    let text = proc_status::read(pid, "statm").ok()?;
    let text = str::from_utf8(&text).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    resident.checked_sub(shared)?.checked_mul(u64::try_from(page).ok()?)
}

/// A new image of a process.
///
/// # Errors
/// It is gone, or may not be read.
pub(super) fn image(pid: u32) -> Result<Image, HeapError> {
    Ok(Image::of_process(pid, Regions::of(pid)?, Limits::of_process(pid, BLOCK)))
}

/// The interpreter of a process, and the address of its `_PyRuntime`.
///
/// # Errors
/// It is gone, may not be read, or has none.
pub(super) fn find(pid: u32, options: &ResolveOptions) -> Result<(Resolution, u64), HeapError> {
    for candidate in maps::candidates(pid)? {
        if let Some(found) = resolve(&candidate.openable, options)? {
            let base = candidate.lowest.start.wrapping_sub(found.lowest_address);
            let runtime = base.wrapping_add(found.runtime);
            return Ok((found, runtime));
        }
    }
    Err(HeapError::NotPython { pid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;
    use test_kit::interpreters;

    /// A program that waits, and its heap.
    fn waiting(test: &str) -> (Child, RunningHeap) {
        let python = interpreters::interpreters(test);
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
        let heap = RunningHeap::open(child.id(), HeapOptions::default()).expect("a heap");
        (child, heap)
    }

    /// Past the deadline nothing more is read, and what else can be done is named; the next stop has a
    /// deadline of its own.
    #[test]
    fn a_late_copy_is_given_up() {
        let (mut child, mut heap) = waiting("a_late_copy_is_given_up");
        let late = Instant::now().checked_sub(COPY_LIMIT).expect("up for longer");
        let _nothing = heap.copy(late, &HeapMoment::BetweenCollections);
        let refused = heap.within_limits(heap.image.exceeded()).expect_err("too late");
        assert!(refused.to_string().contains("gctrace heap --at-full"), "{refused}");
        let taken = heap.take().expect("a heap");
        assert!(taken.nodes.len() > 1000);
        let _ended = child.kill();
        let _ended = child.wait();
    }

    /// Tables are read within bounds or not at all: sizes that a program has overwritten are in no sum.
    #[test]
    fn tables_of_any_size_are_bounded() {
        use gctrace_cpython::Keys;
        let (mut child, heap) = waiting("tables_of_any_size_are_bounded");
        let _ended = child.kill();
        let _ended = child.wait();
        let sizes = [1, 0x0103, 1 << 20, u64::MAX / 8, u64::MAX];
        let mut read = 0;
        for choice in 0..5_usize.pow(5) {
            let size = |word: u32| sizes[choice / 5_usize.pow(word) % 5];
            let bytes: Vec<u8> = (0..5).flat_map(|word| size(word).to_le_bytes()).collect();
            let mut image = Image::of_bytes(BLOCK, &bytes);
            if let Some(keys) = Keys::read(&mut image, heap.layout.minor, BLOCK) {
                assert!(keys.count <= 1 << 28 && keys.capacity <= 1 << 28, "{keys:?}");
                read += 1;
            }
        }
        assert!(read > 0);
    }

    /// A program's memory may contain anything: the walk ends, and does not panic.
    #[test]
    fn damaged_memory_is_no_panic() {
        let (mut child, mut heap) = waiting("damaged_memory_is_no_panic");
        let stopped = heap.stop_and_copy(&HeapMoment::BetweenCollections);
        let stopped = stopped.expect("stopped").expect("between collections");
        heap.image.close();
        let _ended = child.kill();
        let _ended = child.wait();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut nodes = Vec::new();
        for round in 0..8 {
            for _ in 0..round * 500 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                heap.image.damage(random);
            }
            let mut walk = Walk::new(&mut heap.image, &heap.layout, 1);
            let tracked = collector::tracked_roughly(walk.image, &heap.layout, &stopped.state);
            walk.visit_all(tracked);
            let _notes = add_roots(&mut walk, &stopped.state);
            nodes.push(walk.builder.nodes.len());
            let mut walk = Walk::new(&mut heap.image, &heap.layout, 1);
            walk.visit_all(stopped.tracked.clone());
            let _notes = add_roots(&mut walk, &stopped.state);
        }
        assert!(nodes.first().is_some_and(|nodes| *nodes > 1000), "{nodes:?}");
    }
}
