//! Splits a plan into what each link needs. Pure; `link.rs` creates the links.

use crate::support::AttachMethod;
use crate::wire::{ARGUMENT_UNKNOWN, Point};
use gctrace_abi::{ArgumentRegister, CollectorArguments, ProbePointKind};

/// A location in a file to probe.
#[derive(Clone, Debug)]
pub struct PlannedPoint {
    /// Kind of the probed location. It decides how the program treats a hit.
    pub kind: ProbePointKind,
    /// Index returned by [`crate::BpfSession::add_layout`]. Pauses of points without a layout are not recorded; builds
    /// with unknown offsets have one too.
    pub layout: Option<u32>,
    /// The arguments that the program can read there; for [`ProbePointKind::Collect`] only.
    pub arguments: CollectorArguments,
    /// Address of `_PyRuntime` minus the address of the probed instruction, in bytes.
    pub runtime_delta: i64,
    /// File offset of the probed instruction; `None`: no entry probe.
    pub entry: Option<u64>,
    /// File offset of the return probe, equal to the entry's; `None`: no return probe.
    pub on_return: Option<u64>,
    /// File offset of the USDT semaphore.
    pub semaphore: Option<u64>,
}

impl PlannedPoint {
    /// `except`: hits of the process with this id are ignored.
    pub(crate) fn wire(&self, except: Option<u32>) -> Point {
        let register = |of: Option<ArgumentRegister>| if let Some(of) = of { of as u32 } else { 0 };
        let arguments = &self.arguments;
        Point {
            runtime_delta: self.runtime_delta,
            kind: self.kind as u32,
            layout: self.layout.unwrap_or(crate::wire::NO_OFFSET),
            tstate_register: register(arguments.tstate),
            generation_register: register(arguments.generation),
            reason_register: register(arguments.reason),
            nofail_register: register(arguments.no_fail),
            fixed_generation: arguments.fixed_generation.map_or(ARGUMENT_UNKNOWN, i32::from),
            // No process has the pid 0.
            except: except.unwrap_or(0),
        }
    }
}

/// Where in a function a link's program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeEnd {
    Entry,
    Return,
    /// At the entry; the program then decides whether to run at the return of that call too.
    Both,
}

/// The probes of one link: one file, one [`ProbeEnd`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkPlan {
    pub(crate) offsets: Vec<usize>,
    pub(crate) cookies: Vec<u64>,
    pub(crate) semaphores: Vec<usize>,
}

impl LinkPlan {
    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub(crate) fn push(&mut self, offset: u64, cookie: u64, semaphore: Option<u64>) {
        // 64 bits: a file offset fits usize
        self.offsets.push(offset as usize);
        self.cookies.push(cookie);
        self.semaphores.push(semaphore.unwrap_or(0) as usize);
    }

    /// Offsets of the semaphores as required by the kernel: empty if no probe has one.
    pub(crate) fn semaphores_if_any(&self) -> Vec<usize> {
        if self.semaphores.iter().all(|offset| *offset == 0) {
            Vec::new()
        } else {
            self.semaphores.clone()
        }
    }
}

/// Splits a file's points into its links, in the order to create them. `first_index` is the index
/// in the map `points` of the first of them, and so its cookie.
pub(crate) fn plan_links(
    points: &[PlannedPoint],
    first_index: u32,
    method: AttachMethod,
) -> Vec<(ProbeEnd, LinkPlan)> {
    // Return probes first: a pause with a seen start must have a seen end.
    let ends = [ProbeEnd::Return, ProbeEnd::Both, ProbeEnd::Entry];
    let mut links = ends.map(|end| (end, LinkPlan::default()));
    let [(_, returns), (_, both), (_, entries)] = &mut links;
    for (cookie, point) in (u64::from(first_index)..).zip(points) {
        if let Some(offset) = point.entry {
            // In a session the program decides, by the kind of a point, whether the return is of interest.
            let at_entry = if method == AttachMethod::Session { &mut *both } else { &mut *entries };
            at_entry.push(offset, cookie, point.semaphore);
        }
        if let Some(offset) = point.on_return
            && (method != AttachMethod::Session || point.entry.is_none())
        {
            // The entry's link holds the reference to the semaphore: one is enough.
            returns.push(offset, cookie, None);
        }
    }
    let planned = links.into_iter();
    planned.filter(|(_, plan)| !plan.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(entry: Option<u64>, on_return: Option<u64>, semaphore: Option<u64>) -> PlannedPoint {
        PlannedPoint {
            kind: ProbePointKind::Collect,
            layout: Some(0),
            arguments: CollectorArguments::default(),
            runtime_delta: 0,
            entry,
            on_return,
            semaphore,
        }
    }

    #[test]
    fn one_link_per_end_and_cookies_are_indexes() {
        let points = [point(Some(16), Some(12), None), point(Some(32), None, Some(64))];
        for method in [AttachMethod::Single, AttachMethod::Multi] {
            let links = plan_links(&points, 5, method);
            let [(ProbeEnd::Return, returns), (ProbeEnd::Entry, entries)] = links.as_slice() else {
                panic!("{links:?}");
            };
            assert_eq!(entries.offsets, [16, 32]);
            assert_eq!(entries.cookies, [5, 6]);
            assert_eq!(entries.semaphores_if_any(), [0, 64]);
            assert_eq!(returns.offsets, [12]);
            assert_eq!(returns.cookies, [5]);
            assert!(returns.semaphores_if_any().is_empty());
        }
    }

    #[test]
    fn a_session_has_one_link_for_all_entries() {
        let points = [
            point(Some(16), Some(16), None),
            point(Some(32), None, Some(8)),
            point(None, Some(48), None),
        ];
        let links = plan_links(&points, 5, AttachMethod::Session);
        let links: Vec<_> = links
            .iter()
            .map(|(end, plan)| (*end, plan.offsets.as_slice(), plan.cookies.as_slice()))
            .collect();
        let expected: [(_, &[usize], &[u64]); 2] =
            [(ProbeEnd::Return, &[48], &[7]), (ProbeEnd::Both, &[16, 32], &[5, 6])];
        assert_eq!(links, expected);
    }
}
