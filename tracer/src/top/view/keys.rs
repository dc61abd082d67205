//! Which key or click means what, as in top, htop and less.

use super::columns::Column;
use ratatui::crossterm::event::Event;
use ratatui::crossterm::event::KeyCode;
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::event::KeyModifiers;
use ratatui::crossterm::event::MouseEvent;
use ratatui::crossterm::event::MouseEventKind;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    /// The chosen row, or lines of a pane, by so many.
    Move(i32),
    /// By so many pages.
    Page(i32),
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Columns to the left or right.
    Sideways(i32),
    /// More about the chosen process, or no more.
    Expand,
    /// Out of whatever was opened last.
    Back,
    /// Sort by the next column to the left or right.
    SortNext(i32),
    /// Sort by this column.
    SortBy(Column),
    /// The other way round.
    Reverse,
    /// Choose the column from a list.
    SortMenu,
    /// Type a filter.
    Filter,
    /// Stop or go on changing the display.
    Pause,
    /// Type an interval.
    Interval,
    /// A shorter or longer interval.
    Step(i32),
    /// The keys.
    Help,
    /// The other pane.
    NextPane,
    /// The command's output.
    Output,
    /// The log of long pauses.
    Log,
    /// Notices.
    Notices,
    /// Leave.
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// Draw everything again.
    Redraw,
    /// Ctrl-Z.
    Suspend,
    /// A button was pressed here.
    Click {
        /// Counted from the left of the screen.
        column: u16,
        /// Counted from its top.
        row: u16,
    },
    /// The wheel was turned here.
    Wheel {
        /// Counted from the top of the screen.
        row: u16,
        /// Up is negative.
        by: i32,
    },
    /// A character for a prompt.
    Type(char),
    /// The last one away.
    Erase,
    /// All away.
    EraseAll,
    /// That is it.
    Accept,
}

/// Lines by which one turn of the wheel moves.
const WHEEL: i32 = 3;

/// What an event means; `typing`: in a prompt.
pub(crate) fn action(event: &Event, typing: bool) -> Option<KeyAction> {
    match event {
        Event::Key(key) => match common(*key) {
            Some(action) => Some(action),
            None if typing => prompt(*key),
            None => command(*key),
        },
        Event::Mouse(mouse) => clicked(*mouse),
        _ => None,
    }
}

/// The same everywhere.
fn common(key: KeyEvent) -> Option<KeyAction> {
    if !key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::F(10) => Some(KeyAction::Quit),
            KeyCode::F(1) => Some(KeyAction::Help),
            KeyCode::Up => Some(KeyAction::Move(-1)),
            KeyCode::Down => Some(KeyAction::Move(1)),
            KeyCode::PageUp => Some(KeyAction::Page(-1)),
            KeyCode::PageDown => Some(KeyAction::Page(1)),
            KeyCode::Esc => Some(KeyAction::Back),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Char('c') => Some(KeyAction::Interrupt),
        KeyCode::Char('l') => Some(KeyAction::Redraw),
        KeyCode::Char('z') => Some(KeyAction::Suspend),
        _ => None,
    }
}

fn prompt(key: KeyEvent) -> Option<KeyAction> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('u' | 'w') => Some(KeyAction::EraseAll),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Char(char) => Some(KeyAction::Type(char)),
        KeyCode::Backspace => Some(KeyAction::Erase),
        KeyCode::Enter => Some(KeyAction::Accept),
        _ => None,
    }
}

fn command(key: KeyEvent) -> Option<KeyAction> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('f') => Some(KeyAction::Page(1)),
            KeyCode::Char('b') => Some(KeyAction::Page(-1)),
            KeyCode::Char('n') => Some(KeyAction::Move(1)),
            KeyCode::Char('p') => Some(KeyAction::Move(-1)),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Left => Some(KeyAction::Sideways(-1)),
        KeyCode::Right => Some(KeyAction::Sideways(1)),
        KeyCode::Home => Some(KeyAction::Home),
        KeyCode::End => Some(KeyAction::End),
        KeyCode::Enter => Some(KeyAction::Expand),
        KeyCode::Tab | KeyCode::BackTab => Some(KeyAction::NextPane),
        KeyCode::F(4) => Some(KeyAction::Filter),
        KeyCode::F(6) => Some(KeyAction::SortMenu),
        KeyCode::Char(char) => letter(char),
        _ => None,
    }
}

