//! PyTorch's memory by layer (`--layers`), of one step of many.
//!
//! Decides when a step is measured and how its table gets into the ring. The agent does the measuring; its parts are in
//! `layers/`: Python code, run in a namespace of its own from the first mark of a step on. It is called at the marks
//! where a measured step begins or ends, and never in between. An exception of ours ends it; an exception of the
//! program (a signal handler raised it while our code ran) goes on to the program.

use super::api::{PythonApi, api};
use super::object::OwnedRef;
use crate::confined::is_noticed;
use crate::process_ring::{now_ns, options, ring};
use crate::recording::guarded;
use gctrace_ring::{
    HeldBytes, HookState, LAYERS_BY_BUDGET, MEMORY_HISTORY_VARIABLE, MadeBytes, NO_TEXT,
    PythonMessage, RingDeviceMemory, RingLayer, RingLayers, StepMarker, TextId, WorkKind,
};
use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The agent's source behind its [`constants`].
const SOURCE: &str = concat!(
    include_str!("layers/names.py"),
    include_str!("layers/storages.py"),
    include_str!("layers/hooks.py"),
    include_str!("layers/table.py"),
    include_str!("layers/steps.py"),
    include_str!("layers/history.py"),
);

/// The names of the bits that the agent sends, and the rows of its tables, as Python.
fn constants() -> String {
    let bits = |words: &mut dyn Iterator<Item = &'static str>| {
        let lines = words.enumerate();
        let lines = lines.map(|(bit, word)| format!("{} = 1 << {bit}\n", word.to_uppercase()));
        lines.collect::<String>()
    };
    let (marks, remarks) = (bits(&mut RingLayer::marks()), bits(&mut RingLayers::remarks()));
    format!("{marks}{remarks}MOST_ROWS = {}\n", RingLayers::MOST_ROWS)
}

/// Marks of backward passes and of loaders that are waited for, in case an optimizer steps.
const AWAITED: u32 = 4;

/// The agent's functions.
struct LayerAgent {
    at_step: OwnedRef,
    also_stepped: OwnedRef,
    forget: OwnedRef,
    at_end: OwnedRef,
    history: OwnedRef,
}

/// Null before the first step. Never freed.
static AGENT: AtomicPtr<LayerAgent> = AtomicPtr::new(std::ptr::null_mut());

/// Marks of the best marker so far, and the mark of the agent's next call; [`OFF`]: no more.
static STEPS: AtomicU64 = AtomicU64::new(0);
static DUE: AtomicU64 = AtomicU64::new(1);
/// Whether a measured step runs.
static MEASURING: AtomicU8 = AtomicU8::new(0);
/// Rank of the best marker so far, and how often it came.
static BEST: AtomicU8 = AtomicU8::new(0);
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Tables with rows so far.
static TABLES: AtomicU32 = AtomicU32::new(0);

const OFF: u64 = u64::MAX;

/// The file for snapshots of device memory, ending in a zero, if they are wanted.
static HISTORY: OnceLock<CString> = OnceLock::new();

/// Reads its name from the environment, before the program's own code can change that.
pub(crate) fn begin() {
    if let Some(name) = std::env::var_os(MEMORY_HISTORY_VARIABLE)
        && !name.is_empty()
        && let Ok(name) = CString::new(name.into_vec())
    {
        let _ = HISTORY.set(name);
    }
}

/// Has the agent keep the allocator's history, and write that memory history when due. `false`: an exception of the
/// program is set.
#[must_use]
fn keep_history(api: &'static PythonApi, agent: &LayerAgent, is_end: bool) -> bool {
    let Some(path) = HISTORY.get() else { return true };
    let Some(path) = OwnedRef::string(api, path) else { return true };
    let Some(is_end) = OwnedRef::integer(api, is_end.into()) else { return true };
    let Some(result) = agent.history.call_raising(&[&path, &is_end]) else { return false };
    guarded(|| {
        if let (Some(reason), Some(ring)) = (result.text(), ring::<PythonMessage>()) {
            let (at_ns, state, detail) = (now_ns(), HookState::NoMemoryHistory, ring.text(reason));
            ring.push(&PythonMessage::Hook { at_ns, state, interpreter: 0, detail, count: 0 });
        }
    });
    true
}

