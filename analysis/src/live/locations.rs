//! Names of Python lines, and the lines that triggered pauses.
//!
//! Owns three choices: how many names are kept, however many a program creates; the part of a stack that is shown
//! (the program's own innermost line, and the library line below it); and how much of the texts of a program is kept.

use super::snapshot::{CodeLine, LineFigures};
use crate::report::{Location, PauseTotal};
use crate::stacks::{LocationId, Locations, StackLines};
use gctrace_event::{CycleEdge, CycleSignature, Frame, FrameId, KindName, ObjectKind};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Number of frames with known lines: 3 MiB. A frame is a line together with all its callers;
/// training programs have some ten thousand.
const FRAMES: usize = 1 << 18;
/// Maximum number of lines with names.
const LINES: usize = 1 << 15;
/// Maximum length of a name, in bytes; longer ones are cut.
const NAME_BYTES: usize = 512;
/// Number of lines of one process with sums of their own. If there are more, the half with the
/// least time is merged.
const SUMMED: usize = 1_024;

/// Lines by name, and the lines of each frame.
#[derive(Debug, Default)]
pub(super) struct LocationTable {
    lines: Locations,
    /// By [`FrameId`], counted from 1 without gaps; `None` if it is unknown.
    frames: Vec<Option<StackLines>>,
    full: bool,
}

impl LocationTable {
    /// Adds a frame; its callers were added before. `true`: from now on new lines have no name,
    /// returned once.
    pub(super) fn add(&mut self, frame: &Frame) -> bool {
        let at = frame.id as usize;
        let Some(place) = self.place(frame).filter(|_| at < FRAMES) else {
            return !std::mem::replace(&mut self.full, true);
        };
        if self.frames.len() <= at {
            self.frames.resize(at + 1, None);
        }
        self.frames[at] = Some(place);
        false
    }

    fn place(&mut self, frame: &Frame) -> Option<StackLines> {
        let mut location = Location::of(frame.clone());
        for name in [&mut location.function, &mut location.file] {
            name.truncate(first_bytes(name, NAME_BYTES).len());
        }
        let line = self.lines.insert(location, LINES)?;
        Some(self.lines.lines(self.of(frame.parent), line))
    }

    /// Where a stack is that is named by its innermost frame.
    pub(super) fn of(&self, stack: Option<FrameId>) -> Option<StackLines> {
        self.frames.get(stack? as usize).copied().flatten()
    }

    fn name(&self, line: LocationId) -> CodeLine {
        let Location { function, file, line, .. } = self.lines.get(line).clone();
        CodeLine { function, file, line }
    }

    /// The line to show, and the library's below it.
    pub(super) fn names(&self, place: StackLines) -> (CodeLine, Option<CodeLine>) {
        let below = if place.line != place.shown() { Some(place.line) } else { None };
        (self.name(place.shown()), below.map(|below| self.name(below)))
    }
}

/// Pauses of one process by the lines that triggered them.
#[derive(Clone, Debug, Default)]
pub(super) struct LocationSums {
    sums: HashMap<StackLines, PauseTotal>,
    /// Pauses of locations with little time, and of unknown ones.
    other: PauseTotal,
}

impl LocationSums {
    pub(super) fn add(&mut self, place: Option<StackLines>, duration_ns: u64) {
        let Some(place) = place else { return self.other.add(duration_ns) };
        if self.sums.len() >= SUMMED && !self.sums.contains_key(&place) {
            self.halve();
        }
        self.sums.entry(place).or_default().add(duration_ns);
    }

    /// Merges the half with the least time into `other`.
    fn halve(&mut self) {
        let mut times: Vec<(u64, StackLines)> =
            self.sums.iter().map(|(place, sum)| (sum.time_ns, *place)).collect();
        times.sort_unstable();
        for (_, place) in times.iter().take(SUMMED / 2) {
            if let Some(sum) = self.sums.remove(place) {
                self.other.add_all(&sum);
            }
        }
    }

    /// The lines with the most time, and the sum of the others.
    pub(super) fn figures(
        &self,
        places: &LocationTable,
        most: usize,
    ) -> (Vec<LineFigures>, PauseTotal) {
        let mut by_line: HashMap<LocationId, (PauseTotal, (u64, StackLines))> = HashMap::new();
        for (place, sum) in &self.sums {
            let time = (sum.time_ns, *place);
            let (all, longest) = by_line.entry(place.shown()).or_insert((*sum, time));
            if *longest != time {
                all.add_all(sum);
                *longest = time.max(*longest);
            }
        }
        let mut ranked: Vec<_> = by_line.into_iter().collect();
        ranked.sort_unstable_by_key(|(line, (sum, _))| (Reverse((sum.time_ns, sum.count)), *line));
        let mut other = self.other;
        for (_, (sum, _)) in ranked.iter().skip(most) {
            other.add_all(sum);
        }
        let lines = ranked.into_iter().take(most);
        let lines = lines.map(|(_, (pauses, (_, place)))| {
            let (line, below) = places.names(place);
            LineFigures { line, below, pauses }
        });
        (lines.collect(), other)
    }
}

