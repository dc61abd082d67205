//! The tables and their columns: names, types and how they are stored.
//!
//! Owns the schema `gctrace.tables/1`; docs/tables.md describes it for users.

use strum::{AsRefStr, VariantArray};

/// A table, one file each, which has its name with `.parquet` behind.
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
    /// CUDA and NCCL calls; of nested ones the outermost.
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
    pub(super) fn columns(self) -> &'static [ParquetColumn] {
        match self {
            Self::Ranks => &RANKS,
            Self::Pauses => &PAUSES,
            Self::GpuOps => &GPU_OPS,
            Self::Calls => &CALLS,
            Self::Collectives => &COLLECTIVES,
            Self::Steps => &STEPS,
            Self::Frames => &FRAMES,
            Self::Annotations => &ANNOTATIONS,
            Self::Garbage => &GARBAGE,
            Self::Layers => &LAYERS,
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParquetColumn {
    pub(super) name: &'static str,
    pub(super) kind: ColumnKind,
}

/// What a column contains. Only [`ColumnKind::Time`] and [`ColumnKind::Trace`] have no nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Nanoseconds, never null; rows of a trace are sorted by the first such column.
    Time,
    /// The index of a trace, never null.
    Trace,
    /// A number that rarely repeats.
    Number,
    /// One of few numbers.
    Id,
    /// Text, stored once for all its rows.
    Text,
    /// True or false.
    Flag,
}

const fn column(name: &'static str, kind: ColumnKind) -> ParquetColumn {
    ParquetColumn { name, kind }
}

const fn time(name: &'static str) -> ParquetColumn {
    column(name, ColumnKind::Time)
}

const fn number(name: &'static str) -> ParquetColumn {
    column(name, ColumnKind::Number)
}

const fn id(name: &'static str) -> ParquetColumn {
    column(name, ColumnKind::Id)
}

const fn text(name: &'static str) -> ParquetColumn {
    column(name, ColumnKind::Text)
}

const fn flag(name: &'static str) -> ParquetColumn {
    column(name, ColumnKind::Flag)
}

const TRACE: ParquetColumn = column("trace", ColumnKind::Trace);

pub(super) const RANKS: [ParquetColumn; 31] = [
    TRACE,
    id("rank"),
    id("pid"),
    text("file"),
    text("host"),
    text("command"),
    text("gctrace"),
    text("python"),
    text("collector"),
    text("torch"),
    number("start_ns"),
    number("end_ns"),
    number("unix_offset_ns"),
    id("job"),
    number("clock_offset_ns"),
    number("clock_error_ns"),
    number("clock_collectives"),
    flag("clock_ambiguous"),
    number("pauses"),
    number("paused_ns"),
    number("omitted_pauses"),
    number("omitted_ns"),
    number("gpu_ops"),
    number("calls"),
    number("counted_launches"),
    number("steps"),
    number("annotations"),
    number("invalid_values"),
    number("lost"),
    flag("complete"),
    text("incomplete_because"),
];

pub(super) const PAUSES: [ParquetColumn; 36] = [
    TRACE,
    id("rank"),
    id("pid"),
    id("tid"),
    time("ts_ns"),
    time("dur_ns"),
    id("generation"),
    text("reason"),
    text("source"),
    number("collected"),
    number("uncollectable"),
    number("cpu_ns"),
    number("stop_the_world_ns"),
    number("young_count"),
    number("oldest_objects"),
    number("heap_objects"),
    number("freed_bytes"),
    id("interpreter"),
    id("frame_id"),
    flag("unfinished"),
    flag("counters_scaled"),
    flag("counters_migrated"),
    number("examining_ns"),
    number("called_ns"),
    number("cycles"),
    number("instructions"),
    number("cache_misses"),
    number("llc_load_misses"),
    number("dtlb_load_misses"),
    number("branch_misses"),
    number("page_faults"),
    number("major_faults"),
    number("context_switches"),
    number("cpu_migrations"),
    number("task_clock_ns"),
    number("cpu_clock_ns"),
];

pub(super) const GPU_OPS: [ParquetColumn; 13] = [
    TRACE,
    id("rank"),
    id("pid"),
    id("device"),
    id("stream"),
    text("kind"),
    text("name"),
    time("ts_ns"),
    time("dur_ns"),
    number("call_id"),
    number("bytes"),
    text("process_group"),
    number("seq"),
];

pub(super) const CALLS: [ParquetColumn; 12] = [
    TRACE,
    id("rank"),
    id("pid"),
    id("tid"),
    number("call_id"),
    text("layer"),
    text("function"),
    time("ts_ns"),
    number("dur_ns"),
    id("device"),
    id("stream"),
    number("launches"),
];

pub(super) const COLLECTIVES: [ParquetColumn; 14] = [
    id("job"),
    number("collective"),
    text("process_group"),
    number("seq"),
    text("name"),
    TRACE,
    id("rank"),
    id("pid"),
    time("ts_ns"),
    time("dur_ns"),
    time("start_ns"),
    time("end_ns"),
    number("wait_ns"),
    flag("is_last"),
];

pub(super) const STEPS: [ParquetColumn; 9] = [
    TRACE,
    id("rank"),
    id("pid"),
    id("tid"),
    number("number"),
    text("source"),
    time("ts_ns"),
    time("dur_ns"),
    number("cpu_ns"),
];

pub(super) const FRAMES: [ParquetColumn; 6] = [
    TRACE,
    number("frame_id"),
    number("parent_id"),
    text("function"),
    text("file"),
    number("line"),
];

pub(super) const ANNOTATIONS: [ParquetColumn; 7] =
    [TRACE, id("rank"), id("pid"), id("tid"), text("name"), time("ts_ns"), time("dur_ns")];

pub(super) const GARBAGE: [ParquetColumn; 11] = [
    TRACE,
    id("rank"),
    id("pid"),
    id("tid"),
    time("ts_ns"),
    text("type_name"),
    text("function"),
    text("file"),
    number("line"),
    number("objects"),
    number("bytes"),
];

pub(super) const LAYERS: [ParquetColumn; 18] = [
    TRACE,
    id("rank"),
    id("pid"),
    time("ts_ns"),
    number("step"),
    id("epoch"),
    text("layer"),
    text("type_name"),
    text("shape"),
    text("device"),
    number("calls"),
    number("weights"),
    number("gradients"),
    number("buffers"),
    number("optimizer"),
    number("saved"),
    number("outputs"),
    number("output_gradients"),
];

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
