//! Measures the cost of a probe on this machine: the real programs, on a function of our own.
//!
//! The function increments a counter in a block of memory laid out like a gc state, with a chain of
//! frames as deep as is recorded, so the program takes the same path through every read and the
//! ring buffer as in a traced interpreter of 3.12 or later.

use crate::arch::calibration_target;
use crate::attach::PlannedPoint;
use crate::error::Error;
use crate::session::{Attachment, BpfSession};
use crate::support::AttachMethod;
use crate::wire::{FrameWire, InstructionKind, LayoutWire, NO_OFFSET};
use gctrace_abi::{ArgumentRegister, CollectorArguments, ProbePointKind};
use gctrace_event::HitCost;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the probes of each kind take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Entry and return of the collector together, with all reads in between; the stack is at least
    /// as deep as `--stack-depth`.
    pub collect: ProbeTimes,
    /// Entry and return of an explicit call (`gc.collect()`, `PyGC_Collect`) together.
    pub explicit: ProbeTimes,
    /// An entry probe alone, as on the stop-the-world markers of free-threaded builds.
    pub entry: ProbeTimes,
    /// The probes of a collection or an explicit call in a process that is not recorded.
    pub foreign: ProbeTimes,
}

/// What a hit takes on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeTimes {
    warm: ProbeTime,
    cold: ProbeTime,
}

/// Nanoseconds per hit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProbeTime {
    all_ns: f64,
    /// In the BPF programs. The rest is the kernel's trap, and what the program loses of its caches.
    inside_ns: f64,
}

impl ProbeTime {
    fn outside_ns(self) -> f64 {
        (self.all_ns - self.inside_ns).max(0.0)
    }
}

impl ProbeTimes {
    pub(crate) fn new(warm_ns: f64, cold_ns: f64) -> Self {
        let time = |all_ns| ProbeTime { all_ns, inside_ns: 0.0 };
        Self { warm: time(warm_ns), cold: time(cold_ns.max(warm_ns)) }
    }

    /// What a hit costs whose programs took `inside_ns` as the traced program ran. That is as much of
    /// the way from warm to cold caches as the rest is, which cannot be timed there.
    #[must_use]
    pub fn cost(&self, inside_ns: Option<f64>) -> HitCost {
        let (warm, cold) = (self.warm, self.cold);
        let Some(inside_ns) = inside_ns else {
            return HitCost::between(warm.all_ns, cold.all_ns);
        };
        let least_ns = warm.outside_ns();
        let most_ns = cold.outside_ns().max(least_ns);
        let way = (inside_ns - warm.inside_ns) / (cold.inside_ns - warm.inside_ns).max(1.0);
        let likely_ns = least_ns + (most_ns - least_ns) * way.clamp(0.0, 1.0);
        HitCost {
            least_ns: (likely_ns + inside_ns) / ERROR,
            likely_ns: likely_ns + inside_ns,
            most_ns: likely_ns * ERROR + inside_ns,
        }
    }
}

/// By how much the part of a hit that is not timed may be more than what its own part tells, and a hit less than
/// both: a program that had cold caches anyway loses nothing by them (docs/evidence.md).
const ERROR: f64 = 2.0;

/// Calls per round, and number of rounds: about 5 ms in all at 2 us per hit.
const CALLS: u32 = 200;
const ROUNDS: u32 = 5;

/// Calls with cold caches in a round, each after writing that much memory: more than the second cache
/// of a CPU has, less than the third. Some 10 ms for each kind.
const COLD_CALLS: u32 = 12;
const COLD_BYTES: usize = 4 << 20;
const CACHE_LINE: usize = 64;

/// Words of the fake interpreter, before its frames; every offset below is inside.
const WORDS: usize = 64;
/// Words of a fake frame: its code object, the next frame, its instruction, and the local variables
/// of a small function.
const FRAME_WORDS: usize = 16;
/// Word of the thread state that points to the innermost frame.
const FRAME_WORD: usize = 9;
/// Word that the function increments: the collections counter of the youngest generation.
const COUNTER_WORD: usize = 16;

/// The exclusive right to calibrate: every gctrace probes the same function of the same file, and
/// with another's probes in place a call without ours is as slow as one with them. Held until the
/// probes are detached.
#[derive(Debug)]
pub struct CalibrationLock {
    _lock: Flock<fs::File>,
}

/// Interval between attempts, and maximum wait for a turn: one takes about 100 ms.
const TURN_GAP: Duration = Duration::from_millis(10);
const TURN_PATIENCE: Duration = Duration::from_secs(1);

