//! Why a device was idle: a ledger with a cause for every nanosecond, and what to change.

use crate::figure::{Basis, DeviceId, Location};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;
use strum::{AsRefStr, IntoStaticStr};

/// Why one device was idle. `compute_ns` + `communication_ns` + `copies_ns` + `idle_ns` = `span_ns`,
/// and the times of the rows sum to `idle_ns`, to the nanosecond.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleLedger {
    /// The device, and the process that used it.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Basis of the rows: inferred, by replays of the run without each cause. The four times of the
    /// device are measured by the GPU.
    pub basis: Basis,
    /// From the first start to the last end of an operation, in ns.
    pub span_ns: u64,
    /// Time with a non-communicating kernel running, in ns.
    pub compute_ns: u64,
    /// Time with only communicating kernels (NCCL) running, in ns.
    pub communication_ns: u64,
    /// Time with only copies and memsets running, in ns.
    pub copies_ns: u64,
    /// Time with nothing running, in ns.
    pub idle_ns: u64,
    /// The idle time by cause, the longest first; causes without any are left out.
    pub rows: Vec<IdleRow>,
    /// The ranks that it waited for in collectives, the longest wait first, at most five. Includes only collectives
    /// in which the clocks show which rank was last.
    pub rank_waits: Vec<RankWait>,
    /// Number of idle intervals.
    pub gaps: u64,
    /// The longest idle intervals, longest first, at most 20.
    pub longest: Vec<IdleGap>,
    /// The trace contains launches and copies only, so no wait is visible: time that looks blocked may be anything.
    pub sample: bool,
    /// There are several streams and the trace does not show their waits for each other: `saves_ns` is an upper
    /// bound.
    pub at_most: bool,
}

/// The part of a device's idle time that has one cause.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleRow {
    /// Why the device was idle.
    pub cause: IdleCause,
    /// Idle time in ns that goes when the causes are removed one after the other, in the order of
    /// the values of `cause`.
    pub time_ns: u64,
    /// How much shorter the time from the device's first to its last operation is without this cause alone, in ns;
    /// `null` for causes that cannot be removed. Not the idle time: a run never gets longer without a cause, but it
    /// may idle longer.
    pub saves_ns: Option<u64>,
    /// The device's idle time that goes without this cause alone, in ns, negative if there is more; `null` for causes
    /// that cannot be removed.
    pub alone_ns: Option<i64>,
    /// The device's idle time that goes without this cause if all others are removed already, in ns; `null` for
    /// causes that cannot be removed. Where it is well below `alone_ns`, another cause would take the place of this
    /// one.
    pub last_ns: Option<i64>,
    /// Its places, by the saving of removing each alone, at most five. Empty for a row below 1 % of the idle time.
    pub places: Vec<IdlePlace>,
    /// What to change; `null` if unknown, for less than 5 % of the idle time, for savings of less than 2 % of
    /// `span_ns`, and for a `sample`.
    pub remedy: Option<&'static str>,
}

/// A place in the program that idle time comes from.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdlePlace {
    /// Where it is.
    #[serde(flatten)]
    pub code: CodePlace,
    /// Number of idle intervals that it has a part of; `null` of places by samples.
    pub gaps: Option<u64>,
    /// Its part of `time_ns`.
    pub time_ns: u64,
    /// How much shorter the time from the device's first to its last operation is without this place alone, in ns.
    /// `null` of places by samples, as they have no times to leave out, and of blocked time.
    pub saves_ns: Option<u64>,
}

/// A place in the program, as far as a profiler's trace shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CodePlace {
    /// The CUDA function that was called, or the copy that it started; `null` without a call.
    pub function: Option<String>,
    /// The outermost operator around it, such as `aten::item`; `null` if the profiler recorded none, and
    /// between calls where `python` or `annotation` is known.
    pub operator: Option<String>,
    /// The innermost Python function of the program around it, recorded by the profiler with
    /// `with_stack=True`: then `line` is where the function is defined; or by gctrace's samples and times
    /// off the CPU, then it is the line that was executed. `null` if there is neither.
    pub python: Option<Location>,
    /// The innermost annotation around it; `null` outside of any.
    pub annotation: Option<String>,
}

