//! Effects of keys on the state.

use super::overlays::interval;
use super::*;
use crate::top::view::keys::KeyAction;

fn process(pid: u32, pause_ns: u64) -> ProcessFigures {
    ProcessFigures {
        pid,
        interval_pause_ns: pause_ns,
        command: format!("python {pid}.py"),
        ..ProcessFigures::default()
    }
}

fn snapshot(pids: &[u32]) -> Snapshot {
    Snapshot {
        interval_ns: 1_000_000_000,
        processes: pids.iter().map(|pid| process(*pid, u64::from(*pid))).collect(),
        ..Snapshot::default()
    }
}

fn state(snapshot: &Snapshot) -> ViewState {
    let mut state = ViewState::new(Duration::from_secs(1));
    state.arrange(snapshot);
    state
}

fn drawn() -> Geometry {
    Geometry {
        head: 2,
        body: Rect::new(0, 3, 80, 5),
        lower: Rect::new(0, 8, 80, 10),
        places: columns::places(80, 0, &snapshot(&[1])),
        first: 0,
        most_scrolled: 4,
        most_of_help: 7,
    }
}

#[test]
fn the_first_is_followed_until_one_is_chosen() {
    let mut figures = snapshot(&[1, 2, 3]);
    let mut state = state(&figures);
    assert_eq!(state.process(&figures).map(|process| process.pid), Some(3));
    figures.processes[0].interval_pause_ns = 100;
    state.arrange(&figures);
    assert_eq!(state.process(&figures).map(|process| process.pid), Some(1));
    state.apply(KeyAction::Move(1), &figures, &drawn());
    assert_eq!(state.selected, Some(3));
    figures.processes[2].interval_pause_ns = 0;
    state.arrange(&figures);
    assert_eq!((state.row, state.selected), (2, Some(3)));
}

#[test]
fn what_took_the_place_of_one_that_went() {
    let figures = snapshot(&[1, 2, 3]);
    let mut state = state(&figures);
    state.apply(KeyAction::End, &figures, &drawn());
    assert_eq!(state.selected, Some(1));
    let fewer = snapshot(&[2, 3]);
    state.arrange(&fewer);
    assert_eq!((state.row, state.selected), (1, Some(2)));
    state.arrange(&snapshot(&[]));
    assert_eq!((state.row, state.selected), (0, None));
}

#[test]
fn expanding_asks_for_more() {
    let figures = snapshot(&[1, 2]);
    let mut state = state(&figures);
    assert_eq!(state.detail(&figures), None);
    assert_eq!(state.apply(KeyAction::Expand, &figures, &drawn()), ViewEffect::Refresh);
    assert_eq!(state.detail(&figures), Some(2));
    assert_eq!(state.apply(KeyAction::Move(1), &figures, &drawn()), ViewEffect::Refresh);
    assert_eq!(state.detail(&figures), Some(1));
    assert_eq!(state.apply(KeyAction::Move(1), &figures, &drawn()), ViewEffect::Draw);
    state.apply(KeyAction::Back, &figures, &drawn());
    assert!(state.detail(&figures).is_none() && state.is_at_home());
}

#[test]
fn filter_as_typed_and_taken_back() {
    let figures = snapshot(&[11, 22]);
    let mut state = state(&figures);
    state.apply(KeyAction::Filter, &figures, &drawn());
    for char in "22".chars() {
        state.apply(KeyAction::Type(char), &figures, &drawn());
    }
    assert_eq!(state.rows.len(), 1);
    state.apply(KeyAction::Back, &figures, &drawn());
    assert_eq!((state.filter.as_str(), state.rows.len()), ("", 2));
    state.apply(KeyAction::Filter, &figures, &drawn());
    state.apply(KeyAction::Type('1'), &figures, &drawn());
    state.apply(KeyAction::Accept, &figures, &drawn());
    assert_eq!((state.filter.as_str(), state.rows.len()), ("1", 1));
    state.apply(KeyAction::Back, &figures, &drawn());
    assert!(state.filter.is_empty());
}

