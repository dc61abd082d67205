//! The user's choices: row, order, filter, panes, interval.
//!
//! Pure: a [`KeyAction`] changes the state and returns the effect to carry out. Needs the positions
//! of the last frame ([`Geometry`]) for clicks; does not draw.

mod overlays;

use super::columns::{Column, ColumnPosition};
use super::keys::KeyAction;
use super::rows::SortOrder;
use super::{columns, rows, text};
use gctrace_analysis::live::{ProcessFigures, Snapshot};
use ratatui::layout::Rect;
use std::time::Duration;

/// The effect of an action outside of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewEffect {
    /// Draw a frame.
    Draw,
    /// Take a snapshot.
    Refresh,
    /// Apply the changed interval.
    Interval,
    /// Quit.
    Quit,
    /// Handle Ctrl-C.
    Interrupt,
    /// Repaint the whole screen.
    Redraw,
    /// Suspend gctrace.
    Suspend,
}

/// The pane in the space below the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LowerPane {
    /// Log of long pauses.
    #[default]
    Log,
    /// Details of the selected process.
    Detail,
    /// The command's output.
    Output,
    /// Notices.
    Notices,
}

/// The pane with the keyboard focus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Focus {
    /// The process table.
    #[default]
    Table,
    /// The pane below it.
    Lower,
}

/// An overlay, or a prompt in the last line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// No overlay.
    #[default]
    None,
    /// The help, from this line on.
    Help(usize),
    /// The sort menu, with this column selected.
    Sort(usize),
    /// The prompt for a filter; holds the previous filter.
    Filter(String),
    /// The prompt for an interval; holds the typed text.
    Interval(String),
}

/// Where things were drawn in the last frame, to interpret keys and mouse events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Row of the column titles; 0 is the top of the screen.
    pub(crate) head: u16,
    /// Area of the process rows, below the column titles.
    pub(crate) body: Rect,
    /// Area of the lower pane; empty if it is not shown.
    pub(crate) lower: Rect,
    /// Position of each drawn column, from left to right.
    pub(crate) places: Vec<ColumnPosition>,
    /// Index of the first visible row.
    pub(crate) first: usize,
    /// Maximum number of lines of the lower pane that can be scrolled away.
    pub(crate) most_scrolled: usize,
    /// Maximum number of lines of the help that can be scrolled away.
    pub(crate) most_of_help: usize,
}

/// The choices and the input of the user; independent of the terminal.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewState {
    /// Time between two snapshots: 0.1 to 60 s, in steps of 0.1 s.
    pub(crate) interval: Duration,
    /// Sort column of the rows, and the direction.
    pub(crate) sort: SortOrder,
    /// Words that a shown process must all match; empty: every process is shown.
    pub(crate) filter: String,
    /// Pid of the selected process; `None`: the first row.
    pub(crate) selected: Option<u32>,
    /// Its row; kept as the selection if the process is gone.
    pub(crate) row: usize,
    /// The pane in the space below the table.
    pub(crate) lower: LowerPane,
    /// The pane with the keyboard focus.
    pub(crate) focus: Focus,
    /// Number of lines of the lower pane scrolled away.
    pub(crate) scrolled: usize,
    /// Number of columns that are scrolled out to the left.
    pub(crate) columns_from: usize,
    /// Whether the display keeps its snapshot; the recording goes on.
    pub(crate) paused: bool,
    /// The overlay or prompt above the table, if one is open.
    pub(crate) overlay: Overlay,
    /// A message, shown until the next key.
    pub(crate) message: Option<String>,
    /// Indices of the processes in the table, in order.
    pub(crate) rows: Vec<usize>,
}

