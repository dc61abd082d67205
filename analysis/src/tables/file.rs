//! One table as a Parquet file.
//!
//! Owns the encoding of columns, and the rows kept in memory: the row group being filled, at most [`ROWS`].

use super::columns::{CellValue, ColumnKind, ParquetColumn};
use super::{Table, TableError};
use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// Largest number of rows of a row group: about 25 MB of memory for the widest table, and enough
/// row groups for the threads of a reader (DuckDB's own have 122,880 rows).
pub(super) const ROWS: usize = 1 << 18;
/// Fewer rows than these share a row group with the next trace's: the description of a row group
/// takes some 100 bytes per column.
const FEW_ROWS: usize = ROWS / 16;
/// Level of zstd's compression: beyond it files hardly shrink.
const ZSTD_LEVEL: i32 = 6;

/// The rows of a column that are not written yet.
enum Values {
    Numbers(Vec<Option<i64>>),
    /// As indices into `TableFile::texts`.
    Texts(Vec<Option<usize>>),
    Flags(Vec<Option<bool>>),
}

/// A table that is being written.
pub(super) struct TableFile<W: Write + Send> {
    table: Table,
    out: SerializedFileWriter<W>,
    columns: Vec<Values>,
    rows: usize,
    /// Number of these rows that belong to earlier traces.
    earlier_rows: usize,
    texts: Vec<ByteArray>,
    text_indices: HashMap<String, usize>,
}

impl<W: Write + Send> TableFile<W> {
    pub(super) fn new(table: Table, out: W) -> Result<Self, TableError> {
        let create = || -> Result<_, ParquetError> {
            let schema = Arc::new(schema(table)?);
            SerializedFileWriter::new(out, schema, Arc::new(properties(table)?))
        };
        let columns = table.columns().iter();
        Ok(Self {
            table,
            out: create().map_err(|source| TableError { table, source })?,
            columns: columns.map(|column| Values::new(column.kind)).collect(),
            rows: 0,
            earlier_rows: 0,
            texts: Vec::new(),
            text_indices: HashMap::new(),
        })
    }

