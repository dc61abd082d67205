//! One interpreter (main or sub): what is hooked into it, and what is known of it.

use super::api::Api;
use super::api::FASTCALL;
use super::api::FastCall;
use super::api::Method;
use super::api::NULL;
use super::api::Object;
use super::callback;
use super::frames::Frames;
use super::object::Owned;
use super::watch;
use crate::process::Ring;
use crate::process::now_ns;
use crate::process::options;
use crate::process::ring;
use gctrace_ring::HookState;
use gctrace_ring::NO_TEXT;
use gctrace_ring::Record;
use gctrace_ring::Role;
use std::ffi::CStr;
use std::ffi::c_void;
use std::sync::Mutex;

/// Thresholds and whether automatic collections are on.
pub(crate) type Settings = ([i32; 3], bool);

/// What changes. Behind a lock that is never waited for: only builds without the interpreter's lock, or user
/// code run from within ours, can find it taken.
pub(crate) struct State {
    /// When the collection that is running began; 0: none is.
    pub(crate) begin_ns: u64,
    /// The ring that was told of this interpreter.
    pub(crate) introduced: u32,
    pub(crate) settings: Option<Settings>,
    /// To be looked at when the next collection begins.
    pub(crate) settings_are_due: bool,
    /// Collections of the interpreter's statistics when the hook was put in, and those seen since.
    pub(crate) before: u64,
    pub(crate) seen: u64,
    pub(crate) was_restored: bool,
    pub(crate) frames: Frames,
    /// `None` once the interpreter ends.
    pub(crate) live: Option<Live>,
}

/// Objects of the interpreter, held until it ends.
pub(crate) struct Live {
    /// The list that the collector reads, whatever `gc.callbacks` names by now.
    pub(crate) callbacks: Owned,
    /// Our entry in it. Not held: that it dies says that the program took it out.
    pub(crate) entry: Object,
    get_threshold: Owned,
    is_enabled: Owned,
    get_stats: Owned,
    collections: Owned,
}

// SAFETY: objects are only used with the interpreter's lock held, whatever the thread.
unsafe impl Send for State {}

/// Keys of the dictionary that callbacks get.
pub(crate) struct Keys {
    pub(crate) generation: Object,
    pub(crate) collected: Object,
    pub(crate) uncollectable: Object,
}

/// One interpreter. Lives until its entry in `gc.callbacks` is gone for good.
pub(crate) struct Interpreter {
    pub(crate) api: &'static Api,
    pub(crate) id: i64,
    pub(crate) stack_depth: u32,
    pub(crate) keys: Keys,
    pub(crate) state: Mutex<State>,
}

/// Tells our capsules from others'.
pub(crate) const CAPSULE: &CStr = c"gctrace";

/// Hooks into the interpreter whose lock is held; `Err`: why not.
pub(crate) fn install(api: &'static Api) -> Result<(), &'static str> {
    let options = options().ok_or("not asked for")?;
    if !is_first_time(api) {
        return Ok(());
    }
    let gc = Owned::import(api, c"gc").ok_or("there is no module gc")?;
    let missing = "the module gc lacks a function";
    let callbacks = gc.attribute(c"callbacks").ok_or(missing)?;
    let id = api.interpreter_id();
    if id != 0 && has_entry(&callbacks) {
        return Err(
            "it shares the list gc.callbacks of the main interpreter, which its collector does not read (3.9)",
        );
    }
    let live = Live {
        callbacks,
        entry: NULL,
        get_threshold: gc.attribute(c"get_threshold").ok_or(missing)?,
        is_enabled: gc.attribute(c"isenabled").ok_or(missing)?,
        get_stats: gc.attribute(c"get_stats").ok_or(missing)?,
        collections: text(api, c"collections").ok_or(missing)?,
    };
    let before = live.collections();
    let key = |name| text(api, name).map(Owned::release).ok_or(missing);
    let interpreter = Interpreter {
        api,
        id,
        stack_depth: options.stack_depth,
        keys: Keys {
            generation: key(c"generation")?,
            collected: key(c"collected")?,
            uncollectable: key(c"uncollectable")?,
        },
        state: Mutex::new(State {
            begin_ns: 0,
            introduced: 0,
            settings: None,
            settings_are_due: false,
            before,
            seen: 0,
            was_restored: false,
            frames: Frames::new(api),
            live: Some(live),
        }),
    };
    // From now on it belongs to its capsule.
    let interpreter: &'static Interpreter = Box::leak(Box::new(interpreter));
    let mut state = interpreter.state.try_lock().map_err(|_| "it is in use")?;
    interpreter
        .put_in(&mut state)
        .ok_or("gc.callbacks takes no entry")?;
    watch::begin(interpreter);
    interpreter.introduce(&mut state);
    Ok(())
}

/// Whether this is the first call in the interpreter: a module can be imported again.
fn is_first_time(api: &'static Api) -> bool {
    let dictionary = api.interpreter_dictionary();
    let Some(mark) = text(api, CAPSULE) else {
        return true;
    };
    if dictionary.is_null() {
        return true;
    }
    // SAFETY: the lock is held; the interpreter owns the dictionary.
    unsafe {
        let dictionary = Owned::share(api, dictionary);
        let is_first = dictionary.value(&mark).is_none();
        if (api.PyDict_SetItemString)(dictionary.object(), CAPSULE.as_ptr(), mark.object()) != 0 {
            (api.PyErr_Clear)();
        }
        is_first
    }
}

fn text(api: &'static Api, text: &CStr) -> Option<Owned> {
    // SAFETY: the lock is held.
    unsafe { Owned::new(api, (api.PyUnicode_InternFromString)(text.as_ptr())) }
}

/// A C function for Python to call, with the interpreter as its self. `end`: called when nobody holds it any more.
pub(crate) fn callable(
    interpreter: &'static Interpreter,
    method: &'static Method,
    end: Option<unsafe extern "C" fn(Object)>,
) -> Option<Owned> {
    let api = interpreter.api;
    let pointer = std::ptr::from_ref(interpreter).cast_mut().cast::<c_void>();
    // SAFETY: the lock is held; name and method are static.
    unsafe {
        let capsule = Owned::new(api, (api.PyCapsule_New)(pointer, CAPSULE.as_ptr(), end))?;
        Owned::new(api, (api.PyCFunction_NewEx)(method, capsule.object(), NULL))
    }
}

/// How Python sees a function of ours.
pub(crate) const fn method(name: &'static CStr, function: FastCall) -> Method {
    Method {
        name: name.as_ptr(),
        function,
        flags: FASTCALL,
        doc: std::ptr::null(),
    }
}

/// The interpreter behind a capsule of ours.
///
/// # Safety
/// The lock is held; the capsule was made by `callable`.
#[inline]
pub(crate) unsafe fn behind(api: &Api, capsule: Object) -> Option<&'static Interpreter> {
    // SAFETY: as the caller promises; the pointer is to a leaked interpreter.
    unsafe {
        (api.PyCapsule_GetPointer)(capsule, CAPSULE.as_ptr())
            .cast::<Interpreter>()
            .as_ref()
    }
}