/// Maximum length of the names of a kind of object, in bytes.
const KIND_BYTES: usize = 256;
/// Maximum number of objects of a cycle that are kept.
const EDGES: usize = 32;

/// A kind of object with cut names.
pub(super) fn brief_kind(kind: &ObjectKind) -> ObjectKind {
    let cut = |text: &String| first_bytes(text, KIND_BYTES).to_owned();
    ObjectKind {
        name: KindName {
            type_name: cut(&kind.name.type_name),
            function: kind.name.function.as_ref().map(cut),
            file: kind.name.file.as_ref().map(cut),
            line: kind.name.line,
        },
        ..*kind
    }
}

/// The start of a cycle, with cut names.
pub(super) fn brief_cycle(cycle: &CycleSignature) -> CycleSignature {
    let cut = |text: &String| first_bytes(text, KIND_BYTES).to_owned();
    let edge = |edge: &CycleEdge| CycleEdge { kind: edge.kind, name: edge.name.as_ref().map(cut) };
    CycleSignature { edges: cycle.edges.iter().take(EDGES).map(edge).collect(), ..*cycle }
}

/// The first bytes of a text, up to a whole character.
pub(super) fn first_bytes(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    fn frame(id: FrameId) -> Frame {
        Frame {
            id,
            parent: None,
            function: "f".to_owned(),
            file: "train.py".to_owned(),
            line: Some(id),
        }
    }

    #[test]
    fn lines_beyond_the_bound_have_no_name_and_one_note() {
        let mut places = LocationTable::default();
        let bound = u32::try_from(LINES).unwrap();
        let is_reported: Vec<u32> = (1..2 * bound).filter(|id| places.add(&frame(*id))).collect();
        assert_eq!(is_reported, [bound + 1]);
        assert!(places.of(Some(bound)).is_some());
        assert_eq!(places.of(Some(bound + 1)), None);
        // A known line in a new stack keeps its name.
        let again = Frame { id: 2 * bound, ..frame(7) };
        assert!(!places.add(&again));
        let (line, below) = places.names(places.of(Some(2 * bound)).unwrap());
        assert_eq!((line.line, below), (Some(7), None));
        // A frame id out of range is ignored.
        assert!(!places.add(&frame(u32::MAX)));
        assert_eq!(places.of(Some(u32::MAX)), None);
        assert!(places.frames.len() <= FRAMES);
    }

    #[test]
    fn lines_with_much_time_stay_whatever_comes() {
        let mut places = LocationTable::default();
        let mut sums = LocationSums::default();
        let mut time = 0;
        for id in 1..20_000 {
            places.add(&frame(id));
            sums.add(places.of(Some(id)), 10);
            sums.add(places.of(Some(3)), 100);
            time += 110;
        }
        assert!(sums.sums.len() <= SUMMED);
        let (lines, other) = sums.figures(&places, 20);
        assert_eq!(lines[0].line.line, Some(3));
        // Twice it had no name yet.
        assert_eq!(lines[0].pauses.time_ns, 19_997 * 100 + 10);
        let named = lines.iter().map(|line| line.pauses.time_ns);
        assert_eq!(named.sum::<u64>() + other.time_ns, time);
    }

    #[test]
    fn frames_of_the_import_system_are_no_lines() {
        let load = |id, parent| Frame {
            parent,
            file: "<frozen importlib._bootstrap>".to_owned(),
            ..frame(id)
        };
        let library = "/usr/lib/python3.12/enum.py".to_owned();
        let mut places = LocationTable::default();
        places.add(&load(1, None));
        places.add(&Frame { parent: Some(1), file: library, ..frame(2) });
        places.add(&load(3, Some(2)));
        let file = |id| places.names(places.of(Some(id)).unwrap()).0;
        assert_eq!(file(1).function, paths::IMPORT);
        assert_eq!((file(2).line, file(3)), (Some(2), file(2)));
    }

    #[test]
    fn characters_stay_whole() {
        assert_eq!(first_bytes("aé", 2), "a");
        assert_eq!(first_bytes("aé", 3), "aé");
        assert_eq!(first_bytes("aé", 100), "aé");
        assert_eq!(first_bytes("é", 1), "");
    }
}
