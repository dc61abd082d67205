//! Names of a notebook's cells, with their numbers.
//!
//! ipykernel names the files of cells by hashes of their code. Which number a cell has, the program knows: it is read
//! from its memory when code of the cell is first seen ([`NotebookShell`]), in whichever way the program is recorded.

use gctrace_event::cell_name;
use gctrace_heap::NotebookShell;
use gctrace_probes::ResolveOptions;
use std::collections::HashMap;

/// Cells of all processes that are looked up; later ones have no numbers.
const MOST: usize = 10_000;

/// Shells by process, and the names of their cells.
#[derive(Default)]
pub(crate) struct CellNames {
    /// `None`: nothing can be read of the process.
    shells: HashMap<u32, Option<NotebookShell>>,
    /// By file and process; `None`: the number is not known.
    names: HashMap<String, HashMap<u32, Option<String>>>,
    count: usize,
}

impl CellNames {
    /// The name, in the form of IPython's own that has the number, of a file of code that has none; `None` if it
    /// is no cell, or its number is not known.
    pub(crate) fn numbered(&mut self, pid: u32, file: &str) -> Option<&str> {
        let is_cell = cell_name(file).is_some_and(|name| name == "In [?]");
        is_cell.then_some(())?;
        let known = self.names.get(file).is_some_and(|names| names.contains_key(&pid));
        if !known {
            (self.count < MOST).then_some(())?;
            self.count += 1;
            let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".py");
            let name = self.number(pid, file);
            let name = name.map(|number| format!("<ipython-input-{number}-{stem}>"));
            let names = self.names.entry(file.to_owned()).or_default();
            // A child may have ended: the file is named by its parent.
            let name = name.or_else(|| names.values().flatten().next().cloned());
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