fn letter(char: char) -> Option<KeyAction> {
    Some(match char {
        'j' => KeyAction::Move(1),
        'k' => KeyAction::Move(-1),
        'g' => KeyAction::Home,
        'G' => KeyAction::End,
        'e' => KeyAction::Expand,
        '<' | ',' => KeyAction::SortNext(-1),
        '>' | '.' => KeyAction::SortNext(1),
        'P' => KeyAction::SortBy(Column::Rate),
        'M' => KeyAction::SortBy(Column::Resident),
        'N' => KeyAction::SortBy(Column::Pid),
        'T' => KeyAction::SortBy(Column::Total),
        'W' => KeyAction::SortBy(Column::Worst),
        'S' => KeyAction::SortMenu,
        'I' | 'R' => KeyAction::Reverse,
        '/' | '\\' => KeyAction::Filter,
        'p' | ' ' => KeyAction::Pause,
        'd' | 's' => KeyAction::Interval,
        '+' | '=' => KeyAction::Step(1),
        '-' => KeyAction::Step(-1),
        'h' | '?' => KeyAction::Help,
        'o' => KeyAction::Output,
        'l' => KeyAction::Log,
        'n' => KeyAction::Notices,
        'q' => KeyAction::Quit,
        _ => return None,
    })
}

fn clicked(mouse: MouseEvent) -> Option<KeyAction> {
    let (column, row) = (mouse.column, mouse.row);
    match mouse.kind {
        MouseEventKind::Down(_) => Some(KeyAction::Click { column, row }),
        MouseEventKind::ScrollUp => Some(KeyAction::Wheel { row, by: -WHEEL }),
        MouseEventKind::ScrollDown => Some(KeyAction::Wheel { row, by: WHEEL }),
        _ => None,
    }
}

/// The keys, for the help: what to press, what it does.
pub(crate) const HELP: [(&str, &str); 17] = [
    ("Up Down j k", "choose a process; PgUp PgDn Home End too"),
    (
        "Enter e",
        "more about it: pause times, lines, steps, GPU; again: less",
    ),
    ("Esc", "back: closes what was opened, clears the filter"),
    ("Left Right", "other columns"),
    ("< >  F6 S", "sort by the next column; choose from a list"),
    (
        "P M N T W",
        "sort by GC ms/s, RSS, pid, GC time, worst pause",
    ),
    ("I R", "reverse the order"),
    (
        "/ \\ F4",
        "filter: words in rank, pid, command; rank:3 pid:123",
    ),
    ("Space p", "stop the display; recording goes on"),
    ("d s  + -", "change the interval"),
    (
        "l o n",
        "below: log of long pauses, output of the command, notices",
    ),
    ("Tab", "the other pane, to scroll it"),
    ("h ? F1", "this help"),
    (
        "Ctrl-C",
        "interrupts the command; twice, or without one: leaves",
    ),
    ("Ctrl-Z Ctrl-L", "suspends; draws again"),
    ("q F10", "leaves; a command goes on"),
    (
        "Mouse",
        "click: row, column to sort by; wheel; with Shift: select text",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: KeyCode, modifiers: KeyModifiers, typing: bool) -> Option<KeyAction> {
        action(&Event::Key(KeyEvent::new(code, modifiers)), typing)
    }

    #[test]
    fn letters_are_commands_or_text() {
        let q = KeyCode::Char('q');
        assert_eq!(of(q, KeyModifiers::NONE, false), Some(KeyAction::Quit));
        assert_eq!(of(q, KeyModifiers::NONE, true), Some(KeyAction::Type('q')));
        assert_eq!(
            of(KeyCode::F(10), KeyModifiers::NONE, true),
            Some(KeyAction::Quit)
        );
        assert_eq!(
            of(KeyCode::Enter, KeyModifiers::NONE, true),
            Some(KeyAction::Accept)
        );
        assert_eq!(
            of(KeyCode::Enter, KeyModifiers::NONE, false),
            Some(KeyAction::Expand)
        );
    }

    #[test]
    fn control_c_is_never_text() {
        for typing in [false, true] {
            let pressed = of(KeyCode::Char('c'), KeyModifiers::CONTROL, typing);
            assert_eq!(pressed, Some(KeyAction::Interrupt));
        }
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::NONE, false), None);
    }
}