/// Whether a list of callbacks has an entry of ours, of whichever interpreter.
fn has_entry(callbacks: &Owned) -> bool {
    callbacks.items().any(|item| {
        let name = item.attribute(c"__name__");
        name.as_ref().and_then(Owned::text) == Some(callback::NAME_TEXT)
    })
}

impl Live {
    /// Collections of all generations so far, as the collector counts them.
    pub(crate) fn collections(&self) -> u64 {
        let Some(all) = self.get_stats.call(None) else {
            return 0;
        };
        let count = |one: Owned| {
            one.value(&self.collections)
                .map_or(0, |value| value.number())
        };
        all.items().map(count).sum::<i64>().cast_unsigned()
    }

    pub(crate) fn has_entry(&self) -> bool {
        self.callbacks
            .items()
            .any(|item| item.object() == self.entry)
    }

    fn settings(&self) -> Option<Settings> {
        let thresholds = self.get_threshold.call(None)?;
        let mut values = [0; 3];
        for (value, item) in values.iter_mut().zip(thresholds.items()) {
            *value = i32::try_from(item.number()).unwrap_or(i32::MAX);
        }
        let is_enabled = self.is_enabled.call(None)?.number() != 0;
        Some((values, is_enabled))
    }
}

impl Interpreter {
    /// Puts our entry into the list.
    pub(crate) fn put_in(&'static self, state: &mut State) -> Option<()> {
        let live = state.live.as_mut()?;
        let entry = callable(self, &callback::METHOD, Some(watch::taken_out))?;
        // SAFETY: the lock is held, both are alive; the list holds the entry from now on.
        let failed =
            unsafe { (self.api.PyList_Append)(live.callbacks.object(), entry.object()) } != 0;
        if failed {
            // SAFETY: as above.
            unsafe { (self.api.PyErr_Clear)() };
            return None;
        }
        live.entry = entry.object();
        Some(())
    }

    /// Tells this process's ring of the interpreter, once.
    pub(crate) fn introduce(&self, state: &mut State) -> Option<&'static Ring> {
        let ring = ring(Role::Python)?;
        if state.introduced != ring.number() {
            state.introduced = ring.number();
            super::say_interpreter(self.api, ring);
            self.say(ring, HookState::Installed, "", 0);
            state.settings = None;
            self.look_at_settings(ring, state);
        }
        Some(ring)
    }

    /// Writes what became of the hook.
    pub(crate) fn say(&self, ring: &Ring, hook: HookState, detail: &str, count: u64) {
        ring.push(&Record::Hook {
            at_ns: now_ns(),
            state: hook,
            interpreter: self.id,
            detail: if detail.is_empty() {
                NO_TEXT
            } else {
                ring.text(detail)
            },
            count,
        });
    }

    /// Writes the collector's settings if they are not as they were.
    pub(crate) fn look_at_settings(&self, ring: &Ring, state: &mut State) {
        let Some(settings) = state.live.as_ref().and_then(Live::settings) else {
            return;
        };
        if state.settings == Some(settings) {
            return;
        }
        state.settings = Some(settings);
        let (thresholds, enabled) = settings;
        ring.push(&Record::Settings {
            at_ns: now_ns(),
            interpreter: self.id,
            thresholds,
            enabled,
        });
    }
}
