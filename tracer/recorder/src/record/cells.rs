//! Names of a notebook's cells, with their numbers.
//!
//! ipykernel names the files of cells by hashes of their code. Only the program knows a cell's number: it is read from
//! its memory when code of the cell is first seen ([`NotebookShell`]), for every source of the recording.

use gctrace_event::cell_name;
use gctrace_heap::NotebookShell;
use gctrace_probes::ResolveOptions;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Cells of all processes that are looked up; later ones have no numbers.
const MOST: usize = 10_000;

/// The part of the time that looks may take, and the time they may take in advance: a program may lay out its memory so
/// that each takes as long as it can.
const SHARE: u32 = 20;
const ADVANCE: Duration = Duration::from_secs(2);

/// Shells by process, and the names of their cells.
pub(crate) struct CellNames {
    /// `None`: nothing can be read of the process.
    shells: HashMap<u32, Option<NotebookShell>>,
    /// By file and process; `None`: the number is not known.
    names: HashMap<String, HashMap<u32, Option<String>>>,
    count: usize,
    began: Instant,
    spent: Duration,
}

impl Default for CellNames {
    fn default() -> Self {
        let (shells, names) = (HashMap::new(), HashMap::new());
        Self { shells, names, count: 0, began: Instant::now(), spent: Duration::ZERO }
    }
}

impl CellNames {
    /// The name with the number, in IPython's own form, for a code file without a number; `None` if it is no cell, or
    /// its number is unknown.
    pub(crate) fn numbered(&mut self, pid: u32, file: &str) -> Option<&str> {
        if cell_name(file)? != "In [?]" {
            return None;
        }
        let known = matches!(self.names.get(file), Some(names) if names.contains_key(&pid));
        if !known {
            if self.count >= MOST {
                return None;
            }
            self.count += 1;
            let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".py");
            let look = Instant::now();
            let may_look = self.spent < ADVANCE + look.duration_since(self.began) / SHARE;
            let number = if may_look { self.number(pid, file) } else { None };
            self.spent += look.elapsed();
            let names = self.names.entry(file.to_owned()).or_default();
            let name = match number {
                Some(number) => Some(format!("<ipython-input-{number}-{stem}>")),
                // A child may have ended: the file is named by its parent.
                None => names.values().flatten().next().cloned(),
            };
            names.insert(pid, name);
        }
        self.names.get(file)?.get(&pid)?.as_deref()
    }

    fn number(&mut self, pid: u32, file: &str) -> Option<u32> {
        let shell = self.shells.entry(pid).or_insert_with(|| {
            NotebookShell::of(pid, &ResolveOptions::default())
                .inspect_err(|error| tracing::debug!("cells of process {pid}: {error}"))
                .ok()
        });
        let number = shell.as_mut()?.number(file);
        if number.is_none() {
            // It may be another process by now.
            self.shells.remove(&pid);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_few_and_short() {
        // Runs no Python.
        let pid = std::process::id();
        let mut cells = CellNames::default();
        for number in 0..MOST + 5 {
            assert_eq!(cells.numbered(pid, &format!("/tmp/ipykernel_1/{number}.py")), None);
        }
        assert_eq!((cells.names.len(), cells.shells.len()), (MOST, 1));
        assert_eq!(cells.numbered(pid, "/srv/train.py"), None);
        let mut cells = CellNames { spent: ADVANCE * 2, ..CellNames::default() };
        assert_eq!(cells.numbered(pid, "/tmp/ipykernel_1/2.py"), None);
        assert_eq!((cells.names.len(), cells.shells.len()), (1, 0));
    }

    #[test]
    fn a_child_that_has_ended_has_its_parents_cells() {
        let (parent, child, file) = (1, u32::MAX, "/tmp/ipykernel_1/2.py");
        let mut cells = CellNames::default();
        let name = "<ipython-input-5-2>".to_owned();
        cells.names.insert(file.to_owned(), HashMap::from([(parent, Some(name.clone()))]));
        assert_eq!(cells.numbered(child, file), Some(name.as_str()));
        assert_eq!(cells.numbered(child, "/tmp/ipykernel_1/3.py"), None);
    }
}