    /// Adds a row, a cell for each column.
    pub(super) fn add(&mut self, cells: &[CellValue<'_>]) -> Result<(), TableError> {
        debug_assert_eq!(cells.len(), self.columns.len(), "{:?}", self.table);
        for (values, cell) in self.columns.iter_mut().zip(cells) {
            match (values, cell) {
                (Values::Numbers(values), CellValue::Number(number)) => values.push(Some(*number)),
                (Values::Flags(values), CellValue::Flag(flag)) => values.push(Some(*flag)),
                (Values::Texts(values), CellValue::Text(text)) => {
                    let index = self.text_indices.get(*text).copied();
                    let index = index.unwrap_or_else(|| {
                        let index = self.texts.len();
                        self.texts.push(ByteArray::from(*text));
                        self.text_indices.insert((*text).to_owned(), index);
                        index
                    });
                    values.push(Some(index));
                }
                (values, cell) => {
                    debug_assert_eq!(*cell, CellValue::Null, "{:?}", self.table);
                    values.push_null();
                }
            }
        }
        self.rows += 1;
        if self.rows >= ROWS { self.end_row_group() } else { Ok(()) }
    }

    /// Drops the rows of the trace that ends, as far as they are not written yet.
    pub(super) fn drop_trace(&mut self) {
        let rows = self.earlier_rows;
        self.columns.iter_mut().for_each(|one| one.truncate(rows));
        self.rows = rows;
    }

    /// Ends a trace: its rows become a row group unless they are few.
    pub(super) fn end_trace(&mut self) -> Result<(), TableError> {
        if self.rows >= FEW_ROWS {
            self.end_row_group()?;
        }
        self.earlier_rows = self.rows;
        Ok(())
    }

    /// Writes the rows so far as a row group, sorted by trace and time; nothing if there are none.
    fn end_row_group(&mut self) -> Result<(), TableError> {
        if self.rows > 0 {
            let table = self.table;
            self.write().map_err(|source| TableError { table, source })?;
            self.earlier_rows = 0;
            self.drop_trace();
            self.texts.clear();
            self.text_indices.clear();
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ParquetError> {
        let order = self.order();
        let columns = self.table.columns().iter().zip(&self.columns);
        let mut group = self.out.next_row_group()?;
        for (column, values) in columns {
            let Some(mut out) = group.next_column()? else { break };
            let nullable = is_nullable(column.kind);
            match values {
                Values::Numbers(values) => {
                    write_column::<Int64Type, _>(&mut out, nullable, &order, values, |one| *one)?;
                }
                Values::Flags(values) => {
                    write_column::<BoolType, _>(&mut out, nullable, &order, values, |one| *one)?;
                }
                Values::Texts(values) => {
                    let text = |index: &usize| self.texts.get(*index).cloned().unwrap_or_default();
                    write_column::<ByteArrayType, _>(&mut out, nullable, &order, values, text)?;
                }
            }
            out.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// The rows by trace and the first column with a time, if there is one.
    fn order(&self) -> Vec<usize> {
        let numbers = |kind: ColumnKind| {
            let mut columns = self.table.columns().iter().zip(&self.columns);
            match columns.find(|(column, _)| column.kind == kind) {
                Some((_, Values::Numbers(numbers))) => numbers.as_slice(),
                _ => &[],
            }
        };
        let (traces, times) = (numbers(ColumnKind::Trace), numbers(ColumnKind::Time));
        let mut order: Vec<usize> = (0..self.rows).collect();
        order.sort_by_key(|row| (traces.get(*row).copied(), times.get(*row).copied()));
        order
    }

    /// Writes the remaining rows and the end of the file.
    pub(super) fn finish(mut self) -> Result<(), TableError> {
        self.end_row_group()?;
        let table = self.table;
        let finished = self.out.close().map(drop);
        finished.map_err(|source| TableError { table, source })
    }
}

impl Values {
    fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Time | ColumnKind::Trace | ColumnKind::Number | ColumnKind::Id => {
                Self::Numbers(Vec::new())
            }
            ColumnKind::Text => Self::Texts(Vec::new()),
            ColumnKind::Flag => Self::Flags(Vec::new()),
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::Numbers(values) => values.push(None),
            Self::Texts(values) => values.push(None),
            Self::Flags(values) => values.push(None),
        }
    }

    fn truncate(&mut self, rows: usize) {
        match self {
            Self::Numbers(values) => values.truncate(rows),
            Self::Texts(values) => values.truncate(rows),
            Self::Flags(values) => values.truncate(rows),
        }
    }
}

fn write_column<T: DataType, V>(
    out: &mut SerializedColumnWriter<'_>,
    nullable: bool,
    order: &[usize],
    values: &[Option<V>],
    value: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError>
where
    T::T: Default,
{
    let rows = || order.iter().map(|row| values.get(*row).and_then(Option::as_ref));
    let known: Vec<T::T> = if nullable {
        rows().flatten().map(value).collect()
    } else {
        // A time is never unknown; a null in its place would shift all others.
        rows().map(|one| if let Some(one) = one { value(one) } else { T::T::default() }).collect()
    };
    let levels: Vec<i16> = rows().map(|one| i16::from(one.is_some())).collect();
    let levels = if nullable { Some(levels.as_slice()) } else { None };
    out.typed::<T>().write_batch(&known, levels, None)?;
    Ok(())
}

fn is_nullable(kind: ColumnKind) -> bool {
    !matches!(kind, ColumnKind::Time | ColumnKind::Trace)
}

fn schema(table: Table) -> Result<Type, ParquetError> {
    let field = |column: &ParquetColumn| {
        let (physical, logical) = match column.kind {
            ColumnKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnKind::Flag => (PhysicalType::BOOLEAN, None),
            _ => (PhysicalType::INT64, None),
        };
        let repetition =
            if is_nullable(column.kind) { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(field))
    };
    let fields: Result<_, ParquetError> = table.columns().iter().map(field).collect();
    Type::group_type_builder(table.as_ref()).with_fields(fields?).build()
}

fn properties(table: Table) -> Result<WriterProperties, ParquetError> {
    let about = vec![
        KeyValue::new(super::FORMAT_KEY.to_owned(), super::FORMAT.to_owned()),
        KeyValue::new("table".to_owned(), table.as_ref().to_owned()),
    ];
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("gctrace ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(about))
        // Statistics of row groups: finer ones would take more room than the values of a small table.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?));
    for column in table.columns() {
        if let ColumnKind::Time | ColumnKind::Number = column.kind {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties.build())
}
