//! What the user has chosen: the row, the order, the filter, the panes, the interval.
//!
//! Pure: an [`KeyAction`] changes it, and what has to be done outside of it is the answer. Knows where things were
//! drawn last ([`Geometry`]), for clicks; nothing here draws.

mod overlays;

use super::columns;
use super::columns::Column;
use super::columns::ColumnPosition;
use super::keys::KeyAction;
use super::rows;
use super::rows::SortOrder;
use gctrace_analysis::live::ProcessFigures;
use gctrace_analysis::live::Snapshot;
use ratatui::layout::Rect;
use std::time::Duration;

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewEffect {
    /// Nothing but to draw.
    Draw,
    /// Other figures are needed.
    Refresh,
    /// The interval is another.
    Interval,
    /// To leave.
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// The whole screen is to be written again.
    Redraw,
    /// Ctrl-Z.
    Suspend,
}

/// What is below the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LowerPane {
    /// Long pauses.
    #[default]
    Log,
    /// More about the chosen process.
    Detail,
    /// The command's output.
    Output,
    /// Notices.
    Notices,
}

/// Where keys go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Focus {
    /// The table.
    #[default]
    Table,
    /// What is below it.
    Lower,
}

/// What lies over the screen, or waits for text in its last line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys, from this line on.
    Help(usize),
    /// The columns to sort by, this one chosen.
    Sort(usize),
    /// The filter is being typed; this is what it was.
    Filter(String),
    /// An interval is being typed.
    Interval(String),
}

/// Where things were drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Line with the titles of the columns.
    pub(crate) head: u16,
    /// Rows of processes.
    pub(crate) body: Rect,
    /// What is below the table.
    pub(crate) lower: Rect,
    /// Columns of the table.
    pub(crate) places: Vec<ColumnPosition>,
    /// Index of the first row drawn.
    pub(crate) first: usize,
    /// How many lines of the lower pane can be scrolled away.
    pub(crate) most_scrolled: usize,
    /// How many of the help.
    pub(crate) most_of_help: usize,
}

/// Everything that the user can change.
#[derive(Clone, Debug)]
pub(crate) struct ViewState {
    /// Time between two pictures.
    pub(crate) interval: Duration,
    /// Order of the rows.
    pub(crate) sort: SortOrder,
    /// Words to look for.
    pub(crate) filter: String,
    /// The chosen process; `None`: whichever is first.
    pub(crate) selected: Option<u32>,
    /// Where it was, for when it has gone.
    pub(crate) row: usize,
    /// What is below the table.
    pub(crate) lower: LowerPane,
    /// Where keys go.
    pub(crate) focus: Focus,
    /// Lines of the lower pane that were scrolled away.
    pub(crate) scrolled: usize,
    /// Columns scrolled away.
    pub(crate) columns_from: usize,
    /// The display stands still.
    pub(crate) paused: bool,
    /// What lies over it.
    pub(crate) overlay: Overlay,
    /// Said once, until the next key.
    pub(crate) message: Option<String>,
    /// Indices of the processes shown, in order.
    pub(crate) rows: Vec<usize>,
}