impl CalibrationLock {
    /// Waits up to a second; `None`: others were calibrating all the time.
    #[must_use]
    pub fn wait() -> Option<Self> {
        let start = Instant::now();
        let mut file = fs::File::open("/proc/self/exe").ok()?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Some(Self { _lock: lock }),
                Err((back, Errno::EWOULDBLOCK)) if start.elapsed() < TURN_PATIENCE => file = back,
                Err(_) => return None,
            }
            std::thread::sleep(TURN_GAP);
        }
    }
}

impl BpfSession {
    /// Measures the cost of the probes on this machine. Its events are discarded, and so is
    /// anything else still in the rings: call it last. Returns the probes, to be detached together
    /// with others ([`crate::detach`]). Call it while holding a [`CalibrationLock`].
    ///
    /// # Errors
    /// If our own executable cannot be read or probed.
    pub fn calibrate(&mut self) -> Result<(Calibration, Vec<Attachment>), Error> {
        let pid = std::process::id();
        let offset = own_file_offset()?;
        self.follow(pid)?;
        let layout = self.add_wire_layout(&make_believe_layout())?;
        self.time_every_hit(true);
        let result = self.measure_all(offset, layout);
        self.time_every_hit(false);
        self.unfollow(pid);
        result
    }

    fn measure_all(
        &mut self,
        offset: u64,
        layout: u32,
    ) -> Result<(Calibration, Vec<Attachment>), Error> {
        let without = (TargetCalls::warm().time(|| Ok(()))?, TargetCalls::cold().time(|| Ok(()))?);
        let is_session = self.attach_kind() == AttachMethod::Session;
        let mut point = PlannedPoint {
            kind: ProbePointKind::StartTheWorld,
            layout: Some(layout),
            arguments: CollectorArguments {
                tstate: Some(ArgumentRegister::Rdi),
                generation: Some(ArgumentRegister::Rsi),
                ..CollectorArguments::default()
            },
            runtime_delta: 0,
            entry: Some(offset),
            // In a session the kind decides whether the return is probed.
            on_return: is_session.then_some(offset),
            semaphore: None,
        };
        let path = Path::new("/proc/self/exe");
        let first = self.next_point();
        let mut probes = vec![self.attach(path, std::slice::from_ref(&point))?];
        let entry = self.time(ProbePointKind::StartTheWorld, without)?;
        if !is_session {
            point.entry = None;
            point.on_return = Some(offset);
            probes.push(self.attach(path, std::slice::from_ref(&point))?);
        }
        let mut time_as = |kind| {
            point.kind = kind;
            for index in first..self.next_point() {
                self.set_point(index, &point, None)?;
            }
            self.time(kind, without)
        };
        let explicit = time_as(ProbePointKind::GcCollectBuiltin)?;
        let collect = time_as(ProbePointKind::Collect)?;
        self.unfollow(std::process::id());
        let foreign = self.time(ProbePointKind::Collect, without)?;
        Ok((Calibration { collect, explicit, entry, foreign }, probes))
    }

    fn time_every_hit(&mut self, is_on: bool) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            bss.time_every_hit = is_on;
        }
    }

    /// What the current probes take, of a kind; `without` them, calls take that time with warm and
    /// with cold caches.
    fn time(&mut self, kind: ProbePointKind, without: (f64, f64)) -> Result<ProbeTimes, Error> {
        let mut round = |calls: &mut TargetCalls, without_ns: f64| {
            let before = self.counters()?;
            let all_ns = (calls.round() - without_ns).max(0.0);
            let inside_ns = self.counters()?.since(&before).inside_ns(kind).unwrap_or(0.0);
            self.poll(Duration::ZERO)?;
            Ok::<_, Error>(ProbeTime { all_ns, inside_ns: inside_ns.min(all_ns) })
        };
        let [warm, cold] = [(TargetCalls::warm(), without.0), (TargetCalls::cold(), without.1)]
            .map(|(mut calls, without_ns)| {
                let rounds = (0..ROUNDS).map(|_| round(&mut calls, without_ns));
                let mut rounds = rounds.collect::<Result<Vec<_>, Error>>()?;
                rounds.sort_by(|one, other| one.all_ns.total_cmp(&other.all_ns));
                Ok::<_, Error>(rounds.swap_remove(calls.best()))
            });
        let (warm, mut cold) = (warm?, cold?);
        cold.all_ns = cold.all_ns.max(warm.all_ns);
        Ok(ProbeTimes { warm, cold })
    }
}

/// Calls of the function, with warm or cold caches.
pub(crate) struct TargetCalls {
    words: Vec<u64>,
    /// Written before each call; empty: caches stay warm.
    memory: Vec<u8>,
}

impl TargetCalls {
    pub(crate) fn warm() -> Self {
        Self { words: make_believe_process(), memory: Vec::new() }
    }

    pub(crate) fn cold() -> Self {
        Self { words: make_believe_process(), memory: vec![0; COLD_BYTES] }
    }

