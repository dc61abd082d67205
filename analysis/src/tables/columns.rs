//! Columns of tables: their names, how they are stored, and their cells.

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParquetColumn {
    pub(super) name: &'static str,
    pub(super) kind: ColumnKind,
}

/// Content of a column. Only [`ColumnKind::Time`] and [`ColumnKind::Trace`] have no nulls.
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

/// The value of one column in a new row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellValue<'a> {
    Number(i64),
    Text(&'a str),
    Flag(bool),
    /// Unknown, or not applicable.
    Null,
}

/// Null if it is greater than [`i64::MAX`].
impl From<u64> for CellValue<'_> {
    fn from(number: u64) -> Self {
        if let Ok(number) = i64::try_from(number) { Self::Number(number) } else { Self::Null }
    }
}

impl From<u32> for CellValue<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<i64> for CellValue<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for CellValue<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// Null if it is empty.
impl<'a> From<&'a str> for CellValue<'a> {
    fn from(text: &'a str) -> Self {
        if text.is_empty() { Self::Null } else { Self::Text(text) }
    }
}

impl<'a, T: Into<CellValue<'a>>> From<Option<T>> for CellValue<'a> {
    fn from(value: Option<T>) -> Self {
        if let Some(value) = value { value.into() } else { Self::Null }
    }
}

/// A table: its columns, and the function that makes a row. Each column is declared once, by its name, its kind and
/// its value. `..of` stands for the columns of a [`RowProcess`](super::rows::RowProcess).
macro_rules! table {
    ($columns:ident, $row:ident($($argument:ident: $type:ty),*) { $($let:stmt;)* } ..$of:ident, $($rest:tt)*) => {
        table! { $columns, $row($($argument: $type),*) { $($let;)* }
            trace: Trace = $of.trace, rank: Id = $of.rank, pid: Id = $of.pid, $($rest)* }
    };
    ($columns:ident, $row:ident($($argument:ident: $type:ty),*) { $($let:stmt;)* }
     $($name:ident: $kind:ident = $cell:expr,)*) => {
        pub(super) const $columns: &[ParquetColumn] =
            &[$(ParquetColumn { name: stringify!($name), kind: ColumnKind::$kind }),*];

        fn $row<'a>($($argument: $type),*) -> [CellValue<'a>; $columns.len()] {
            $($let)*
            [$(CellValue::from($cell)),*]
        }
    };
}

pub(super) use table;
