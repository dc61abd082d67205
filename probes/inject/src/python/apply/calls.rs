//! What the program itself asks of its collector: the lines that call functions of the module gc, and the settings that
//! it wants. Noted by [`collector_functions`](crate::python::collector_functions), read by the agent.

use super::quiet;
use super::sums::{Totals, totals};
use crate::process_ring::is_off;
use crate::python::api::{PythonApi, api};
use crate::python::collector_functions::{BeforeCall, CallListener, CollectorFunction};
use crate::python::frames::{CodeNames, RunningLine};
use crate::python::raw_frame::RawFrameLayout;
use gctrace_settings::{AskedCollections, SettingCalls};
use std::sync::{Mutex, MutexGuard};

/// Most lines of each kind that are kept.
pub(super) const MOST_LINES: usize = 100;

/// Longest name of a line in bytes; longer names keep their end.
const LONGEST: usize = 200;

/// The program's calls. Locked for short: no Python code runs meanwhile.
static CALLS: Mutex<Option<ProgramCalls>> = Mutex::new(None);

/// The program's calls and wishes.
pub(super) struct ProgramCalls {
    layout: Option<RawFrameLayout>,
    /// The thresholds and whether to collect, as the program last set them: given back with the
    /// settings.
    pub(super) thresholds: Vec<u32>,
    pub(super) is_enabled: bool,
    /// The thresholds are to be read: the program has set them.
    pub(super) has_set_thresholds: bool,
    /// The program has unfrozen since the last freeze.
    pub(super) is_unfrozen: bool,
    /// The last line that called each function.
    last: [Option<String>; 6],
    /// Number of steps so far.
    pub(super) steps: u64,
    pub(super) calls: Vec<SettingCalls>,
    pub(super) asked: Vec<AskedCollections>,
}

impl ProgramCalls {
    /// The line that last called a function.
    pub(super) fn last(&self, function: CollectorFunction) -> Option<&str> {
        self.last[function as usize].as_deref()
    }

    /// Forgets calls, not wishes: the process was forked.
    pub(super) fn forget(&mut self) {
        self.is_unfrozen = false;
        self.last = [const { None }; 6];
        self.steps = 0;
        self.calls.clear();
        self.asked.clear();
    }
}

/// Starts to note calls.
pub(super) fn begin(api: &'static PythonApi, thresholds: Vec<u32>, is_enabled: bool) {
    if let Some(mut calls) = locked() {
        *calls = Some(ProgramCalls {
            layout: RawFrameLayout::verified(api),
            thresholds,
            is_enabled,
            has_set_thresholds: false,
            is_unfrozen: false,
            last: [const { None }; 6],
            steps: 0,
            calls: Vec::new(),
            asked: Vec::new(),
        });
    }
}

/// The notes so far. `None`: nothing is noted in this process, or another thread of a free-threaded build is at it.
pub(super) fn with<T>(work: impl FnOnce(&mut ProgramCalls) -> T) -> Option<T> {
    locked()?.as_mut().map(work)
}

fn locked() -> Option<MutexGuard<'static, Option<ProgramCalls>>> {
    /// Another thread of a free-threaded build needs some hundred nanoseconds, unless it was there
    /// when the process was forked.
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        if let Ok(calls) = CALLS.try_lock() {
            return Some(calls);
        }
        std::hint::spin_loop();
    }
    None
}

pub(super) static LISTENER: CallListener = CallListener { before, after };

/// The collections so far; `None`: calls are not noted.
fn before(_: CollectorFunction) -> Option<BeforeCall> {
    let is_main = matches!(api(), Some(api) if api.interpreter_id() == 0);
    if is_main && super::is_active() && !is_off() { Some(totals().0) } else { None }
}

fn after(function: CollectorFunction, before: Option<&BeforeCall>, succeeded: bool) {
    let (Some(api), Some(before), true) = (api(), before, succeeded) else { return };
    let layout = with(|calls| calls.layout).flatten();
    let by = line(api, layout);
    let during = totals().since(Totals(*before));
    with(|calls| calls.note(function, by, during));
    quiet::end();
}

/// The line that this thread executes.
fn line(api: &'static PythonApi, layout: Option<RawFrameLayout>) -> String {
    let Some(line) = RunningLine::innermost(api, layout) else {
        return "the start of a thread".to_owned();
    };
    let (function, file) = CodeNames::new(api).of(line.code(), str::to_owned);
    let text = format!("{file}:{} {function}", line.line(api, layout));
    let start = text.len().saturating_sub(LONGEST);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at));
    text.get(start.unwrap_or(0)..).unwrap_or_default().to_owned()
}

impl ProgramCalls {
    fn note(&mut self, function: CollectorFunction, by: String, during: Totals) {
        match function {
            CollectorFunction::Enable => self.is_enabled = true,
            CollectorFunction::Disable => self.is_enabled = false,
            CollectorFunction::SetThreshold => self.has_set_thresholds = true,
            CollectorFunction::Unfreeze => self.is_unfrozen = true,
            CollectorFunction::Freeze => {}
            CollectorFunction::Collect => {
                self.last[function as usize] = Some(by.clone());
                return self.asked(&by, during);
            }
        }
        self.last[function as usize] = Some(by.clone());
        let (name, step) = (function.name(), self.steps + quiet::counted());
        let is_known = |line: &SettingCalls| line.function == name && line.by == by;
        let line = line_of(&mut self.calls, is_known, || SettingCalls {
            function: name.to_owned(),
            by: by.clone(),
            step,
            times: 0,
        });
        if let Some(line) = line {
            line.times += 1;
        }
    }

    fn asked(&mut self, by: &str, during: Totals) {
        let is_known = |line: &AskedCollections| line.by == by;
        let line = line_of(&mut self.asked, is_known, || AskedCollections {
            by: by.to_owned(),
            times: 0,
            garbage: 0,
            pause_ns: 0,
        });
        if let Some(line) = line {
            line.times += 1;
            line.garbage += during.garbage();
            line.pause_ns += during.pause_ns();
        }
    }
}

/// The line that is known, or a new one; `None`: there are [`MOST_LINES`] others.
pub(super) fn line_of<T>(
    lines: &mut Vec<T>,
    is_known: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> Option<&mut T> {
    let known = lines.iter().position(is_known);
    let at = known.unwrap_or(lines.len());
    if known.is_none() && at < MOST_LINES {
        lines.push(make());
    }
    lines.get_mut(at)
}