/// Whether steps are measured.
#[inline]
pub(super) fn is_active() -> bool {
    let Some(options) = options() else { return false };
    options.layers > 0 && DUE.load(Ordering::Relaxed) != OFF && !is_noticed()
}

/// How well a marker shows the end of a step.
fn rank(marker: StepMarker) -> u8 {
    match marker {
        StepMarker::DataLoader => 1,
        StepMarker::Backward => 2,
        StepMarker::Optimizer => 3,
        StepMarker::Function => 4,
    }
}

/// The number of the step that ends at a mark, if the agent is to be called.
fn due(marker: StepMarker) -> Option<u64> {
    let best = BEST.load(Ordering::Relaxed);
    if rank(marker) < best {
        return None;
    }
    if rank(marker) > best {
        BEST.store(rank(marker), Ordering::Relaxed);
        SEEN.store(0, Ordering::Relaxed);
        if MEASURING.load(Ordering::Relaxed) == 0 {
            STEPS.store(0, Ordering::Relaxed);
        }
    }
    if rank(marker) <= rank(StepMarker::Backward) && SEEN.fetch_add(1, Ordering::Relaxed) < AWAITED
    {
        return None;
    }
    let step = STEPS.fetch_add(1, Ordering::Relaxed) + 1;
    if step >= DUE.load(Ordering::Relaxed) { Some(step) } else { None }
}

/// A mark. The interpreter's lock is held; not within [`guarded`], as Python code runs. `false`: an exception
/// of the program is set.
#[must_use]
pub(super) fn step(
    api: &'static PythonApi,
    marker: StepMarker,
    optimizer: Option<&OwnedRef>,
) -> bool {
    if !is_active() || api.interpreter_id() != 0 {
        return true;
    }
    let Some(step) = guarded(|| due(marker)).flatten() else { return true };
    let every = if let Some(options) = options() { options.layers } else { 0 };
    let every = if every == LAYERS_BY_BUDGET { 0 } else { every };
    let Some(agent) = agent(api) else {
        if imports_torch(api) {
            switch_off("this PyTorch is too old (2.1 or later)");
        }
        return true;
    };
    let arguments = (|| {
        let optimizers = OwnedRef::tuple(api, optimizer.as_slice())?;
        let step = OwnedRef::integer(api, step.cast_signed())?;
        Some((step, optimizers, OwnedRef::integer(api, every.into())?))
    })();
    let Some((number, optimizers, every)) = arguments else { return true };
    MEASURING.store(1, Ordering::Relaxed);
    let Some(result) = agent.at_step.call_raising(&[&number, &optimizers, &every]) else {
        // The step that is measured goes on.
        return false;
    };
    guarded(|| take(api, agent, &result, step));
    keep_history(api, agent, false)
}

/// Another optimizer has stepped. As [`step`].
pub(super) fn also_stepped(optimizer: &OwnedRef) {
    if MEASURING.load(Ordering::Relaxed) == 0 || !is_active() {
        return;
    }
    if let Some(agent) = started() {
        agent.also_stepped.call(Some(optimizer));
    }
}

/// A backward pass begins, on a thread that need not have the lock.
pub(super) fn backward_begins() {
    if is_active()
        && BEST.load(Ordering::Relaxed) <= rank(StepMarker::Backward)
        && let Some(api) = api()
    {
        // SAFETY: may be called by any thread.
        unsafe { (api.Py_AddPendingCall)(passed_on, std::ptr::null_mut()) };
    }
}

/// Runs in the main thread, after the pass.
unsafe extern "C" fn passed_on(_argument: *mut c_void) -> c_int {
    let is_done = api().is_none_or(|api| step(api, StepMarker::Backward, None));
    if is_done { 0 } else { -1 }
}

/// The main interpreter ends (`atexit`).
pub(super) fn end(api: &'static PythonApi) {
    if !is_active() {
        return;
    }
    let step = STEPS.load(Ordering::Relaxed);
    if let Some(agent) = started()
        && let Some(number) = OwnedRef::integer(api, step.cast_signed())
        && let Some(table) = agent.at_end.call(Some(&number))
    {
        take(api, agent, &table, step);
        if !keep_history(api, agent, true) {
            // SAFETY: the lock is held; the program is at its end.
            unsafe { (api.PyErr_Clear)() };
        }
    }
    DUE.store(OFF, Ordering::Relaxed);
}