/// The time that a device waited in collectives for one other rank.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankWait {
    /// The rank that was the last to reach them.
    pub rank: u32,
    /// Time until it reached them, with only communicating kernels running, in ns: a part of `communication_ns`.
    pub time_ns: u64,
    /// Why it was late; `null` if unknown.
    pub late: Option<LateRank>,
}

/// Why a rank was late: its device's longer times compared with the first rank to arrive, from the end of the
/// collective before.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LateRank {
    /// Why it was idle for longer, by its own ledger; `null`: it was busy for longer.
    pub cause: Option<IdleCause>,
    /// The part of its lateness that this explains, 0 to 1.
    pub ratio: f64,
    /// Where most of that idle time comes from; `null` if unknown, and of a busy device.
    pub place: Option<CodePlace>,
}

/// One idle interval of a device.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleGap {
    /// Start of the gap: end of the last operation before it, in ns on the clock of the trace.
    pub start_ns: u64,
    /// Start of the gap, in ns after the start of the device's first operation.
    pub after_first_ns: u64,
    /// Length of the gap, in ns.
    pub duration_ns: u64,
    /// Name of the last operation before the gap, at most 160 characters.
    pub before: String,
    /// Name of the operation that ends the gap, at most 160 characters.
    pub after: String,
    /// The call that launched that operation; `null` if it is not in the trace.
    pub call: Option<String>,
    /// Thread id of that call; `null` if it is not in the trace.
    pub tid: Option<u32>,
    /// Name of that thread; `null` if unknown.
    pub thread: Option<String>,
    /// Its parts by cause, the longest first; they sum to its length.
    pub causes: Vec<IdlePart>,
}

/// A part of an idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdlePart {
    /// Why the device was idle.
    pub cause: IdleCause,
    /// For how long, in ns.
    pub time_ns: u64,
}

/// Why a device was idle, in the order of removal: first causes that can be switched off, last the program itself;
/// then time that no removal explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(AsRefStr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum IdleCause {
    /// The garbage collector ran on the host.
    Gc,
    /// The PyTorch profiler worked in the program (its events of category `overhead`): without it, the run
    /// does not have this time.
    Profiler,
    /// A call reserved or freed memory (cudaMalloc, cudaFree, cudaHostAlloc).
    Allocation,
    /// The program was in an annotation about checkpoints or files.
    Files,
    /// The program waited for data: an annotation such as PyTorch's DataLoader adds.
    Data,
    /// A function ran on the host and a stream waited for it (`cudaLaunchHostFunc`). Only where its times are
    /// recorded: with CUPTI 13.1 or later.
    HostFunction,
    /// A call waited for the GPU: a synchronization, as in `.item()`.
    Synchronization,
    /// A copy blocked the host: from or to memory that is not pinned.
    Copy,
    /// The host waited for another rank: an annotation about a wait or a barrier.
    RankWait,
    /// A launch call itself took a millisecond or longer: the first use of a kernel loads or compiles it.
    LaunchCall,
    /// The host was not fast enough: Python, operators and launch calls.
    Host,
    /// From a launch call to the start of its operation on a free stream.
    LaunchLatency,
    /// Between two operations of a stream that were both launched in time, up to 30 µs.
    BackToBack,
    /// An operation of another stream or device had to end first.
    OtherStream,
    /// The operation was launched, its stream was free, and it started over 30 µs later: it waited for
    /// something that the trace does not contain. Its place is a function of the host if one was launched
    /// just before and its times were not recorded: then it waited for that, or for something unknown.
    Blocked,
    /// The launch of the operation is not in the trace.
    Unknown,
}

impl IdleCause {
    /// The causes that can be removed, in order.
    pub const REMOVABLE: [Self; 11] = [
        Self::Gc,
        Self::Profiler,
        Self::Allocation,
        Self::Files,
        Self::Data,
        Self::HostFunction,
        Self::Synchronization,
        Self::Copy,
        Self::RankWait,
        Self::LaunchCall,
        Self::Host,
    ];
}

