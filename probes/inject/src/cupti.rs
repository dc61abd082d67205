//! GPU work through CUPTI's activity API: kernels, copies, fills, synchronization, events, calls,
//! overhead.
//!
//! Owns everything about CUPTI. Starts once per process, when the driver calls
//! [`InitializeInjection`] or when [`start_if_driver_is_mapped`] finds it initialized; every
//! failure is reported once in the ring, and the program continues. Building this needs no CUDA
//! header or library.
//!
//! ```text
//! find.rs   libcupti in the process, or its CUDA's
//! api.rs    its functions by name
//! clock.rs  converts its timestamps
//! session.rs: buffers.rs -> decode.rs -> kernels.rs, calls.rs, functions.rs -> ring
//! ending.rs the thread that flushes, and the end of the program
//! ```
//!
//! A forked child cannot use anything that its parent initialized, CUPTI included: there the library does nothing. A
//! child that initializes CUDA itself, because its parent did not, is recorded like any process.

mod api;
mod batches;
mod buffers;
mod calls;
mod clock;
mod decode;
mod ending;
mod find;
mod functions;
mod session;

pub(crate) use find::driver;

use crate::memory::Map;
use crate::process_ring;
use crate::process_ring::GpuRing;
use crate::recording::guarded;
use api::{Code, CuptiApi};
use clock::CuptiClock;
use functions::FunctionClasses;
use gctrace_ring::{CuptiState, GpuMessage, NO_TEXT, TextId};
use session::CuptiSession;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: the kernel's ids; the default is the result of pthread_self.
const SYSTEM_THREADS: u32 = 1;
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`, a `uint8_t`: CUPTI need not zero our buffers.
const ZEROED_BUFFERS: u32 = 5;
/// `CUPTI_CB_DOMAIN_RESOURCE` and its `CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING`.
const CONTEXT_DIES: (u32, u32) = (3, 2);

/// Called by the CUDA driver during initialization, if CUDA_INJECTION64_PATH names this library.
#[unsafe(no_mangle)]
extern "C" fn InitializeInjection() -> c_int {
    begin();
    1
}

/// Starts if the driver is in this process and initialized: for processes started without
/// CUDA_INJECTION64_PATH. May be called repeatedly, but only from a thread of ours. Returns whether
/// nothing is left to do.
pub(crate) fn start_if_driver_is_mapped() -> bool {
    let wants = matches!(process_ring::options(), Some(options) if options.cuda);
    if BEGUN.load(Ordering::Relaxed) || !wants || process_ring::is_forked() {
        return true;
    }
    let is_initialized = driver_is_initialized();
    if is_initialized {
        begin();
    }
    is_initialized
}

/// Whether the program has called `cuInit`. We must not call it: afterwards, forked children cannot
/// use CUDA.
fn driver_is_initialized() -> bool {
    let Some(driver) = find::driver() else { return false };
    let Some(address) = driver.function(c"cuDeviceGetCount") else { return false };
    // SAFETY: the type of this function in every version.
    let get_count =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_int) -> c_int>(address) };
    let mut devices = 0;
    // CUDA_ERROR_NOT_INITIALIZED (3) before.
    get_count(&raw mut devices) == 0
}

/// The program may open the driver's library; its initialization is to be watched from then on.
static WAITS_FOR_DRIVER: AtomicBool = AtomicBool::new(false);

/// For a program with an environment that must not name this library, so that its children are left alone: starts once
/// the program has loaded the driver's library and initialized it. No thread exists before that (`os.fork` of Python
/// 3.12 and later would warn the program's user about it).
pub(crate) fn watch_for_driver() {
    if matches!(process_ring::options(), Some(options) if options.cuda) {
        WAITS_FOR_DRIVER.store(true, Ordering::Release);
        opens(b"");
    }
}

/// The program is about to open a library with this name.
pub(crate) fn opens(name: &[u8]) {
    /// Prefix of the driver's file name, in any folder and version.
    const DRIVER: &[u8] = b"libcuda.so";
    if !WAITS_FOR_DRIVER.load(Ordering::Acquire) {
        return;
    }
    let is_driver = name.windows(DRIVER.len()).any(|part| part == DRIVER);
    if (is_driver || find::driver().is_some()) && WAITS_FOR_DRIVER.swap(false, Ordering::AcqRel) {
        await_driver();
    }
}

/// Polls whether the driver is initialized, on a thread of our own.
fn await_driver() {
    /// Polling interval; GPU work between initialization and the next poll is missed.
    const STEP: Duration = Duration::from_millis(20);
    ending::spawn_quietly("gctrace-driver", || {
        while !start_if_driver_is_mapped() {
            std::thread::sleep(STEP);
        }
    });
}

/// Whether this process, or an ancestor by fork, has started.
static BEGUN: AtomicBool = AtomicBool::new(false);

fn begin() {
    guarded(|| {
        let Some(options) = process_ring::options().filter(|options| options.cuda) else { return };
        if BEGUN.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(ring) = process_ring::ring::<GpuMessage>() else { return };
        if options.yields {
            return report(ring, CuptiState::Yielded, 0, "");
        }
        if let Err((state, code, detail)) = record(ring, options.only_waits) {
            report(ring, state, i64::from(code), &detail);
        }
    });
}

/// Why nothing can be recorded.
type Failure = (CuptiState, Code, String);

fn record(ring: &'static GpuRing, only_waits: bool) -> Result<(), Failure> {
    let library = find::cupti().ok_or((CuptiState::Absent, 0, String::new()))?;
    let api = CuptiApi::of(&library).map_err(|lacks| (CuptiState::TooOld, 0, lacks))?;
    let subscriber = subscribe(&api)?;
    // Before anything is enabled, as CUPTI requires; not before CUPTI is ours: it would change
    // another profiler's timestamps.
    let register = api.register_timestamp;
    let is_taken = register.is_some_and(|register| register(clock::monotonic) == 0);
    let clock = CuptiClock::new(is_taken, &|| CuptiSession::read_clock(&api));
    let names_threads = set_up(&api, ring);
    let functions = FunctionClasses::new(only_waits);
    let session = CuptiSession::new(api, ring, clock, functions, names_threads).publish();
    if let Err(failure) = ask_for_records(session) {
        if let Some(unsubscribe) = session.api.unsubscribe {
            let _ = unsubscribe(subscriber);
        }
        return Err(failure);
    }
    session.functions.mute(&session.api);
    let version = i64::from(session.api.version());
    report(ring, CuptiState::Recording, version, &library.file);
    session.report_calibration();
    if let Some(enable_callback) = session.api.enable_callback {
        let (domain, id) = CONTEXT_DIES;
        let _ = enable_callback(1, subscriber, domain, id);
    }
    ending::prepare(session);
    Ok(())
}

fn refused(function: &str, code: Code) -> Failure {
    (CuptiState::Refused, code, function.to_owned())
}

fn subscribe(api: &CuptiApi) -> Result<u64, Failure> {
    let mut subscriber = 0;
    let code = (api.subscribe)(&raw mut subscriber, ending::notice, std::ptr::null_mut());
    let state = match code {
        0 => return Ok(subscriber),
        api::MULTIPLE_SUBSCRIBERS => CuptiState::Busy,
        api::NOT_INITIALIZED | api::UNKNOWN => CuptiState::NoDriver,
        _ => CuptiState::Refused,
    };
    Err((state, code, "cuptiSubscribe".to_owned()))
}

/// Sets everything needed before the first record. Returns whether calls will carry the kernel's thread ids.
fn set_up(api: &CuptiApi, ring: &GpuRing) -> bool {
    let names_threads = api.set_thread_id_type.map(|set| set(SYSTEM_THREADS)) == Some(0);
    if !names_threads {
        let kind = i64::from(decode::RUNTIME);
        report(ring, CuptiState::Partial, kind, "calls carry no thread ids");
    }
    if let Some(set) = api.set_attribute {
        let (mut bytes, mut yes) = (size_of::<u8>(), 1_u8);
        // If refused, it costs time and nothing else.
        let _ = set(ZEROED_BUFFERS, &raw mut bytes, (&raw mut yes).cast());
    }
    names_threads
}

/// Enables the kinds of records one by one; refused kinds are missing.
fn ask_for_records(session: &CuptiSession) -> Result<(), Failure> {
    let code = (session.api.register_callbacks)(session::request, session::complete);
    if code != 0 {
        return Err(refused("cuptiActivityRegisterCallbacks", code));
    }
    let version = session.api.version();
    let known = || decode::KINDS.into_iter().filter(|(kind, _)| decode::is_known(*kind, version));
    let mut refusals = Vec::new();
    for (kind, name) in known() {
        let code = (session.api.enable)(kind);
        if code != 0 {
            refusals.push((kind, name, code));
        }
    }
    if let [(_, _, code), ..] = refusals.as_slice()
        && refusals.len() == known().count()
    {
        return Err(refused("cuptiActivityEnable", *code));
    }
    for (kind, name, code) in refusals {
        let why = format!("{name}: cuptiActivityEnable returned {code}");
        report(session.ring, CuptiState::Partial, i64::from(kind), &why);
    }
    Ok(())
}

/// Reports the state of CUPTI. An empty detail is left out.
fn report(ring: &GpuRing, state: CuptiState, code: i64, detail: &str) {
    let detail = match detail {
        "" => NO_TEXT,
        detail => ring.text(detail),
    };
    ring.push(&GpuMessage::Cupti { at_ns: process_ring::now_ns(), state, code, detail });
}

/// Names of kernels: CUPTI's memory, read as soon as a record that points there arrives. Keyed by address and valid for
/// one buffer: in the next buffer the same address may have another name.
#[derive(Default)]
pub(super) struct KernelNames(Map<u64, TextId>);

impl KernelNames {
    /// The text number of the name at an address; address 0 is no name.
    ///
    /// # Safety
    /// The address is 0 or a C string's.
    pub(super) unsafe fn text(&mut self, address: u64, ring: &GpuRing) -> TextId {
        if address == 0 {
            return NO_TEXT;
        }
        if let Some(known) = self.0.get(&address) {
            return *known;
        }
        let pointer = std::ptr::with_exposed_provenance::<c_char>(address as usize);
        // SAFETY: as the caller promises.
        let name = unsafe { CStr::from_ptr(pointer) };
        let text = ring.text(&name.to_string_lossy());
        self.0.insert(address, text);
        text
    }
}