/// The agent belongs to an interpreter that is gone.
pub(super) fn forget() {
    AGENT.store(std::ptr::null_mut(), Ordering::Release);
}

/// Whether the program uses PyTorch; a function that it named may run before.
fn imports_torch(api: &'static PythonApi) -> bool {
    // SAFETY: the lock is held.
    let modules = unsafe { OwnedRef::share(api, (api.PyImport_GetModuleDict)()) };
    let Some(name) = OwnedRef::interned(api, c"torch.nn") else { return false };
    modules.value(&name).is_some()
}

fn started() -> Option<&'static LayerAgent> {
    // SAFETY: null, or leaked by `agent`.
    unsafe { AGENT.load(Ordering::Acquire).as_ref() }
}

/// The agent, started at the first call.
fn agent(api: &'static PythonApi) -> Option<&'static LayerAgent> {
    if let Some(agent) = started() {
        return Some(agent);
    }
    if !imports_torch(api) {
        return None;
    }
    let text = |text| OwnedRef::interned(api, text);
    let builtins = OwnedRef::import(api, c"builtins")?;
    let source = OwnedRef::string(api, &CString::new(constants() + SOURCE).ok()?)?;
    let compile = builtins.attribute(c"compile")?;
    let code = compile.call_all(&[&source, &text(c"<gctrace layers>")?, &text(c"exec")?])?;
    let namespace = OwnedRef::dictionary(api)?;
    let modules = OwnedRef::import(api, c"sys")?.attribute(c"modules")?;
    namespace.insert(c"modules", &modules)?;
    builtins.attribute(c"exec")?.call_all(&[&code, &namespace])?;
    let function = |name| namespace.value(&OwnedRef::interned(api, name)?);
    let agent = LayerAgent {
        at_step: function(c"at_step")?,
        also_stepped: function(c"also_stepped")?,
        forget: function(c"forget")?,
        at_end: function(c"at_end")?,
        history: function(c"history")?,
    };
    AGENT.store(Box::into_raw(Box::new(agent)), Ordering::Release);
    started()
}

/// Takes the agent's result: the step of its next call, the same and a table, or the reason why it ended.
fn take(api: &'static PythonApi, agent: &LayerAgent, result: &OwnedRef, step: u64) {
    if let Some(reason) = result.text() {
        switch_off(reason);
    } else if let Some(next) = result.number() {
        DUE.store(next.cast_unsigned().max(step + 1), Ordering::Relaxed);
    } else if result.length() > 0 {
        MEASURING.store(0, Ordering::Relaxed);
        let Some((next, is_written)) = write(result, epoch(api)) else {
            return switch_off("its table is not one");
        };
        DUE.store(next.max(step + 1), Ordering::Relaxed);
        if !is_written {
            agent.forget.call(None);
        }
    }
}

/// Reported once: nothing is measured from then on.
fn switch_off(reason: &str) {
    if DUE.swap(OFF, Ordering::Relaxed) != OFF
        && let Some(ring) = ring::<PythonMessage>()
    {
        ring.push(&PythonMessage::Hook {
            at_ns: now_ns(),
            state: HookState::NotMeasuringLayers,
            interpreter: 0,
            detail: ring.text(reason),
            count: 0,
        });
    }
}

/// The number of the epoch: of the innermost variable `epoch` of the functions that run (3.12 and later), or of code of
/// a module (3.11). Runs no code of the program, and does not have the interpreter make dictionaries of variables.
fn epoch(api: &'static PythonApi) -> Option<u32> {
    /// Callers that are looked at.
    const MOST_FRAMES: usize = 64;
    let globals = api.PyFrame_GetGlobals?;
    let (back, code_of) = (api.PyFrame_GetBack?, api.PyFrame_GetCode?);
    // SAFETY: the lock is held; the frame is borrowed, and runs on this thread.
    let frame = unsafe { (api.PyEval_GetFrame)() };
    // SAFETY: as above.
    let first = if frame.is_null() { None } else { Some(unsafe { OwnedRef::share(api, frame) }) };
    // SAFETY: as above; all of them return new references.
    let caller = |frame: &OwnedRef| unsafe { OwnedRef::new(api, back(frame.object())) };
    let number = |value: OwnedRef| {
        // SAFETY: as above.
        let class = unsafe { OwnedRef::new(api, (api.PyObject_Type)(value.object())) }?;
        // The number of an object of any other class would come from the class's own code.
        if class.object() != api.PyLong_Type {
            return None;
        }
        u32::try_from(value.number()?).ok()
    };
    let own = |frame: &OwnedRef| {
        // SAFETY: as above.
        let local = api.PyFrame_GetVarString.and_then(|variable| unsafe {
            OwnedRef::new(api, variable(frame.object(), c"epoch".as_ptr()))
        });
        if let Some(number) = local.and_then(number) {
            return Some(number);
        }
        // SAFETY: as above.
        let code = unsafe { OwnedRef::new(api, code_of(frame.object())) };
        if code?.attribute(c"co_name")?.text() != Some("<module>") {
            return None;
        }
        // SAFETY: as above.
        let globals = unsafe { OwnedRef::new(api, globals(frame.object())) }?;
        number(globals.value(&OwnedRef::interned(api, c"epoch")?)?)
    };
    let frames = std::iter::successors(first, caller).take(MOST_FRAMES);
    frames.filter_map(|frame| own(&frame)).next()
}

/// Writes a table; the next step to call the agent at, and whether all of it found room.
fn write(table: &OwnedRef, epoch: Option<u32>) -> Option<(u64, bool)> {
    let items: Vec<OwnedRef> = table.items().collect();
    let [next, step, every, saved, remarks, cost, rows, devices] = items.as_slice() else {
        return None;
    };
    let whole = |number: &OwnedRef| u64::try_from(number.number()?).ok();
    let short = |number: &OwnedRef| u32::try_from(whole(number)?).ok();
    let ring = ring::<PythonMessage>()?;
    let text = |text: &OwnedRef| match text.text() {
        None | Some("") => NO_TEXT,
        Some(text) => ring.text(text),
    };
    let rows: Option<Vec<RingLayer>> = rows.items().map(|row| row_of(&row, &text)).collect();
    let devices: Option<Vec<RingDeviceMemory>> =
        devices.items().map(|row| device_of(&row)).collect();
    let (rows, devices) = (rows?, devices?);
    let before = TABLES.fetch_add(u32::from(!rows.is_empty()), Ordering::Relaxed);
    let cost_ns = whole(cost)?;
    let is_written = ring.push(&PythonMessage::Layers(RingLayers {
        at_ns: now_ns(),
        step: whole(step)?,
        every: short(every)?,
        epoch,
        remarks: short(remarks)?,
        saved: whole(saved)?,
        cost_ns,
        devices,
        table: before + u32::from(!rows.is_empty()),
        rows,
    }));
    ring.producer().spend(WorkKind::Step, cost_ns);
    Some((whole(next)?, is_written))
}

/// The numbers of a tuple; `None` if an item is not a number, or negative.
fn numbers_of(items: &[OwnedRef]) -> Option<Vec<u64>> {
    items.iter().map(|item| u64::try_from(item.number()?).ok()).collect()
}

/// A GPU, as the agent's `table` makes it.
fn device_of(row: &OwnedRef) -> Option<RingDeviceMemory> {
    let [device, allocated, peak_allocated, reserved, peak_reserved, split] =
        numbers_of(&row.items().collect::<Vec<_>>())?[..]
    else {
        return None;
    };
    let device = u32::try_from(device).ok()?;
    Some(RingDeviceMemory { device, allocated, peak_allocated, reserved, peak_reserved, split })
}

/// A layer, as the agent's `table` makes it.
fn row_of(row: &OwnedRef, text: &dyn Fn(&OwnedRef) -> TextId) -> Option<RingLayer> {
    let items: Vec<OwnedRef> = row.items().collect();
    let (texts, numbers) = items.split_at_checked(5)?;
    let [path, type_name, shape, tied, device] = texts else { return None };
    let [flags, calls, weights, gradients, buffers, optimizer, outputs, saved, output_gradients] =
        numbers_of(numbers)?[..]
    else {
        return None;
    };
    Some(RingLayer {
        flags: u8::try_from(flags).ok()?,
        path: text(path),
        type_name: text(type_name),
        shape: text(shape),
        tied: text(tied),
        device: text(device),
        calls: gctrace_units::u32_or_most(calls),
        held: HeldBytes { weights, gradients, buffers, optimizer },
        made: MadeBytes { outputs, saved, output_gradients },
    })
}
