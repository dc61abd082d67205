//! Measures the cost of a probe on this machine: the real programs, on a function of our own.
//!
//! The function increments a counter in a block of memory laid out like a gc state, with a chain of
//! frames as deep as is recorded, so the program takes the same path through every read and the
//! ring buffer as in a traced interpreter of 3.12 or later.

use crate::arch::calibration_target;
use crate::attach::PlannedPoint;
use crate::error::Error;
use crate::session::{Attachment, BpfSession, ProgramCounts};
use crate::support::AttachMethod;
use crate::wire::{FrameWire, InstructionKind, LayoutWire, NO_OFFSET};
use gctrace_abi::{ArgumentRegister, CollectorArguments, ProbePointKind};
use gctrace_event::HitCost;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time of a hit, by kind of probe; `None`: that kind was not measured, as it was not hit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Entry and return of the collector together, with all reads in between; the stack is at least
    /// as deep as `--stack-depth`.
    pub collect: Option<ProbeTimes>,
    /// Entry and return of an explicit call (`gc.collect()`, `PyGC_Collect`) together.
    pub explicit: Option<ProbeTimes>,
    /// An entry probe alone, as on the stop-the-world markers of free-threaded builds.
    pub entry: ProbeTimes,
    /// The probes of a collection or an explicit call in a process that is not recorded.
    pub foreign: Option<ProbeTimes>,
}

/// Time of a hit on this machine.
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

    /// Cost of a hit. `inside_ns`: its time in the programs, during the traced run. The time outside the programs
    /// cannot be measured in that run: it is assumed to lie as far between warm and cold caches as `inside_ns` does.
    pub fn cost(&self, inside_ns: Option<f64>) -> HitCost {
        let (warm, cold) = (self.warm, self.cold);
        let Some(inside_ns) = inside_ns else { return HitCost::between(warm.all_ns, cold.all_ns) };
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
/// of a CPU has, less than the third. Some 5 ms for each kind.
const COLD_CALLS: u32 = 6;
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
    /// Measures the cost of the probes on this machine: of the kinds that were `hit`, or of all. Its
    /// events are discarded, and so is anything else still in the rings: call it last. Returns the
    /// probes, to be detached together with others ([`crate::detach`]). Call it while holding a
    /// [`CalibrationLock`].
    ///
    /// # Errors
    /// If our own executable cannot be read or probed.
    pub fn calibrate(
        &mut self,
        hit: Option<&ProgramCounts>,
    ) -> Result<(Calibration, Vec<Attachment>), Error> {
        let pid = std::process::id();
        let offset = own_file_offset()?;
        self.follow(pid)?;
        let layout = self.add_wire_layout(&make_believe_layout())?;
        self.time_every_hit(true);
        let result = self.measure_all(offset, layout, hit);
        self.time_every_hit(false);
        self.unfollow(pid);
        result
    }

    fn measure_all(
        &mut self,
        offset: u64,
        layout: u32,
        hit: Option<&ProgramCounts>,
    ) -> Result<(Calibration, Vec<Attachment>), Error> {
        let mut bench = TargetCalls::new();
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
            on_return: if is_session { Some(offset) } else { None },
            semaphore: None,
        };
        let path = Path::new("/proc/self/exe");
        let first = self.next_point();
        let mut probes = vec![self.attach(path, std::slice::from_ref(&point))?];
        let entry = self.time(&mut bench, ProbePointKind::StartTheWorld)?;
        if !is_session {
            point.entry = None;
            point.on_return = Some(offset);
            probes.push(self.attach(path, std::slice::from_ref(&point))?);
        }
        let explicit = [ProbePointKind::GcCollectBuiltin, ProbePointKind::PyGcCollect];
        let collect = [ProbePointKind::Collect];
        let is_hit = |kinds: &[ProbePointKind]| {
            hit.is_none_or(|counts| kinds.iter().any(|kind| counts.hits(*kind) > 0))
        };
        let mut elsewhere = explicit.iter().chain(&collect);
        let is_hit_elsewhere =
            hit.is_none_or(|counts| elsewhere.any(|kind| counts.foreign_hits(*kind) > 0));
        let (mut times, mut foreign) = ([None; 2], None);
        for (times, kinds) in times.iter_mut().zip([&explicit[..], &collect[..]]) {
            if is_hit(kinds) {
                point.kind = kinds[0];
                *times = Some(self.time_as(&mut bench, first, &point)?);
            }
        }
        if is_hit_elsewhere {
            point.kind = ProbePointKind::Collect;
            self.unfollow(std::process::id());
            foreign = Some(self.time_as(&mut bench, first, &point)?);
        }
        let [explicit, collect] = times;
        Ok((Calibration { collect, explicit, entry, foreign }, probes))
    }

    /// As [`Self::time`], after setting all probes from index `first` on to `point`.
    fn time_as(
        &mut self,
        bench: &mut TargetCalls,
        first: u32,
        point: &PlannedPoint,
    ) -> Result<ProbeTimes, Error> {
        for index in first..self.next_point() {
            self.set_point(index, point, None)?;
        }
        self.time(bench, point.kind)
    }

    fn time_every_hit(&mut self, is_on: bool) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            bss.time_every_hit = is_on;
        }
    }

    /// Time of a hit of the current probes, of one kind.
    fn time(&mut self, bench: &mut TargetCalls, kind: ProbePointKind) -> Result<ProbeTimes, Error> {
        let mut time = |caches| {
            let without_ns = bench.without_ns(caches);
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let before = self.counters()?;
                let all_ns = (bench.round(caches) - without_ns).max(0.0);
                let inside_ns = self.counters()?.since(&before).inside_ns(kind).unwrap_or(0.0);
                self.poll(Duration::ZERO)?;
                rounds.push(ProbeTime { all_ns, inside_ns: inside_ns.min(all_ns) });
            }
            rounds.sort_by(|one, other| one.all_ns.total_cmp(&other.all_ns));
            Ok::<_, Error>(rounds.swap_remove(caches.best()))
        };
        let (warm, mut cold) = (time(Caches::Warm)?, time(Caches::Cold)?);
        cold.all_ns = cold.all_ns.max(warm.all_ns);
        Ok(ProbeTimes { warm, cold })
    }
}

