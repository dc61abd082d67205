//! The functions of the module gc: called directly, and watched when the program calls them.
//!
//! No attribute is replaced. For functions that change settings, a function of ours stands in the method table
//! (`builtin.rs`) and calls the original with the same arguments. Listeners note the results: for the record
//! (`asked.rs`), and for settings that are applied (`apply/calls.rs`).

use super::api::{NULL, Object, PythonApi};
use super::builtin::{Builtin, FASTCALL, KEYWORDS, Native, StandIn};
use super::object::OwnedRef;
use crate::recording::guarded;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that programs call to change settings, or to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectorFunction {
    Enable,
    Disable,
    SetThreshold,
    Freeze,
    Unfreeze,
    Collect,
}

impl CollectorFunction {
    pub(super) const ALL: [Self; 6] = [
        Self::Enable,
        Self::Disable,
        Self::SetThreshold,
        Self::Freeze,
        Self::Unfreeze,
        Self::Collect,
    ];

    /// Its name in the module gc.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::SetThreshold => "set_threshold",
            Self::Freeze => "freeze",
            Self::Unfreeze => "unfreeze",
            Self::Collect => "collect",
        }
    }
}

/// A listener's knowledge from before a call: nothing in it needs destruction, as a thread may end within the call.
pub(super) type BeforeCall = [[u64; 3]; 4];

/// A recording, or settings that are applied: called when the program calls a function of the module.
pub(super) struct CallListener {
    /// It is about to be called.
    pub(super) before: fn(CollectorFunction) -> Option<BeforeCall>,
    /// It returned; `succeeded`: no exception is set.
    pub(super) after: fn(CollectorFunction, Option<&BeforeCall>, bool),
}

/// Null: none.
static LISTENERS: [AtomicPtr<CallListener>; 2] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

