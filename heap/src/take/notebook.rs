//! The numbers of a notebook's cells, from the program that runs them.
//!
//! IPython's compiler keeps them by file name: for its tracebacks it makes up a file name for the code of each cell
//! (`CachingCompiler._filename_map`, since IPython 8.0). They are read from that dict while the program runs, without a
//! stop, and compared with a second reading.

use crate::HeapError;
use crate::take::containers::{attribute, dict, find_key, is_text};
use crate::take::image::{BLOCK, Image};
use crate::take::layout::{Layout, MODULE_DICT, SIZE, type_object};
use crate::take::limits::Limits;
use crate::take::regions::Regions;
use crate::take::running::{find, image};
use crate::take::text::read_int;
use gctrace_cpython::{Memory as _, interpreters};
use gctrace_probes::ResolveOptions;
use std::time::{Duration, Instant};

/// Longest time of a look, a hundred times the usual one. Meanwhile the recorder reads nothing else.
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Most bytes that a look copies: the names of some thousand modules, each in a block of its own.
const MOST_COPIED: u64 = 256 << 20;

/// An IPython shell, of a terminal or of a Jupyter kernel.
#[derive(Debug)]
pub struct NotebookShell {
    pid: u32,
    layout: Layout,
    runtime: u64,
    /// `None` before they were found. They are there as long as the shell.
    places: Option<Places>,
}

/// Addresses of objects.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// The dict of the numbers.
    numbers: u64,
    /// `In`, the list of entered code; its first item is not entered code.
    inputs: u64,
    /// The dict of the shell's other values: `execution_count` is the number of the next cell.
    values: u64,
}

impl NotebookShell {
    /// Finds the interpreter of a process.
    ///
    /// # Errors
    /// There is no such process, it may not be read, or objects of its interpreter cannot be read.
    pub fn of(pid: u32, options: &ResolveOptions) -> Result<Self, HeapError> {
        let (found, runtime) = find(pid, options)?;
        let version = || HeapError::Version { pid, version: found.version.to_string() };
        let layout = Layout::of(&found, &mut image(pid)?, runtime).ok_or_else(version)?;
        Ok(Self { pid, layout, runtime, places: None })
    }

    /// The number of the cell with code of this file name; if it ran several times, the number of its last run. Other
    /// code that IPython runs for a cell's magic or for a front end has the number of the last cell. `None`: the
    /// program has no such cell, or it changed meanwhile.
    pub fn number(&mut self, file: &str) -> Option<u32> {
        if self.places.is_none() {
            self.places = self.search(&mut self.image()?);
        }
        let number = self.read(file);
        if number.is_none() {
            self.places = None;
        }
        number.filter(|_| self.read(file) == number)
    }

    fn read(&self, file: &str) -> Option<u32> {
        let (places, layout) = (self.places?, &self.layout);
        let image = &mut self.image()?;
        // The newest is the last one.
        let numbers = dict(image, layout, places.numbers)?;
        let number = numbers.iter().rfind(|entry| is_text(image, layout, entry.key, file))?.value;
        let next = find_key(image, layout, places.values, "execution_count")?;
        let mut int = |address| u32::try_from(read_int(image, layout, address)?).ok();
        let (number, next) = (int(number)?, int(next)?);
        // Code that was not entered is numbered like the next cell; since IPython 9, within a cell too.
        let entered = image.field(places.inputs, SIZE)?;
        let is_entered = number < next || u64::from(number) < entered;
        Some(if is_entered { number } else { number.checked_sub(1)? }).filter(|number| *number > 0)
    }

    fn image(&self) -> Option<Image> {
        let limits = Limits::of_process(self.pid, BLOCK);
        let limits = Limits { copied: limits.copied.min(MOST_COPIED), ..limits };
        let mut image = Image::of_process(self.pid, Regions::of(self.pid).ok()?, limits);
        image.refill(Some(Instant::now() + LOOK_LIMIT));
        Some(image)
    }

    fn search(&self, image: &mut Image) -> Option<Places> {
        let layout = &self.layout;
        let interpreters = interpreters(image, &layout.collector, self.runtime);
        let main = interpreters.iter().find(|one| one.id == 0)?;
        let modules = image.field(main.address, layout.interpreter.modules)?;
        let module = find_key(image, layout, modules, "IPython.core.interactiveshell")?;
        let names = image.field(module, MODULE_DICT)?;
        let class = find_key(image, layout, names, "InteractiveShell")?;
        let members = image.field(class, type_object::DICT)?;
        let shell = find_key(image, layout, members, "_instance")?;
        let compiler = attribute(image, layout, shell, "compile")?;
        let numbers = attribute(image, layout, compiler, "_filename_map")?;
        // Where traitlets keep theirs.
        let values = attribute(image, layout, shell, "_trait_values")?;
        let history = find_key(image, layout, values, "history_manager")?;
        let histories = attribute(image, layout, history, "_trait_values")?;
        let inputs = find_key(image, layout, histories, "input_hist_parsed")?;
        Some(Places { numbers, inputs, values })
    }
}
