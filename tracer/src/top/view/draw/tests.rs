//! Screens of fixed figures as text, and robustness against sizes and names.

mod feed;
mod figures;

use super::*;
use crate::top::view::columns::Column;
use crate::top::view::keys;
use crate::top::view::state::ViewEffect;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use std::fmt::Write as _;
use std::time::Duration;

const COLORED: Theme = Theme { colors: true, unicode: true };
const PLAIN: Theme = Theme { colors: false, unicode: false };

/// A view without a terminal.
pub(crate) struct Scene {
    pub(crate) snapshot: Snapshot,
    pub(crate) state: ViewState,
    pub(crate) phase: LivePhase,
    pub(crate) tail: Option<FileTail>,
    pub(crate) theme: Theme,
    pub(crate) size: (u16, u16),
}

impl Scene {
    fn new(snapshot: Snapshot, size: (u16, u16)) -> Self {
        let mut state = ViewState::new(Duration::from_secs(1));
        state.arrange(&snapshot);
        Self { snapshot, state, phase: LivePhase::Recording, tail: None, theme: COLORED, size }
    }

    fn frame(&self) -> ViewFrame<'_> {
        ViewFrame {
            snapshot: &self.snapshot,
            state: &self.state,
            phase: &self.phase,
            tail: self.tail.as_ref(),
            command: Some("python train.py"),
            utc_offset_s: 0,
            theme: self.theme,
        }
    }

    /// Draws into a terminal of this size.
    fn terminal(&self) -> (Terminal<TestBackend>, Geometry) {
        let backend = TestBackend::new(self.size.0, self.size.1);
        let mut terminal = Terminal::new(backend).expect("a terminal");
        let frame = self.frame();
        let mut geometry = Geometry::default();
        let drawn = terminal.draw(|target| geometry = draw(&frame, target.buffer_mut()));
        drawn.expect("drawn");
        (terminal, geometry)
    }

    /// The screen as text, without trailing spaces.
    fn text(&self) -> String {
        let (terminal, _) = self.terminal();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for row in buffer.content.chunks(usize::from(self.size.0.max(1))) {
            let mut line = String::new();
            let mut covered = 0;
            for cell in row {
                if covered == 0 {
                    covered = text::width(cell.symbol()).saturating_sub(1);
                    line += cell.symbol();
                } else {
                    covered -= 1;
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    fn press(&mut self, code: KeyCode) -> ViewEffect {
        let (_, geometry) = self.terminal();
        let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        match keys::action(&event, self.state.is_typing()) {
            Some(action) => self.state.apply(action, &self.snapshot, &geometry),
            None => ViewEffect::Draw,
        }
    }

    fn type_text(&mut self, text: &str) {
        for char in text.chars() {
            self.press(KeyCode::Char(char));
        }
    }
}

fn small() -> Scene {
    Scene::new(figures::training(), (80, 24))
}

#[test]
fn first_screen() {
    insta::assert_snapshot!("main_80x24", small().text());
    let scene = |size| Scene::new(figures::training(), size);
    insta::assert_snapshot!("main_120x40", scene((120, 40)).text());
    insta::assert_snapshot!("main_200x50", scene((200, 50)).text());
}

/// From records to the screen.
#[test]
fn a_recording() {
    for size in [(80, 24), (120, 40), (200, 50)] {
        let mut scene = Scene::new(feed::snapshot(None), size);
        let name = format!("recording_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, scene.text());
        scene.press(KeyCode::Enter);
        assert_eq!(scene.state.detail(&scene.snapshot), Some(feed::CHOSEN));
        scene.snapshot = feed::snapshot(Some(feed::CHOSEN));
        let name = format!("recording_expanded_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, scene.text());
    }
}

#[test]
fn without_ranks_and_gpus() {
    let scene = Scene::new(figures::plain(), (80, 24));
    insta::assert_snapshot!("without_ranks_80x24", scene.text());
}

#[test]
fn expanded() {
    for size in [(80, 24), (120, 40), (200, 50)] {
        let mut scene = Scene::new(figures::training(), size);
        assert_eq!(scene.press(KeyCode::Enter), ViewEffect::Refresh);
        let name = format!("expanded_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, scene.text());
    }
}

#[test]
fn expanded_with_garbage() {
    for size in [(80, 24), (120, 40), (200, 50)] {
        let mut scene = Scene::new(figures::garbage(), size);
        scene.press(KeyCode::Enter);
        let name = format!("garbage_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, scene.text());
    }
}

#[test]
fn expanded_with_layers() {
    for size in [(80, 24), (120, 40)] {
        let mut scene = Scene::new(figures::layers(), size);
        scene.press(KeyCode::Enter);
        let name = format!("layers_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, scene.text());
    }
}

/// Lines of the program leave room for what is below them; scrolled, all are there.
#[test]
fn layers_below_many_lines() {
    let mut snapshot = figures::layers();
    if let Some(detail) = &mut snapshot.detail {
        let one = detail.lines[0].clone();
        detail.lines.resize(20, one);
    }
    let mut scene = Scene::new(snapshot, (120, 40));
    scene.press(KeyCode::Enter);
    let text = scene.text();
    let shown = text.matches("19.0 s").count();
    assert!(shown >= 5 && text.contains("(model) GPT2LMHeadModel"), "{text}");
    scene.state.scrolled = 1;
    let text = scene.text();
    assert!(text.matches("19.0 s").count() > shown, "{text}");
}

#[test]
fn filtered() {
    let mut scene = small();
    scene.type_text("/rank:2");
    insta::assert_snapshot!("filter_typed_80x24", scene.text());
    scene.press(KeyCode::Enter);
    insta::assert_snapshot!("filtered_80x24", scene.text());
    scene.type_text("/x");
    insta::assert_snapshot!("filter_without_match_80x24", scene.text());
}

#[test]
fn overlays() {
    let mut scene = small();
    scene.press(KeyCode::Char('?'));
    insta::assert_snapshot!("help_80x24", scene.text());
    scene.press(KeyCode::PageDown);
    insta::assert_snapshot!("help_further_80x24", scene.text());
    let mut scene = small();
    scene.press(KeyCode::F(6));
    insta::assert_snapshot!("sort_menu_80x24", scene.text());
    let mut scene = small();
    scene.type_text("d0.5");
    insta::assert_snapshot!("interval_80x24", scene.text());
}

#[test]
fn paused_and_ended() {
    let mut scene = small();
    scene.press(KeyCode::Char(' '));
    insta::assert_snapshot!("paused_80x24", scene.text());
    let mut scene = small();
    scene.phase = LivePhase::Ended(vec![
        "the command ended with exit code 0".to_owned(),
        "The trace is in trace.json.".to_owned(),
    ]);
    insta::assert_snapshot!("ended_80x24", scene.text());
}

#[test]
fn output_of_the_command() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("output");
    std::fs::write(&path, "epoch 1\n\x1b[32mloss 0.5\x1b[0m\n 10%\r 90%\r100%\n").expect("written");
    let mut scene = small();
    let mut tail = FileTail::new(crate::top::output::CommandFile::at(path));
    tail.refresh();
    scene.tail = Some(tail);
    scene.press(KeyCode::Char('o'));
    let folder = place.path().display().to_string();
    let text = scene.text();
    let line = text.lines().find(|line| line.contains("Output of")).expect("a title");
    assert!(line.contains(&folder), "{line}");
    let text = text.replace(line, "── Output of the command: FILE ──");
    insta::assert_snapshot!("output_80x24", text);
}

#[test]
fn nothing_yet() {
    let snapshot =
        Snapshot { interval_ns: 1_000_000_000, long_pause_ns: 10_000_000, ..Snapshot::default() };
    insta::assert_snapshot!("empty_80x24", Scene::new(snapshot, (80, 24)).text());
}

#[test]
fn notices() {
    let mut scene = small();
    scene.type_text("n");
    insta::assert_snapshot!("notices_80x24", scene.text());
}

#[test]
fn many_processes() {
    let mut scene = Scene::new(figures::many(1000), (80, 24));
    insta::assert_snapshot!("many_80x24", scene.text());
    scene.press(KeyCode::End);
    insta::assert_snapshot!("many_at_the_end_80x24", scene.text());
    let scene = Scene::new(figures::many(1000), (200, 50));
    insta::assert_snapshot!("many_200x50", scene.text());
}

#[test]
fn other_columns() {
    let mut scene = small();
    for _ in 0..6 {
        scene.press(KeyCode::Right);
    }
    insta::assert_snapshot!("scrolled_80x24", scene.text());
}

#[test]
fn without_colors_and_unicode() {
    let mut scene = small();
    scene.theme = PLAIN;
    scene.press(KeyCode::Enter);
    let text = scene.text();
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!("ascii_80x24", text);
    let (terminal, _) = scene.terminal();
    let colored = |cell: &ratatui::buffer::Cell| {
        cell.fg != ratatui::style::Color::Reset || cell.bg != ratatui::style::Color::Reset
    };
    assert!(!terminal.backend().buffer().content.iter().any(colored));
}

#[test]
fn only_the_eight_colors() {
    use ratatui::style::Color;
    let scene = Scene::new(figures::training(), (200, 50));
    let (terminal, _) = scene.terminal();
    for cell in &terminal.backend().buffer().content {
        let usual = [Color::Reset, Color::Green, Color::Yellow, Color::Red, Color::Cyan];
        assert!(usual.contains(&cell.fg) && cell.bg == Color::Reset, "{cell:?}");
    }
}

#[test]
fn hostile_names() {
    let scene = Scene::new(figures::hostile(), (80, 24));
    let text = scene.text();
    assert!(!text.chars().any(|char| char.is_control() && char != '\n'));
    assert!(!text.contains('\u{202e}'));
    for line in text.lines() {
        assert!(text::width(line) <= 80, "{line}");
    }
    insta::assert_snapshot!("hostile_80x24", text);
}

#[test]
fn any_size() {
    for (first, keys) in (0..).zip(["", "e", "o", "n", "?", "S", "/a", "d1", " "]) {
        let mut scene = small();
        scene.type_text(keys);
        for (width, height) in
            (0..=120).flat_map(|width| (0..=30).map(move |height| (width, height)))
        {
            // Every width and every height, other pairs for other keys; all heights where there is
            // hardly any width.
            if (width + height) % 11 == first || width < 3 {
                scene.theme = if width % 2 == 0 { COLORED } else { PLAIN };
                let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                draw(&scene.frame(), &mut buffer);
            }
        }
    }
}

#[test]
fn from_the_keys_to_the_rows() {
    let mut scene = small();
    let pids = |scene: &Scene| -> Vec<u32> {
        let row = |index: &usize| scene.snapshot.processes[*index].pid;
        scene.state.rows.iter().map(row).collect()
    };
    assert_eq!(pids(&scene), [4245, 4242, 4243, 4244]);
    scene.type_text("N");
    assert_eq!(pids(&scene), [4242, 4243, 4244, 4245]);
    scene.type_text("I");
    assert_eq!(pids(&scene), [4245, 4244, 4243, 4242]);
    scene.type_text("P");
    assert_eq!(scene.state.sort.by, Column::Rate);
    scene.press(KeyCode::Down);
    assert_eq!(scene.state.selected, Some(4242));
    // The selection follows the process in any order.
    scene.type_text("N");
    assert_eq!((scene.state.row, scene.state.selected), (0, Some(4242)));
}

proptest! {
    #[test]
    fn any_keys(keys in proptest::collection::vec(any_key(), 0..60), width in 0_u16..140, height in 0_u16..60) {
        let mut scene = Scene::new(figures::training(), (width, height));
        for key in keys {
            let (_, geometry) = scene.terminal();
            if let Some(action) = keys::action(&key, scene.state.is_typing()) {
                scene.state.apply(action, &scene.snapshot, &geometry);
            }
            scene.state.arrange(&scene.snapshot);
            prop_assert!(scene.state.rows.is_empty() || scene.state.row < scene.state.rows.len());
        }
        scene.terminal();
    }
}

fn any_key() -> impl Strategy<Value = Event> {
    use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let codes = prop_oneof![
        Just(KeyCode::Up),
        Just(KeyCode::Down),
        Just(KeyCode::PageUp),
        Just(KeyCode::PageDown),
        Just(KeyCode::Home),
        Just(KeyCode::End),
        Just(KeyCode::Left),
        Just(KeyCode::Right),
        Just(KeyCode::Enter),
        Just(KeyCode::Esc),
        Just(KeyCode::Tab),
        Just(KeyCode::Backspace),
        Just(KeyCode::F(6)),
        proptest::char::range(' ', '~').prop_map(KeyCode::Char),
    ];
    let keys = codes.prop_map(|code| Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    let mouse = (0_u16..150, 0_u16..70, 0..3).prop_map(|(column, row, kind)| {
        let kind = match kind {
            0 => MouseEventKind::Down(MouseButton::Left),
            1 => MouseEventKind::ScrollUp,
            _ => MouseEventKind::ScrollDown,
        };
        Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    });
    prop_oneof![4 => keys, 1 => mouse]
}

/// A measurement: `cargo test --release -p gctrace drawing_time -- --ignored --nocapture` prints the
/// time per frame.
#[test]
#[ignore = "measures"]
fn drawing_time() {
    let mut scene = Scene::new(figures::many(1000), (200, 50));
    scene.type_text("e");
    let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 50));
    let mut shown = buffer.clone();
    let rounds = 200_u32;
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        scene.state.arrange(&scene.snapshot);
        buffer.reset();
        draw(&scene.frame(), &mut buffer);
        std::hint::black_box(shown.diff(&buffer).len());
        std::mem::swap(&mut shown, &mut buffer);
    }
    println!("{:?} a frame", start.elapsed() / rounds);
}