/// Puts one pointer in the place of another; `None`: there is none.
fn exchange(from: *mut CallListener, to: *mut CallListener) -> Option<()> {
    let mut places = LISTENERS.iter();
    let is_done = |place: &AtomicPtr<CallListener>| {
        place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if places.any(is_done) { Some(()) } else { None }
}

macro_rules! watches {
    ($($at:literal),*) => {
        [$(StandIn::new(called::<$at>)),*]
    };
}

/// In the order of [`CollectorFunction::ALL`]. One for all interpreters: they share the method tables.
static WATCHES: [StandIn; 6] = watches!(0, 1, 2, 3, 4, 5);

/// Stands before a function in the method table. Unwinds where a thread ends within the call
/// (`pthread_exit`, as CPython has it when the interpreter ends).
unsafe extern "C-unwind" fn called<const AT: usize>(
    module: Object,
    first: *const c_void,
    second: usize,
    third: Object,
) -> Object {
    let function = CollectorFunction::ALL[AT];
    let listeners = LISTENERS.each_ref().map(|place| place.load(Ordering::Acquire));
    // SAFETY: null, or a static one.
    let listeners = listeners.map(|listener| unsafe { listener.as_ref() });
    let before = listeners.map(|listener| guarded(|| (listener?.before)(function)).flatten());
    // SAFETY: called by the interpreter in its place.
    let result = unsafe { WATCHES[AT].call_original(module, first, second, third) };
    for (listener, before) in listeners.into_iter().zip(before) {
        if let Some(listener) = listener {
            guarded(|| (listener.after)(function, before.as_ref(), !result.is_null()));
        }
    }
    result
}

/// The function in a method table before ours.
fn original(function: *mut c_void) -> *mut c_void {
    let ours = WATCHES.iter().find(|watch| watch.is(function));
    if let Some(ours) = ours { ours.original() } else { function }
}

/// The collector of the main interpreter.
pub(super) struct Collector {
    api: &'static PythonApi,
    watched: [Builtin; 6],
    get_threshold: Builtin,
    is_enabled: Builtin,
    get_count: Builtin,
    get_freeze_count: Builtin,
}

// SAFETY: used with the interpreter's lock held, whatever the thread.
unsafe impl Send for Collector {}

impl Collector {
    /// `None`: the functions are not as every CPython has them.
    pub(super) fn find(api: &'static PythonApi, gc: &OwnedRef) -> Option<Self> {
        let find = |name| Builtin::find(api, gc, name, original);
        let collect = find(c"collect").filter(|one| one.flags == FASTCALL | KEYWORDS)?;
        Some(Self {
            api,
            watched: [
                find(c"enable")?,
                find(c"disable")?,
                find(c"set_threshold")?,
                find(c"freeze")?,
                find(c"unfreeze")?,
                collect,
            ],
            get_threshold: find(c"get_threshold")?,
            is_enabled: find(c"isenabled")?,
            get_count: find(c"get_count")?,
            get_freeze_count: find(c"get_freeze_count")?,
        })
    }

    /// Puts our functions in their places. `None`: the method table cannot be written.
    pub(super) fn watch(&self, listener: &'static CallListener) -> Option<()> {
        if !self.watched.iter().all(Builtin::is_writable) {
            return None;
        }
        let listener = std::ptr::from_ref(listener).cast_mut();
        if exchange(listener, listener).is_none() {
            exchange(std::ptr::null_mut(), listener)?;
        }
        for (builtin, watch) in self.watched.iter().zip(&WATCHES) {
            watch.stand_before(builtin);
        }
        Some(())
    }

    fn run(&self, function: CollectorFunction, numbers: &[u32]) -> Option<OwnedRef> {
        self.watched[function as usize].call(self.api, numbers)
    }

    /// A collection of a generation, to be run.
    pub(super) fn collection(&self, generation: i64) -> Option<CollectCall> {
        let collect = &self.watched[CollectorFunction::Collect as usize];
        Some(CollectCall {
            api: self.api,
            native: collect.native,
            module: collect.module,
            generation: OwnedRef::integer(self.api, generation)?.release(),
        })
    }

    pub(super) fn enable(&self) {
        self.run(CollectorFunction::Enable, &[]);
    }

    pub(super) fn disable(&self) {
        self.run(CollectorFunction::Disable, &[]);
    }

    pub(super) fn set_thresholds(&self, values: &[u32]) {
        self.run(CollectorFunction::SetThreshold, values);
    }

    pub(super) fn freeze(&self) {
        self.run(CollectorFunction::Freeze, &[]);
    }

    pub(super) fn unfreeze(&self) {
        self.run(CollectorFunction::Unfreeze, &[]);
    }

    /// The thresholds, as `gc.get_threshold()` returns them.
    pub(super) fn thresholds(&self) -> Option<Vec<u32>> {
        let values = self.get_threshold.call(self.api, &[])?;
        let value = |item: OwnedRef| u32::try_from(item.number()?).ok();
        values.items().map(value).collect()
    }

    pub(super) fn is_enabled(&self) -> Option<bool> {
        Some(self.is_enabled.call(self.api, &[])?.number()? != 0)
    }

    /// Objects in the youngest generation.
    pub(super) fn waiting(&self) -> Option<u64> {
        let first = self.get_count.call(self.api, &[])?.items().next()?;
        u64::try_from(first.number()?).ok()
    }

    pub(super) fn frozen(&self) -> Option<u64> {
        let count = self.get_freeze_count.call(self.api, &[])?;
        u64::try_from(count.number()?).ok()
    }
}

/// A call of `gc.collect()` that is still to be made. It runs Python code, and a thread may end in it when the
/// interpreter does: nothing here is dropped then. It is made outside of [`guarded`]: that would take such an end for a
/// fault.
pub(super) struct CollectCall {
    api: &'static PythonApi,
    native: Native,
    module: Object,
    /// The generation: a small integer, a single object.
    generation: Object,
}

impl CollectCall {
    /// Collects. The lock is held, and no exception is set before or after.
    pub(super) fn run(self) {
        let arguments = [self.generation];
        // SAFETY: the lock is held; a function of this kind, see `Collector::find`.
        unsafe {
            let result = (self.native)(self.module, arguments.as_ptr().cast(), 1, NULL);
            if result.is_null() {
                (self.api.PyErr_Clear)()
            } else {
                (self.api.Py_DecRef)(result)
            }
            (self.api.Py_DecRef)(self.generation);
        }
    }
}

/// Removes a listener, and gives the places back after the last one.
pub(super) fn unwatch(listener: &'static CallListener) {
    exchange(std::ptr::from_ref(listener).cast_mut(), std::ptr::null_mut());
    if LISTENERS.iter().all(|place| place.load(Ordering::Acquire).is_null()) {
        WATCHES.iter().for_each(StandIn::withdraw);
    }
}
