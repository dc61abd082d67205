//! Tables.

use std::fmt;
use std::rc::Rc;

/// A table. Columns are as wide as their longest cell; text cuts the last one to the width of the line.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// From left to right.
    pub columns: Vec<Column>,
    /// Each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Whether the names of its columns are left out.
    pub is_headless: bool,
    /// Whether they are bold, where there are colors.
    pub is_strong: bool,
    /// Whether a page sorts its rows where a column is clicked: all cells that are not text have values.
    pub is_sortable: bool,
}

/// A column of a table.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// May be empty.
    pub name: String,
    /// Whether it is aligned at the left.
    pub is_left: bool,
    /// Whether its values order the rows, descending.
    pub is_sorted: bool,
}

/// A cell of a table.
#[derive(Clone, Default)]
pub struct Cell {
    /// The text to show.
    pub text: String,
    /// The text to show in a line of so many characters, if that is not `text`.
    pub fitted: Option<Rc<dyn Fn(usize) -> String>>,
    /// Below the text; may be empty.
    pub below: String,
    /// The sort value on a page; empty: its text.
    pub value: String,
    /// Width of the bar behind it on pages, in percent; empty without one.
    pub bar: String,
    /// The color beside it on pages.
    pub color: Option<usize>,
}

impl fmt::Debug for Cell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, to)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    /// Text that depends on the width of the line, in characters.
    pub fn fitted(of_width: impl Fn(usize) -> String + 'static) -> Self {
        Self { fitted: Some(Rc::new(of_width)), ..Self::default() }
    }

    /// A figure, and its sort value.
    pub fn figure(text: impl Into<String>, value: u64) -> Self {
        Self { text: text.into(), value: (value as f64).to_string(), ..Self::default() }
    }

    /// A share of 1 as its text, with a bar behind it that is as wide as its part of the largest.
    pub fn share(text: impl Into<String>, ratio: f64, largest: f64) -> Self {
        let width = if largest > 0.0 { ratio / largest * 60.0 } else { 0.0 };
        let (value, bar) = (ratio.to_string(), format!("{width:.1}"));
        Self { text: text.into(), value, bar, ..Self::default() }
    }

    /// The same with smaller text below it.
    pub fn below(self, below: impl Into<String>) -> Self {
        Self { below: below.into(), ..self }
    }

    /// Its text in a line of so many characters.
    pub fn text(&self, width: usize) -> String {
        if let Some(fitted) = &self.fitted { fitted(width) } else { self.text.clone() }
    }
}

impl Table {
    /// A table without rows. `names` are its columns'; columns at the places in `left` are left-aligned, all others
    /// right-aligned.
    pub fn new(names: &[&str], left: &[usize]) -> Self {
        let column = |(place, name): (usize, &&str)| Column {
            name: (*name).to_owned(),
            is_left: left.contains(&place),
            ..Column::default()
        };
        let columns = names.iter().enumerate().map(column).collect();
        Self { columns, ..Self::default() }
    }

    /// A table with a row for each of `rows`, without columns.
    pub fn of<R: Copy>(rows: impl IntoIterator<Item = R>) -> TableOf<R> {
        let rows: Vec<R> = rows.into_iter().collect();
        let table = Self { rows: vec![Vec::new(); rows.len()], ..Self::default() };
        TableOf { rows, table }
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(C::into).collect());
    }
}

/// A table that grows by columns; `R` is the subject of a row.
#[derive(Debug)]
pub struct TableOf<R> {
    rows: Vec<R>,
    table: Table,
}

impl<R: Copy> TableOf<R> {
    /// Adds a column.
    pub fn column<C: Into<Cell>>(mut self, column: Column, cell: impl Fn(R) -> C) -> Self {
        self.table.columns.push(column);
        for (row, of) in self.table.rows.iter_mut().zip(&self.rows) {
            row.push(cell(*of).into());
        }
        self
    }

    /// Adds a right-aligned column.
    pub fn right<C: Into<Cell>>(self, name: &str, cell: impl Fn(R) -> C) -> Self {
        self.column(Column { name: name.to_owned(), ..Column::default() }, cell)
    }

    /// Adds a left-aligned column.
    pub fn left<C: Into<Cell>>(self, name: &str, cell: impl Fn(R) -> C) -> Self {
        let column = Column { name: name.to_owned(), is_left: true, ..Column::default() };
        self.column(column, cell)
    }

    /// Adds a right-aligned column if the condition holds.
    pub fn right_if<C: Into<Cell>>(
        self,
        is_shown: bool,
        name: &str,
        cell: impl Fn(R) -> C,
    ) -> Self {
        if is_shown { self.right(name, cell) } else { self }
    }
}

impl<R> TableOf<R> {
    /// The table, for rows of another kind.
    pub fn table(self) -> Table {
        self.table
    }

    /// The table, with bold names of columns.
    pub fn strong(self) -> Table {
        Table { is_strong: true, ..self.table }
    }

    /// The table, with rows that a page sorts.
    pub fn sortable(self) -> Table {
        Table { is_sortable: true, ..self.table }
    }
}