    /// The round that counts, of those sorted by time: with warm caches the least, to which nothing
    /// else was added; with cold ones the median, as they are more or less cold.
    fn best(&self) -> usize {
        if self.memory.is_empty() { 0 } else { ROUNDS as usize / 2 }
    }

    /// Mean time of the calls of a round, in ns.
    fn round(&mut self) -> f64 {
        let base = self.words.as_ptr();
        let counter = self.words.get_mut(COUNTER_WORD);
        let counter = counter.map_or(std::ptr::null_mut(), |word| &raw mut *word);
        let call = || calibration_target(base, 0, counter);
        if self.memory.is_empty() {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            return start.elapsed().as_nanos() as f64 / f64::from(CALLS);
        }
        let mut took = Duration::ZERO;
        for _ in 0..COLD_CALLS {
            for line in self.memory.iter_mut().step_by(CACHE_LINE) {
                *line = std::hint::black_box(line.wrapping_add(1));
            }
            let start = Instant::now();
            call();
            took += start.elapsed();
        }
        took.as_nanos() as f64 / f64::from(COLD_CALLS)
    }

    /// Time of a call; `between` runs after each round, outside the measured time.
    pub(crate) fn time(
        mut self,
        mut between: impl FnMut() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let mut rounds = [0.0; ROUNDS as usize];
        for round in &mut rounds {
            *round = self.round();
            between()?;
        }
        rounds.sort_by(f64::total_cmp);
        Ok(rounds.get(self.best()).copied().unwrap_or(f64::INFINITY))
    }
}

/// Memory with a thread state at word 0, which is its own interpreter (at word 2) and code object,
/// followed by as many frames as a stack can have.
fn make_believe_process() -> Vec<u64> {
    let frames = crate::MAX_STACK_DEPTH as usize;
    let mut words = vec![0u64; WORDS + frames * FRAME_WORDS];
    let base = words.as_ptr() as u64;
    let address = |word: usize| base + (word * size_of::<u64>()) as u64;
    let mut put = |word: usize, value: u64| {
        if let Some(place) = words.get_mut(word) {
            *place = value;
        }
    };
    put(2, base);
    let place = |frame: usize| WORDS + frame * FRAME_WORDS;
    put(FRAME_WORD, address(place(frames - 1)));
    for frame in 0..frames {
        let next = if frame == 0 { 0 } else { address(place(frame - 1)) };
        put(place(frame), base);
        put(place(frame) + 1, next);
        put(place(frame) + 2, base + 2 * frame as u64);
    }
    words
}

fn make_believe_layout() -> LayoutWire {
    LayoutWire {
        tstate_interpreter: 16,
        interpreters_head: 0,
        finalizing: 0,
        interpreter_id: 24,
        gc_in_runtime: NO_OFFSET,
        gc_in_interpreter: 64,
        collecting: 0,
        enabled: 4,
        thresholds: [8, 12, 16],
        check_pointer: NO_OFFSET,
        check_target: 0,
        stats: 64,
        stats_is_pointer: 0,
        long_lived_total: 24,
        heap_size: 24,
        collecting_guards: 0,
        stats_incomplete: 0,
        frames: make_believe_frames(),
        ..LayoutWire::default()
    }
}

/// As in 3.12: adjacent frames, each above the one that called it, with an instruction pointer.
fn make_believe_frames() -> FrameWire {
    let word = |word: usize| (word * size_of::<u64>()) as u32;
    FrameWire {
        tstate_frame: word(FRAME_WORD),
        frame_indirection: NO_OFFSET,
        frame_bytes: word(3),
        frame_code: 0,
        frame_back: word(1),
        frame_instruction: word(2),
        instruction_kind: InstructionKind::INSTRUCTION_POINTER.0,
        instruction_scale: 1,
        frame_owner: NO_OFFSET,
        frame_tlbc_index: NO_OFFSET,
        code_tlbc: NO_OFFSET,
        code_first_traceable: NO_OFFSET,
        runtime_tstate: NO_OFFSET,
        interpreter_gil: NO_OFFSET,
        ..FrameWire::default()
    }
}

/// File offset of the function in our own executable, through the mapping that contains it.
pub(crate) fn own_file_offset() -> Result<u64, Error> {
    let address = calibration_target as *const () as u64;
    let maps = fs::read_to_string("/proc/self/maps")
        .map_err(|error| Error::Calibration(error.to_string()))?;
    maps.lines().find_map(|line| offset_in(line, address)).ok_or_else(|| {
        Error::Calibration("the function is in no mapping of /proc/self/maps".to_owned())
    })
}

/// `start-end perms offset ...` (proc(5)): the file offset of an address in this mapping.
fn offset_in(line: &str, address: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    (start..end).contains(&address).then(|| address - start + offset)
}