impl ViewState {
    /// Sorted by the rate of pause time, without filter or selection, with the log of pauses.
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, ..Self::default() }
    }

    /// Filters and sorts the rows of a snapshot, and keeps the selection.
    pub(crate) fn arrange(&mut self, snapshot: &Snapshot) {
        self.rows = rows::rows(snapshot, self.sort, &self.filter);
        let place = self.selected.and_then(|pid| self.row_of(pid, snapshot));
        match (self.selected, place) {
            (Some(_), Some(row)) => self.row = row,
            // The process is gone: select the process now in its row.
            (Some(_), None) => {
                self.row = self.row.min(self.last_row());
                self.selected = self.process(snapshot).map(|process| process.pid);
            }
            (None, _) => self.row = 0,
        }
    }

    /// Index of the last row; 0 if there is none.
    fn last_row(&self) -> usize {
        text::rest(self.rows.len(), 1)
    }

    fn row_of(&self, pid: u32, snapshot: &Snapshot) -> Option<usize> {
        self.rows.iter().position(|index| {
            let Some(process) = snapshot.processes.get(*index) else { return false };
            process.pid == pid
        })
    }

    /// The process in the selected row; `None` if no row is shown.
    pub(crate) fn process<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a ProcessFigures> {
        let index = self.rows.get(self.row)?;
        snapshot.processes.get(*index)
    }

    /// Pid of the process with shown details, if any.
    pub(crate) fn detail(&self, snapshot: &Snapshot) -> Option<u32> {
        if self.lower != LowerPane::Detail {
            return None;
        }
        self.process(snapshot).map(|process| process.pid)
    }

    /// Whether Esc has nothing to close or clear.
    pub(crate) fn is_at_home(&self) -> bool {
        self.overlay == Overlay::None
            && self.lower == LowerPane::Log
            && self.focus == Focus::Table
            && self.filter.is_empty()
            && self.columns_from == 0
    }

    /// Whether a prompt is open; it takes all keys as text.
    pub(crate) fn is_typing(&self) -> bool {
        matches!(self.overlay, Overlay::Filter(_) | Overlay::Interval(_))
    }

    /// Applies an action. Returns the effect to carry out.
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
        let page = |area: Rect| i32::from(area.height.max(2) - 1);
        let in_table = self.focus == Focus::Table;
        match action {
            KeyAction::Move(by) if in_table => self.choose(by, snapshot),
            KeyAction::Page(by) if in_table => self.choose(by * page(drawn.body), snapshot),
            KeyAction::Home if in_table => self.choose(i32::MIN, snapshot),
            KeyAction::End if in_table => self.choose(i32::MAX, snapshot),
            KeyAction::Move(by) => self.scroll(by, drawn),
            KeyAction::Page(by) => self.scroll(by * page(drawn.lower), drawn),
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
                return if self.paused { ViewEffect::Draw } else { ViewEffect::Refresh };
            }
            action => self.open(action, snapshot, drawn),
        }
        ViewEffect::Draw
    }

    /// Actions on order, filter and overlays.
    fn open(&mut self, action: KeyAction, snapshot: &Snapshot, drawn: &Geometry) {
        match action {
            KeyAction::SortNext(by) => self.sort_next(by, snapshot, drawn),
            KeyAction::SortBy(column) => self.sort_by(column, snapshot),
            KeyAction::Reverse => {
                self.sort.reverse = !self.sort.reverse;
                self.arrange(snapshot);
            }
            KeyAction::SortMenu => {
                self.overlay = Overlay::Sort(self.sort.by as usize);
            }
            KeyAction::Filter => self.overlay = Overlay::Filter(self.filter.clone()),
            KeyAction::Interval => self.overlay = Overlay::Interval(String::new()),
            KeyAction::Help => self.overlay = Overlay::Help(0),
            _ => {}
        }
    }

    fn choose(&mut self, by: i32, snapshot: &Snapshot) {
        self.row = moved(self.row, by).min(self.last_row());
        self.selected = self.process(snapshot).map(|process| process.pid);
        if self.lower == LowerPane::Detail {
            self.scrolled = 0;
        }
    }

    /// Scrolls the lower pane. Output is shown from its end, so its direction is reversed.
    fn scroll(&mut self, by: i32, drawn: &Geometry) {
        let by = match self.lower {
            // Home is the smallest number, and the largest is the furthest.
            LowerPane::Output => by.checked_neg().unwrap_or(i32::MAX),
            _ => by,
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
            let mut places = drawn.places.iter();
            if let Some(place) = places.find(|place| {
                let start = drawn.body.x + place.x;
                (start..start + place.width).contains(&column)
            }) {
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

    /// Sorts by a column; reverses the order if already sorted by it.
    fn sort_by(&mut self, column: Column, snapshot: &Snapshot) {
        let reverse = self.sort.by == column && !self.sort.reverse;
        self.sort = SortOrder { by: column, reverse };
        self.arrange(snapshot);
    }

    fn sort_next(&mut self, by: i32, snapshot: &Snapshot, drawn: &Geometry) {
        let shown = drawn.places.iter().map(|place| place.column);
        let shown: Vec<Column> = shown.filter(|column| *column != Column::History).collect();
        let now = shown.iter().position(|column| *column == self.sort.by);
        let next = match now {
            Some(now) => shown.get(moved(now, by)),
            None => shown.first(),
        };
        if let Some(column) = next
            && *column != self.sort.by
        {
            self.sort_by(*column, snapshot);
        }
    }
}

/// `from + by`, saturating at 0.
fn moved(from: usize, by: i32) -> usize {
    from.saturating_add_signed(by as isize)
}

#[cfg(test)]
mod tests;
