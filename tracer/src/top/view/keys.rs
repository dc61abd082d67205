//! Key and mouse bindings, as in top, htop and less.

use super::columns::Column;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind,
};

/// A command of the user, independent of the key or mouse event that requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    /// Move the selected row, or scroll a pane, by this number of lines.
    Move(i32),
    /// Move by this number of pages.
    Page(i32),
    /// Go to the first line.
    Home,
    /// Go to the last line.
    End,
    /// Scroll columns to the left or right.
    Sideways(i32),
    /// Toggle the details of the selected process.
    Expand,
    /// Close the last thing opened.
    Back,
    /// Sort by the next column to the left or right.
    SortNext(i32),
    /// Sort by this column.
    SortBy(Column),
    /// Reverse the order.
    Reverse,
    /// Open the sort menu.
    SortMenu,
    /// Type a filter.
    Filter,
    /// Pause or resume the display.
    Pause,
    /// Type an interval.
    Interval,
    /// Shorten or lengthen the interval by one step.
    Step(i32),
    /// Open the help.
    Help,
    /// Focus the other pane.
    NextPane,
    /// Toggle the command's output.
    Output,
    /// Show the log of long pauses.
    Log,
    /// Toggle the notices.
    Notices,
    /// Quit.
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// Redraw the whole screen.
    Redraw,
    /// Ctrl-Z.
    Suspend,
    /// A mouse button was pressed.
    Click {
        /// Column of the screen, from 0.
        column: u16,
        /// Row of the screen, from 0.
        row: u16,
    },
    /// The mouse wheel was turned.
    Wheel {
        /// Row of the screen, from 0.
        row: u16,
        /// Number of lines; negative is up.
        by: i32,
    },
    /// Type a character into a prompt.
    Type(char),
    /// Erase the last character.
    Erase,
    /// Erase all characters.
    EraseAll,
    /// Accept the typed text.
    Accept,
}

/// Lines per step of the mouse wheel.
const WHEEL: i32 = 3;

/// The action bound to an event; `typing`: whether a prompt is open.
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

/// Bindings with and without a prompt.
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

/// The help on keys: keys and their effect.
pub(crate) const HELP: [(&str, &str); 17] = [
    ("Up Down j k", "select a process; also PgUp PgDn Home End"),
    ("Enter e", "toggle its details: pause lengths, lines, steps, GPU"),
    ("Esc", "back: close the window, clear the filter"),
    ("Left Right", "scroll columns"),
    ("< >  F6 S", "sort by the next column; open the sort menu"),
    ("P M N T W", "sort by GC ms/s, RSS, PID, GC TIME, WORST"),
    ("I R", "reverse the order"),
    ("/ \\ F4", "filter: words in rank, pid, command; rank:3 pid:123"),
    ("Space p", "pause the display; recording continues"),
    ("d s  + -", "change the refresh interval"),
    ("l o n", "lower pane: log of long pauses, command output, notices"),
    ("Tab", "switch focus between the table and the lower pane"),
    ("h ? F1", "this help"),
    ("Ctrl-C", "interrupt the command; twice, or without a command: quit"),
    ("Ctrl-Z Ctrl-L", "suspend; redraw"),
    ("q F10", "quit; the command keeps running"),
    ("Mouse", "click: select row, sort by column; wheel; Shift: select text"),
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
        assert_eq!(of(KeyCode::F(10), KeyModifiers::NONE, true), Some(KeyAction::Quit));
        assert_eq!(of(KeyCode::Enter, KeyModifiers::NONE, true), Some(KeyAction::Accept));
        assert_eq!(of(KeyCode::Enter, KeyModifiers::NONE, false), Some(KeyAction::Expand));
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
