//! Traces as tables, in Parquet files for DuckDB, polars, pandas and the like.
//!
//! Decides when rows are written: a trace's when it ends, or before if there are very many, or with the next trace's
//! if there are few. Little is kept beyond: sums of processes, and the kernels of collectives. These relate the
//! clocks of ranks when all traces were read. The schema is `gctrace.tables/1`, described for users in
//! docs/tables.md: `rows.rs` has most tables, `ranks.rs` the tables over all traces; `columns.rs` defines a column,
//! `file.rs` the format.

mod columns;
mod file;
mod ranks;
mod rows;

use crate::Analysis;
use crate::gpu::ranks::reduced;
use crate::gpu::timeline::Timeline;
use columns::{CellValue, ParquetColumn};
use file::TableFile;
use gctrace_event::read::{DecodedItem, TraceCompletion};
use gctrace_event::{CudaLayer, ForeignTimes, KindId, KindName, LayerRow, Pause, Record};
use parquet::errors::ParquetError;
use std::collections::HashMap;
use std::io::Write;
use strum::{AsRefStr, VariantArray};

/// Name and version of the schema, in each file's metadata under [`FORMAT_KEY`].
pub const FORMAT: &str = "gctrace.tables/1";
/// Key of [`FORMAT`] in the key-value metadata of a file.
pub const FORMAT_KEY: &str = "format";

/// Pauses of gctrace's traces that wait to be written, some 25 MB.
const PENDING: usize = 1 << 16;

/// A table, one file each, named after it with `.parquet` appended.
#[derive(AsRefStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// The recorded processes, with their ranks, clocks and totals.
    Ranks,
    /// Collections.
    Pauses,
    /// Operations with GPU times.
    GpuOps,
    /// CUDA and NCCL calls; only the outermost of nested ones.
    Calls,
    /// Ranks in collectives that at least two of the traces have in common.
    Collectives,
    /// Training steps.
    Steps,
    /// Python frames.
    Frames,
    /// Intervals that the program named.
    Annotations,
    /// Kinds of objects in examined garbage.
    Garbage,
    /// PyTorch's memory by layer.
    Layers,
}

impl Table {
    /// All tables, in the order of their indices.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Its columns.
    fn columns(self) -> &'static [ParquetColumn] {
        match self {
            Self::Ranks => ranks::RANKS,
            Self::Pauses => rows::PAUSES,
            Self::GpuOps => rows::GPU_OPS,
            Self::Calls => rows::CALLS,
            Self::Collectives => ranks::COLLECTIVES,
            Self::Steps => rows::STEPS,
            Self::Frames => rows::FRAMES,
            Self::Annotations => rows::ANNOTATIONS,
            Self::Garbage => rows::GARBAGE,
            Self::Layers => rows::LAYERS,
        }
    }
}

/// A table that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the table {} cannot be written: {source}", table.as_ref())]
pub struct TableError {
    /// The table.
    pub table: Table,
    /// The error of the file, or of the format.
    pub source: ParquetError,
}

/// Writes the tables of traces. For each trace call [`TraceTables::begin_trace`],
/// [`TraceTables::add`] for every item, [`TraceTables::end_trace`]; then [`TraceTables::finish`].
pub struct TraceTables<W: Write + Send> {
    /// In the order of [`Table::ALL`].
    files: Vec<TableFile<W>>,
    analysis: Analysis,
    current: CurrentRows,
    /// The parts of the written timelines that other ranks need.
    processes: Vec<ReadProcess>,
}

/// The trace that is being read.
#[derive(Default)]
struct CurrentRows {
    /// Whether it is gctrace's: a process's facts come before its pauses then.
    is_ours: bool,
    /// By process id.
    ranks: HashMap<u32, u32>,
    /// With two times that pauses do not contain: of examining their garbage, and of the code they called.
    pauses: Vec<(Pause, u64, u64)>,
    foreign: ForeignTimes,
    layers: HashMap<String, CudaLayer>,
    kinds: HashMap<(u32, KindId), KindName>,
    /// The last table of layers, by process id.
    layer_rows: HashMap<u32, Vec<LayerRow>>,
}

/// A process with rows already written.
struct ReadProcess {
    /// Its kernels of collectives.
    reduced: Timeline,
    ops: u64,
    calls: u64,
    counted_launches: u64,
    steps: u64,
    annotations: u64,
}

impl<W: Write + Send> TraceTables<W> {
    /// Starts all tables. `files`: one for each, in the order of [`Table::ALL`]; tables without a
    /// file are not written.
    ///
    /// # Errors
    /// A file cannot be written to.
    pub fn new(files: impl IntoIterator<Item = W>) -> Result<Self, TableError> {
        let files = Table::ALL.iter().zip(files);
        let files = files.map(|(table, file)| TableFile::new(*table, file));
        Ok(Self {
            files: files.collect::<Result<_, _>>()?,
            analysis: Analysis::default(),
            current: CurrentRows::default(),
            processes: Vec::new(),
        })
    }