impl ViewState {
    /// As it is at the start.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            sort: SortOrder {
                by: Column::Rate,
                reverse: false,
            },
            filter: String::new(),
            selected: None,
            row: 0,
            lower: LowerPane::default(),
            focus: Focus::default(),
            scrolled: 0,
            columns_from: 0,
            paused: false,
            overlay: Overlay::default(),
            message: None,
            rows: Vec::new(),
        }
    }

    /// New figures, or another order.
    pub(crate) fn arrange(&mut self, snapshot: &Snapshot) {
        self.rows = rows::rows(snapshot, self.sort, &self.filter);
        let place = self.selected.and_then(|pid| self.row_of(pid, snapshot));
        match (self.selected, place) {
            (Some(_), Some(row)) => self.row = row,
            // It has gone: whichever took its place.
            (Some(_), None) => {
                self.row = self.row.min(self.rows.len().saturating_sub(1));
                self.selected = self.process(snapshot).map(|process| process.pid);
            }
            (None, _) => self.row = 0,
        }
    }

    fn row_of(&self, pid: u32, snapshot: &Snapshot) -> Option<usize> {
        self.rows.iter().position(|index| {
            let process = snapshot.processes.get(*index);
            process.is_some_and(|process| process.pid == pid)
        })
    }

    /// The chosen process.
    pub(crate) fn process<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a ProcessFigures> {
        let index = self.rows.get(self.row)?;
        snapshot.processes.get(*index)
    }

    /// The process that more is to be told about.
    pub(crate) fn detail(&self, snapshot: &Snapshot) -> Option<u32> {
        if self.lower != LowerPane::Detail {
            return None;
        }
        self.process(snapshot).map(|process| process.pid)
    }

    /// Whether nothing is open that could be closed.
    pub(crate) fn is_at_home(&self) -> bool {
        self.overlay == Overlay::None
            && self.lower == LowerPane::Log
            && self.focus == Focus::Table
            && self.filter.is_empty()
            && self.columns_from == 0
    }

    /// Whether letters are text.
    pub(crate) fn is_typing(&self) -> bool {
        matches!(self.overlay, Overlay::Filter(_) | Overlay::Interval(_))
    }

    /// Does what can be done here.
    pub(crate) fn apply(
        &mut self,
        action: KeyAction,
        snapshot: &Snapshot,
        drawn: &Geometry,
    ) -> ViewEffect {
        self.message = None;
        match action {
            KeyAction::Quit => return ViewEffect::Quit,
            KeyAction::Interrupt => return ViewEffect::Interrupt,
            KeyAction::Redraw => return ViewEffect::Redraw,
            KeyAction::Suspend => return ViewEffect::Suspend,
            _ => {}
        }
        let before = self.detail(snapshot);
        let effect = match self.overlay {
            Overlay::None => self.on_panes(action, snapshot, drawn),
            Overlay::Help(_) => self.on_help(action, drawn),
            Overlay::Sort(_) => self.on_sort_menu(action, snapshot),
            Overlay::Filter(_) | Overlay::Interval(_) => self.on_prompt(action, snapshot),
        };
        let after = self.detail(snapshot);
        if effect == ViewEffect::Draw && after.is_some() && after != before {
            return ViewEffect::Refresh;
        }
        effect
    }

    fn on_panes(&mut self, action: KeyAction, snapshot: &Snapshot, drawn: &Geometry) -> ViewEffect {
        let page = |area: Rect| i32::from(area.height.saturating_sub(1).max(1));
        let in_table = self.focus == Focus::Table;
        match action {
            KeyAction::Move(by) if in_table => self.choose(by, snapshot),
            KeyAction::Page(by) if in_table => {
                self.choose(by.saturating_mul(page(drawn.body)), snapshot);
            }
            KeyAction::Home if in_table => self.choose(i32::MIN, snapshot),
            KeyAction::End if in_table => self.choose(i32::MAX, snapshot),
            KeyAction::Move(by) => self.scroll(by, drawn),
            KeyAction::Page(by) => self.scroll(by.saturating_mul(page(drawn.lower)), drawn),
            KeyAction::Home => self.scroll(i32::MIN, drawn),
            KeyAction::End => self.scroll(i32::MAX, drawn),
            KeyAction::Sideways(by) => {
                let most = columns::most_scrolled(snapshot);
                self.columns_from = moved(self.columns_from, by).min(most);
            }
            KeyAction::Click { column, row } => self.click(column, row, snapshot, drawn),
            KeyAction::Wheel { row, by } if drawn.lower.height > 0 && row >= drawn.lower.y => {
                self.scroll(by, drawn);
            }
            KeyAction::Wheel { by, .. } => self.choose(by, snapshot),
            KeyAction::Expand => self.toggle(LowerPane::Detail),
            KeyAction::Output => {
                self.toggle(LowerPane::Output);
                return ViewEffect::Refresh;
            }
            KeyAction::Notices => self.toggle(LowerPane::Notices),
            KeyAction::Log => self.show(LowerPane::Log),
            KeyAction::NextPane => {
                self.focus = match self.focus {
                    Focus::Table => Focus::Lower,
                    Focus::Lower => Focus::Table,
                }
            }
            KeyAction::Back => self.back(snapshot),
            KeyAction::Step(by) => return self.step_interval(by),
            KeyAction::Pause => {
                self.paused = !self.paused;
                return if self.paused {
                    ViewEffect::Draw
                } else {
                    ViewEffect::Refresh
                };
            }
            action => self.open(action, snapshot, drawn),
        }
        ViewEffect::Draw
    }

    /// Order, filter, help.
    fn open(&mut self, action: KeyAction, snapshot: &Snapshot, drawn: &Geometry) {
        match action {
            KeyAction::SortNext(by) => self.sort_next(by, snapshot, drawn),
            KeyAction::SortBy(column) => self.sort_by(column, snapshot),
            KeyAction::Reverse => {
                self.sort.reverse = !self.sort.reverse;
                self.arrange(snapshot);
            }
            KeyAction::SortMenu => {
                let now = columns::ALL
                    .iter()
                    .position(|column| *column == self.sort.by);
                self.overlay = Overlay::Sort(now.unwrap_or(0));
            }
            KeyAction::Filter => self.overlay = Overlay::Filter(self.filter.clone()),
            KeyAction::Interval => self.overlay = Overlay::Interval(String::new()),
            KeyAction::Help => self.overlay = Overlay::Help(0),
            _ => {}
        }
    }

    fn choose(&mut self, by: i32, snapshot: &Snapshot) {
        let last = self.rows.len().saturating_sub(1);
        self.row = moved(self.row, by).min(last);
        self.selected = self.process(snapshot).map(|process| process.pid);
        if self.lower == LowerPane::Detail {
            self.scrolled = 0;
        }
    }

    /// Output is read from its end: there, what is scrolled away is below.
    fn scroll(&mut self, by: i32, drawn: &Geometry) {
        let by = if self.lower == LowerPane::Output {
            by.saturating_neg()
        } else {
            by
        };
        let most = drawn.most_scrolled;
        self.scrolled = moved(self.scrolled.min(most), by).min(most);
    }

    fn show(&mut self, lower: LowerPane) {
        self.lower = lower;
        self.scrolled = 0;
    }

    fn toggle(&mut self, lower: LowerPane) {
        if self.lower == lower {
            self.show(LowerPane::Log);
        } else {
            self.show(lower);
        }
    }

    fn back(&mut self, snapshot: &Snapshot) {
        if self.lower != LowerPane::Log {
            self.show(LowerPane::Log);
        } else if self.focus == Focus::Lower {
            self.focus = Focus::Table;
        } else if !self.filter.is_empty() {
            self.filter.clear();
            self.arrange(snapshot);
        } else {
            self.columns_from = 0;
        }
    }

    fn click(&mut self, column: u16, row: u16, snapshot: &Snapshot, drawn: &Geometry) {
        if row == drawn.head {
            let at = column.saturating_sub(drawn.body.x);
            let hit = drawn
                .places
                .iter()
                .find(|place| (place.x..place.x.saturating_add(place.width)).contains(&at));
            if let Some(place) = hit {
                self.sort_by(place.column, snapshot);
            }
        } else if (drawn.body.y..drawn.body.bottom()).contains(&row) {
            self.focus = Focus::Table;
            let clicked = drawn.first + usize::from(row - drawn.body.y);
            if clicked < self.rows.len() {
                self.row = clicked;
                self.selected = self.process(snapshot).map(|process| process.pid);
            }
        } else if (drawn.lower.y..drawn.lower.bottom()).contains(&row) {
            self.focus = Focus::Lower;
        }
    }

    /// The column by which it is sorted already is reversed.
    fn sort_by(&mut self, column: Column, snapshot: &Snapshot) {
        let reverse = self.sort.by == column && !self.sort.reverse;
        self.sort = SortOrder {
            by: column,
            reverse,
        };
        self.arrange(snapshot);
    }

    fn sort_next(&mut self, by: i32, snapshot: &Snapshot, drawn: &Geometry) {
        let shown = drawn.places.iter().map(|place| place.column);
        let shown: Vec<Column> = shown.filter(|column| *column != Column::History).collect();
        let now = shown.iter().position(|column| *column == self.sort.by);
        let next = now
            .map_or(0, |now| moved(now, by))
            .min(shown.len().saturating_sub(1));
        if let Some(column) = shown.get(next).filter(|column| **column != self.sort.by) {
            self.sort_by(*column, snapshot);
        }
    }
}

/// `from` and `by` more, or less; not under 0.
fn moved(from: usize, by: i32) -> usize {
    let size = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
    if by < 0 {
        from.saturating_sub(size)
    } else {
        from.saturating_add(size)
    }
}

#[cfg(test)]
mod tests;
