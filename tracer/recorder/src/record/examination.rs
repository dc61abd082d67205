//! Processes examined for Python, and processes that could have run it unseen.
//!
//! Owns whether anything is missing: gctrace reports "nothing lost" only if
//! [`ExaminedProcesses::is_complete`]. Both sources report here, from `kernel/` and `inprocess/`.

use gctrace_event::ExaminedProcesses;
use gctrace_ring::Absence;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Why Python may have run unseen in a process. `Display` is the clause written to the trace, in a
/// form that fits one process and several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unexamined {
    /// It exited, or executed another program, before its files or libraries were examined.
    Ended,
    /// It ran Python before its probes were placed.
    Late,
    /// Its Python was found, but the kernel refused the probes.
    Unprobed,
    /// It handed over no ring, and reported why; or the library found a fault in itself later
    /// ([`Absence::SwitchedOff`]), or the probes found PyPy.
    Absent(Absence),
    /// In-process: the `gc.callbacks` of one of its interpreters took no entry, or the program
    /// removed it.
    Unhooked,
    /// Neither it nor its files may be read.
    Forbidden,
}

impl fmt::Display for Unexamined {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ended => "ended before being examined",
            Self::Late => "ran Python before being probed",
            Self::Unprobed => "ran a Python that could not be probed",
            Self::Absent(Absence::Confined) => {
                "confined by a seccomp filter: there the library makes no system call"
            }
            Self::Absent(Absence::Environment) => {
                "started without gctrace's variables (LD_PRELOAD)"
            }
            Self::Absent(Absence::OtherGctrace) => "recorded by another gctrace inside",
            Self::Absent(Absence::SwitchedOff) => "in which gctrace's library switched itself off",
            Self::Unhooked => "without gctrace in gc.callbacks",
            Self::Forbidden => "could not be inspected",
            Self::Absent(Absence::Limited) => {
                "whose limits (ulimit) leave no room for gctrace's records"
            }
            Self::Absent(Absence::PyPy) => "ran PyPy; gctrace does not record its collector",
        })
    }
}

/// The findings about one process.
#[derive(Clone, Copy, Debug, Default)]
struct ExaminationResult {
    python: bool,
    unexamined: Option<Unexamined>,
}

/// The processes of a recording, by the result of their examination.
#[derive(Debug, Default)]
pub struct Examination {
    living: HashMap<u32, ExaminationResult>,
    ended: ExaminedProcesses,
    other: u64,
    /// Processes known only by their absence, and why.
    absent: BTreeMap<Unexamined, u64>,
}

impl Examination {
    /// A process started, as a copy of its parent if that is recorded.
    pub fn started(&mut self, pid: u32, parent: Option<u32>) {
        self.ended(pid);
        let inherited = parent.and_then(|parent| self.living.get(&parent));
        let python = matches!(inherited, Some(parent) if parent.python);
        let finding = ExaminationResult { python, unexamined: None };
        self.living.insert(pid, finding);
    }

    /// Its program was examined: whether it contains Python.
    pub fn examined(&mut self, pid: u32, python: bool) {
        self.living.entry(pid).or_default().python |= python;
    }

    /// It was examined: whether it contains Python, and if that is not seen, why.
    pub fn record_examined(&mut self, pid: u32, (armed, unprobed): (bool, Option<Unexamined>)) {
        match unprobed {
            Some(why) if !armed => self.unexamined(pid, why),
            _ => self.examined(pid, armed),
        }
    }

    /// It may have run Python unseen. Never reset by later findings; the first of several reasons
    /// counts.
    pub fn unexamined(&mut self, pid: u32, why: Unexamined) {
        let finding = self.living.entry(pid).or_default();
        finding.unexamined.get_or_insert(why);
    }

    /// Why a living process may have run Python unseen, if so.
    pub fn why_unexamined(&self, pid: u32) -> Option<Unexamined> {
        self.living.get(&pid)?.unexamined
    }

    /// `count` processes are known only by their absence.
    pub fn absent(&mut self, why: Unexamined, count: u64) {
        self.absent.insert(why, count);
    }

    /// Adds the finding on an exited process to the totals, so that its pid can be reused.
    pub fn ended(&mut self, pid: u32) {
        if let Some(finding) = self.living.remove(&pid) {
            count(finding, &mut self.ended, &mut self.other);
        }
    }

    /// All processes, running ones included. `counts_others`: processes without Python report here
    /// as well.
    pub fn result(&self, counts_others: bool) -> ExaminedProcesses {
        let (mut result, mut other) = (self.ended.clone(), self.other);
        for finding in self.living.values() {
            count(*finding, &mut result, &mut other);
        }
        for (why, count) in &self.absent {
            if *count > 0 {
                *result.unexamined.entry(why.to_string()).or_default() += count;
            }
        }
        result.other = if counts_others { Some(other) } else { None };
        result
    }
}

fn count(finding: ExaminationResult, examined: &mut ExaminedProcesses, other: &mut u64) {
    match finding.unexamined {
        Some(why) => *examined.unexamined.entry(why.to_string()).or_default() += 1,
        None if !finding.python => *other += 1,
        None => {}
    }
    examined.python += u64::from(finding.python);
}

/// `3 processes ended before being examined`, reasons joined by commas.
pub(crate) fn unexamined_words(unexamined: &BTreeMap<String, u64>) -> String {
    let words = unexamined.iter().map(|(why, count)| {
        let noun = if *count == 1 { "process" } else { "processes" };
        format!("{count} {noun} {why}")
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_count_once_and_stay_unexamined() {
        let mut examination = Examination::default();
        examination.started(1, None);
        examination.examined(1, true);
        examination.started(2, Some(1));
        examination.started(3, None);
        examination.unexamined(3, Unexamined::Ended);
        examination.examined(3, true);
        examination.started(4, None);
        examination.examined(4, false);
        for pid in [3, 4] {
            examination.ended(pid);
        }
        // A pid is reused.
        examination.started(4, None);
        let result = examination.result(true);
        assert_eq!((result.python, result.other), (3, Some(2)));
        assert_eq!(result.unexamined(), 1);
        assert!(!result.is_complete());
        assert_eq!(unexamined_words(&result.unexamined), "1 process ended before being examined");
        assert!(!Examination::default().result(false).is_complete());
        assert!(Examination::default().result(true).is_complete());
    }
}