impl IdlePart {
    /// Times by cause, the longest first; causes without any are left out.
    pub(crate) fn sorted(times: impl IntoIterator<Item = (IdleCause, u64)>) -> Vec<Self> {
        let parts = times.into_iter().map(|(cause, time_ns)| Self { cause, time_ns });
        let mut parts: Vec<Self> = parts.collect();
        parts.retain(|part| part.time_ns > 0);
        parts.sort_by_key(|part| (Reverse(part.time_ns), part.cause));
        parts
    }
}

impl fmt::Display for IdleCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gc => "garbage collection",
            Self::Profiler => "the profiler",
            Self::Allocation => "reserving and freeing memory",
            Self::Files => "files and checkpoints",
            Self::Data => "waiting for data",
            Self::HostFunction => "functions on the host in a stream",
            Self::Synchronization => "synchronization",
            Self::Copy => "blocking copies",
            Self::RankWait => "waiting for another rank",
            Self::LaunchCall => "long launch calls",
            Self::Host => "host too slow",
            Self::LaunchLatency => "launch latency",
            Self::BackToBack => "back-to-back operations",
            Self::OtherStream => "another stream's operation",
            Self::Blocked => "blocked by something not recorded",
            Self::Unknown => "launch not recorded",
        })
    }
}

/// What to change so that a cause goes. `in_long_gaps`: if most of its time is in idle intervals too long for
/// launches alone. `None` where nothing is known to help, and for the collector: it has its own advice.
pub(crate) fn remedy(row: &IdleRow, in_long_gaps: bool) -> Option<&'static str> {
    let place = row.places.first();
    let function = gctrace_units::if_known(place.and_then(|place| place.code.function.as_deref()));
    // A tenth of the row and more is worth a change of its own.
    let copies = |direction: &str| {
        let places = row.places.iter().filter(|place| place.time_ns >= row.time_ns / 10);
        let mut functions = places.filter_map(|place| place.code.function.as_deref());
        functions.any(|function| function.contains(direction))
    };
    Some(match row.cause {
        IdleCause::Allocation if function.contains("Host") => {
            "reserve pinned memory once, not in the loop"
        }
        IdleCause::Allocation => {
            "no torch.cuda.empty_cache() in the loop, \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        }
        IdleCause::Files => {
            "checkpoints in the background, torch.distributed.checkpoint.async_save()"
        }
        IdleCause::Data => {
            "DataLoader(num_workers=..., persistent_workers=True, prefetch_factor=4)"
        }
        IdleCause::HostFunction => {
            "let the function only signal another thread that does the work beside the stream"
        }
        IdleCause::Copy if copies("HtoD") && !copies("DtoH") => {
            "DataLoader(pin_memory=True) and .to(device, non_blocking=True)"
        }
        IdleCause::Copy if copies("HtoD") || !copies("DtoH") => {
            "pinned memory and non_blocking=True to the GPU, .cpu() and .item() every N steps only"
        }
        IdleCause::Copy | IdleCause::Synchronization => {
            "keep results on the GPU, .item(), .cpu() and print() every N steps only"
        }
        IdleCause::LaunchCall => {
            "run each kernel once before the loop: its first launch loads or compiles it; keep shapes the same"
        }
        IdleCause::Host if in_long_gaps => {
            "make the code between launches faster, or run it while the GPU works (a worker process, \
             another thread)"
        }
        IdleCause::Host => {
            "fewer launches, torch.compile(mode=\"reduce-overhead\"), CUDA graphs or a larger batch"
        }
        IdleCause::Gc
        | IdleCause::Profiler
        | IdleCause::RankWait
        | IdleCause::LaunchLatency
        | IdleCause::BackToBack
        | IdleCause::OtherStream
        | IdleCause::Blocked
        | IdleCause::Unknown => return None,
    })
}