    /// Starts the next trace; `file` is its name in the table of ranks.
    pub fn begin_trace(&mut self, file: &str) {
        self.current = CurrentRows::default();
        self.analysis.begin_trace(file);
    }

    /// Adds one item of the trace.
    ///
    /// # Errors
    /// A file cannot be written to.
    pub fn add(&mut self, item: DecodedItem<'_>) -> Result<(), TableError> {
        match &item {
            DecodedItem::Header(_) => self.current.is_ours = true,
            DecodedItem::Record(record) => self.add_record(record)?,
            _ => {}
        }
        // The tables have all GPU work that there is, and no figures that follow from all of it.
        if !matches!(item, DecodedItem::Record(Record::OmittedGpuWork(_))) {
            self.analysis.add(item);
        }
        Ok(())
    }

    /// Ends the trace. `damage`: why it could not be read to its end; what came before is in the
    /// tables. A trace without collections and GPU work is in none.
    ///
    /// # Errors
    /// A file cannot be written to.
    pub fn end_trace(
        &mut self,
        ending: TraceCompletion,
        damage: Option<String>,
    ) -> Result<(), TableError> {
        let is_empty = !self.has_evidence();
        if !is_empty {
            self.write_pauses()?;
        }
        self.analysis.end_trace(ending, damage);
        let timelines = std::mem::take(&mut self.analysis.timelines);
        if is_empty {
            self.files.iter_mut().for_each(TableFile::drop_trace);
            return Ok(());
        }
        for kept in timelines {
            let mut timeline = kept.whole().into_owned();
            self.write_timeline(&timeline)?;
            timeline.pauses = Vec::new();
            self.processes.push(ReadProcess {
                ops: timeline.ops.len() as u64,
                calls: timeline.calls.len() as u64,
                counted_launches: timeline.counted_launches.iter().map(|one| one.count).sum(),
                steps: timeline.steps.len() as u64,
                annotations: timeline.annotations.len() as u64,
                reduced: reduced(&mut timeline),
            });
        }
        self.files.iter_mut().try_for_each(TableFile::end_trace)
    }

    /// Whether the trace being read contains a collection or GPU work, or is one of gctrace's; after
    /// the last trace, whether any does.
    pub fn has_evidence(&self) -> bool {
        self.analysis.has_evidence()
    }

    /// Ranks of the traces so far and of their processes, as far as they are known.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.analysis.ranks()
    }

    /// Relates the clocks of the ranks, writes the tables over all traces, and ends the files.
    ///
    /// # Errors
    /// A file cannot be written to.
    pub fn finish(mut self) -> Result<(), TableError> {
        self.analysis.settle();
        self.write_ranks()?;
        self.files.into_iter().try_for_each(TableFile::finish)
    }

    fn add_record(&mut self, record: &Record) -> Result<(), TableError> {
        let current = &mut self.current;
        match record {
            Record::Process(process) => {
                current.ranks.extend(process.rank.map(|rank| (process.pid, rank)));
            }
            Record::Pause(pause) => {
                let mut pause = pause.clone();
                let whole_ns = pause.duration_ns();
                let called_ns = current.foreign.without(&mut pause);
                let examining_ns = whole_ns - pause.duration_ns() - called_ns;
                current.pauses.push((pause, examining_ns, called_ns));
                if current.is_ours && current.pauses.len() >= PENDING {
                    return self.write_pauses();
                }
            }
            Record::CudaCall(call) if !current.layers.contains_key(&*call.function) => {
                let function = call.function.clone().into_owned();
                current.layers.insert(function, call.layer);
            }
            Record::ObjectKind(kind) => {
                current.kinds.insert((kind.pid, kind.id), kind.name.clone());
            }
            Record::Garbage(garbage) => {
                current.foreign.add(garbage);
                return self.write_garbage(garbage);
            }
            Record::Called(called) => current.foreign.add_called(called),
            Record::Layers(layers) => return self.write_layers(layers),
            Record::Frame(frame) => return self.write_frame(frame),
            _ => {}
        }
        Ok(())
    }

    fn row(&mut self, table: Table, cells: &[CellValue<'_>]) -> Result<(), TableError> {
        match self.files.get_mut(table as usize) {
            Some(file) => file.add(cells),
            None => Ok(()),
        }
    }

    /// Index of the trace being read.
    fn trace(&self) -> usize {
        self.analysis.traces.len().saturating_sub(1)
    }

    /// Rank of a process of the trace being read, as far as it is known by now.
    fn rank(&self, pid: u32) -> Option<u32> {
        match self.current.ranks.get(&pid) {
            Some(rank) => Some(*rank),
            None => self.analysis.traces.last()?.rank(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_column_is_there_twice() {
        for table in Table::ALL {
            let mut names: Vec<&str> = table.columns().iter().map(|one| one.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.columns().len(), "{table:?}");
        }
    }
}
