//! Which processes were looked into for Python, and which could have run it unseen.
//!
//! Owns the answer to "is anything missing?": "nothing lost" may be said only where [`ExaminedProcesses::is_complete`].
//! Both sources report here; who finds out is `watch.rs` and `injected.rs`.

use gctrace_event::ExaminedProcesses;
use gctrace_ring::Absence;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;

/// Why Python may have run unseen in a process. `Display` is the clause that stands in the trace, true of one and of
/// several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unexamined {
    /// It ended, or ran another program, before its files or libraries were looked at.
    Ended,
    /// It ran Python for a time before its probes were in.
    Late,
    /// Its Python was found, and the kernel refused the probes.
    Unprobed,
    /// In-process: [`gctrace_ring::Absence::Confined`].
    Confined,
    /// In-process: [`gctrace_ring::Absence::Environment`].
    Environment,
    /// In-process: [`gctrace_ring::Absence::OtherGctrace`].
    OtherGctrace,
    /// In-process: its interpreter, or one of them, took no entry in `gc.callbacks`, or the program took it out.
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
            Self::Confined => {
                "confined by a seccomp filter, under which the library makes no system call"
            }
            Self::Environment => "started without gctrace's variables (LD_PRELOAD)",
            Self::OtherGctrace => "recorded by another gctrace inside",
            Self::Unhooked => "without gctrace in gc.callbacks",
            Self::Forbidden => "could not be inspected",
        })
    }
}

impl From<Absence> for Unexamined {
    fn from(absence: Absence) -> Self {
        match absence {
            Absence::Confined => Self::Confined,
            Absence::Environment => Self::Environment,
            Absence::OtherGctrace => Self::OtherGctrace,
        }
    }
}

/// What is known of one process.
#[derive(Clone, Copy, Debug, Default)]
struct ExaminationResult {
    python: bool,
    unexamined: Option<Unexamined>,
}

/// The processes of a recording, by what was found in them.
#[derive(Debug, Default)]
pub(crate) struct Examination {
    living: HashMap<u32, ExaminationResult>,
    ended: ExaminedProcesses,
    other: u64,
    /// Processes that are not known otherwise.
    absent: BTreeMap<Unexamined, u64>,
}

impl Examination {
    /// A process began, as a copy of its parent where that is recorded.
    pub(crate) fn began(&mut self, pid: u32, parent: Option<u32>) {
        self.ended(pid);
        let inherited = parent.and_then(|parent| self.living.get(&parent));
        let python = inherited.is_some_and(|parent| parent.python);
        let finding = ExaminationResult {
            python,
            unexamined: None,
        };
        self.living.insert(pid, finding);
    }

    /// Its program was looked into: whether there is Python in it.
    pub(crate) fn examined(&mut self, pid: u32, python: bool) {
        self.living.entry(pid).or_default().python |= python;
    }

    /// It was looked into: whether there is Python in it, and why what is there is not seen.
    pub(crate) fn record_examined(
        &mut self,
        pid: u32,
        (armed, unprobed): (bool, Option<Unexamined>),
    ) {
        match unprobed.filter(|_| !armed) {
            Some(why) => self.unexamined(pid, why),
            None => self.examined(pid, armed),
        }
    }

    /// It may have run Python unseen. Stays so, whatever is found later; of several reasons the first counts.
    pub(crate) fn unexamined(&mut self, pid: u32, why: Unexamined) {
        let finding = self.living.entry(pid).or_default();
        finding.unexamined.get_or_insert(why);
    }

    /// So many processes are known by their absence only.
    pub(crate) fn absent(&mut self, why: Unexamined, count: u64) {
        self.absent.insert(why, count);
    }

    /// It ended.
    pub(crate) fn ended(&mut self, pid: u32) {
        if let Some(finding) = self.living.remove(&pid) {
            count(finding, &mut self.ended, &mut self.other);
        }
    }

    /// All processes, those that run included. `counts_others`: processes without Python report here as well.
    pub(crate) fn result(&self, counts_others: bool) -> ExaminedProcesses {
        let (mut result, mut other) = (self.ended.clone(), self.other);
        for finding in self.living.values() {
            count(*finding, &mut result, &mut other);
        }
        for (why, count) in self.absent.iter().filter(|(_, count)| **count > 0) {
            *result.unexamined.entry(why.to_string()).or_default() += count;
        }
        result.other = counts_others.then_some(other);
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

/// `3 processes ended before being examined`, one after another.
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
    fn processes_count_once_and_doubt_stays() {
        let mut examination = Examination::default();
        examination.began(1, None);
        examination.examined(1, true);
        examination.began(2, Some(1));
        examination.began(3, None);
        examination.unexamined(3, Unexamined::Ended);
        examination.examined(3, true);
        examination.began(4, None);
        examination.examined(4, false);
        for pid in [3, 4] {
            examination.ended(pid);
        }
        // The number of a process that ended may come again.
        examination.began(4, None);
        let result = examination.result(true);
        assert_eq!((result.python, result.other), (3, Some(2)));
        assert_eq!(result.unexamined(), 1);
        assert!(!result.is_complete());
        assert_eq!(
            unexamined_words(&result.unexamined),
            "1 process ended before being examined"
        );
        assert!(!Examination::default().result(false).is_complete());
        assert!(Examination::default().result(true).is_complete());
    }
}