#[test]
fn intervals() {
    for (typed, milliseconds) in [
        ("2", Some(2000)),
        ("0.5", Some(500)),
        ("0,5", Some(500)),
        ("500ms", Some(500)),
        ("3 s", Some(3000)),
        ("1.234", Some(1200)),
        ("0", None),
        ("61", None),
        ("-1", None),
        ("nan", None),
        ("1e300", None),
        ("x", None),
    ] {
        assert_eq!(interval(typed), milliseconds.map(Duration::from_millis), "{typed}");
    }
    let figures = snapshot(&[1]);
    let mut state = state(&figures);
    assert_eq!(state.apply(KeyAction::Step(1), &figures, &drawn()), ViewEffect::Interval);
    assert_eq!(state.interval, Duration::from_secs(2));
    for _ in 0..20 {
        state.apply(KeyAction::Step(-1), &figures, &drawn());
    }
    assert_eq!(state.interval, Duration::from_millis(100));
    state.apply(KeyAction::Interval, &figures, &drawn());
    state.apply(KeyAction::Type('x'), &figures, &drawn());
    assert_eq!(state.apply(KeyAction::Accept, &figures, &drawn()), ViewEffect::Draw);
    assert!(state.message.is_some());
}

#[test]
fn clicks_choose_and_sort() {
    let figures = snapshot(&[1, 2, 3]);
    let mut state = state(&figures);
    state.apply(KeyAction::Click { column: 5, row: 4 }, &figures, &drawn());
    assert_eq!(state.selected, Some(2));
    state.apply(KeyAction::Click { column: 5, row: 7 }, &figures, &drawn());
    assert_eq!(state.selected, Some(2), "there is no such row");
    state.apply(KeyAction::Click { column: 3, row: 2 }, &figures, &drawn());
    assert_eq!((state.sort.by, state.sort.reverse), (Column::Pid, false));
    state.apply(KeyAction::Click { column: 3, row: 2 }, &figures, &drawn());
    assert_eq!((state.sort.by, state.sort.reverse), (Column::Pid, true));
    state.apply(KeyAction::Click { column: 3, row: 12 }, &figures, &drawn());
    assert_eq!(state.focus, Focus::Lower);
}

#[test]
fn scrolling_stops_at_the_ends() {
    let figures = snapshot(&[1]);
    let mut state = state(&figures);
    state.apply(KeyAction::NextPane, &figures, &drawn());
    state.apply(KeyAction::End, &figures, &drawn());
    assert_eq!(state.scrolled, 4);
    state.apply(KeyAction::Move(-1), &figures, &drawn());
    assert_eq!(state.scrolled, 3);
    // Output is shown from its end.
    state.apply(KeyAction::Output, &figures, &drawn());
    state.apply(KeyAction::Move(-1), &figures, &drawn());
    assert_eq!(state.scrolled, 1);
    state.apply(KeyAction::Help, &figures, &drawn());
    state.apply(KeyAction::End, &figures, &drawn());
    assert_eq!(state.overlay, Overlay::Help(7));
    state.apply(KeyAction::Pause, &figures, &drawn());
    assert_eq!(state.overlay, Overlay::None);
    assert!(!state.paused, "any key only closes the help");
}

#[test]
fn leaving_and_interrupting_from_anywhere() {
    let figures = snapshot(&[1]);
    for open in [KeyAction::Help, KeyAction::SortMenu, KeyAction::Filter, KeyAction::Interval] {
        let mut state = state(&figures);
        state.apply(open, &figures, &drawn());
        assert_eq!(state.apply(KeyAction::Interrupt, &figures, &drawn()), ViewEffect::Interrupt);
        assert_eq!(state.apply(KeyAction::Quit, &figures, &drawn()), ViewEffect::Quit);
    }
}

#[test]
fn pausing_and_going_on() {
    let figures = snapshot(&[1]);
    let mut state = state(&figures);
    assert_eq!(state.apply(KeyAction::Pause, &figures, &drawn()), ViewEffect::Draw);
    assert!(state.paused);
    assert_eq!(state.apply(KeyAction::Pause, &figures, &drawn()), ViewEffect::Refresh);
    assert!(!state.paused);
}

#[test]
fn sorting_by_the_next_column() {
    let figures = snapshot(&[1, 2]);
    let mut state = state(&figures);
    state.apply(KeyAction::SortNext(1), &figures, &drawn());
    assert_eq!(state.sort.by, Column::Share);
    state.apply(KeyAction::SortNext(-1), &figures, &drawn());
    state.apply(KeyAction::SortNext(-1), &figures, &drawn());
    assert_eq!(state.sort.by, Column::Pid);
    state.apply(KeyAction::SortNext(-1), &figures, &drawn());
    assert_eq!(state.sort.by, Column::Pid);
}