/// State of the CPU's caches before a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caches {
    Warm,
    Cold,
}

impl Caches {
    /// Index of the chosen round among all rounds sorted by time. Warm caches: the fastest, with nothing else added.
    /// Cold caches: the median, since caches are more or less cold.
    fn best(self) -> usize {
        match self {
            Self::Warm => 0,
            Self::Cold => ROUNDS as usize / 2,
        }
    }
}

/// Calls of the function, and their time without probes.
pub(crate) struct TargetCalls {
    words: Vec<u64>,
    /// Written before each call with cold caches.
    memory: Vec<u8>,
    /// Mean time of a call without probes, in ns, with warm and with cold caches.
    without_ns: [f64; 2],
}

impl TargetCalls {
    /// Measures the calls without probes: none may be in place yet.
    pub(crate) fn new() -> Self {
        let (words, memory) = (make_believe_process(), vec![0; COLD_BYTES]);
        let mut calls = Self { words, memory, without_ns: [0.0; 2] };
        calls.without_ns = [Caches::Warm, Caches::Cold].map(|caches| {
            let mut rounds = [(); ROUNDS as usize].map(|()| calls.round(caches));
            rounds.sort_by(f64::total_cmp);
            rounds.get(caches.best()).copied().unwrap_or(f64::INFINITY)
        });
        calls
    }

    fn without_ns(&self, caches: Caches) -> f64 {
        let [warm_ns, cold_ns] = self.without_ns;
        match caches {
            Caches::Warm => warm_ns,
            Caches::Cold => cold_ns,
        }
    }

    /// Mean time of the calls of a round, in ns.
    fn round(&mut self, caches: Caches) -> f64 {
        let base = self.words.as_ptr();
        let counter = self.words.get_mut(COUNTER_WORD);
        let counter = if let Some(word) = counter { &raw mut *word } else { std::ptr::null_mut() };
        let call = || calibration_target(base, 0, counter);
        if matches!(caches, Caches::Warm) {
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

    /// Time of the current probes in a call, in ns; `between` runs after each round, outside the measured time.
    pub(crate) fn probes_ns(
        &mut self,
        caches: Caches,
        mut between: impl FnMut() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let mut rounds = [0.0; ROUNDS as usize];
        for round in &mut rounds {
            *round = self.round(caches);
            between()?;
        }
        rounds.sort_by(f64::total_cmp);
        let all_ns = rounds.get(caches.best()).copied().unwrap_or(f64::INFINITY);
        Ok((all_ns - self.without_ns(caches)).max(0.0))
    }
}

/// Memory of a fake process: a thread state at word 0, followed by as many frames as a stack can have. The thread state
/// is also its own interpreter (pointer at word 2) and code object.
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

/// As in 3.12: adjacent frames, each above its caller's, with an instruction pointer.
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
    if (start..end).contains(&address) { Some(address - start + offset) } else { None }
}
