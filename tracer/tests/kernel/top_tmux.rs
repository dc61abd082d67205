//! The full-screen view in tmux, used like a person would; and the terminal afterwards, however the
//! view ended.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "tests"
)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use test_kit::recording;
use test_kit::recording::tmux::{Tmux, has_tmux};
use test_kit::recording::wait_until;

/// Collects young and old generations until its file is gone, then prints a message.
const SCRIPT: &str = r#"
import gc, os, sys, time
keep = [[number] for number in range(300_000)]
rounds = 0
while os.path.exists(sys.argv[1]):
    for _ in range(5_000):
        cycle = []
        cycle.append(cycle)
    gc.collect()
    rounds += 1
    print("round", rounds, flush=True)
    time.sleep(0.05)
"#;

/// A shell in a terminal, and a program to watch.
struct TmuxSession {
    tmux: Tmux,
    place: tempfile::TempDir,
    python: PathBuf,
}

impl TmuxSession {
    /// `None`, with a message, if the tests cannot run here.
    fn new(test: &str, shell: &[&str]) -> Option<Self> {
        if !has_tmux(test) {
            return None;
        }
        let (python, place) = recording::place_for(test)?;
        std::fs::write(place.path().join("churn.py"), SCRIPT).unwrap();
        std::fs::write(place.path().join("go"), "").unwrap();
        let tmux = Tmux::start(place.path(), (80, 24), shell);
        let desk = Self { tmux, place, python };
        desk.tmux.line("stty -a > before");
        Some(desk)
    }

    /// The program's command line.
    fn program(&self) -> String {
        format!("{} churn.py go", self.python.display())
    }

    fn top(&self, options: &str) {
        let line = format!("{} top {options}", recording::binary());
        self.tmux.line(&line);
    }

    fn top_of_program(&self, options: &str) {
        self.top(&format!("{options} -- {}", self.program()));
    }

    fn wait_for_rows(&self) -> String {
        self.tmux.wait_for("a row of the program", |screen| {
            let row = |line: &str| line.contains("churn.py go") && line.contains(" ms ");
            screen.starts_with("gctrace top") && screen.lines().any(row)
        })
    }

    fn end_program(&self) {
        let _ = std::fs::remove_file(self.place.path().join("go"));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Asserts that the terminal is restored: mode, screen, cursor, no mouse reports; and works.
    fn terminal_is_as_before(&self) {
        let tmux = &self.tmux;
        wait_until("the usual screen", || tmux.variable("alternate_on") == "0");
        wait_until("the shell", || {
            // The guardian's output may mix with the shell's prompt.
            tmux.press(&["Enter"]);
            tmux.line("stty -a > after; echo shell-$((6*7))");
            std::thread::sleep(std::time::Duration::from_millis(200));
            tmux.screen().contains("shell-42")
        });
        let modes = |name: &str| std::fs::read_to_string(self.file(name)).unwrap_or_default();
        wait_until("stty's answer", || !modes("after").is_empty());
        assert_eq!(modes("before"), modes("after"));
        assert_eq!(tmux.variable("cursor_flag"), "1");
        assert_eq!(tmux.variable("mouse_any_flag"), "0");
    }

    /// gctrace's process: the child of the shell.
    fn gctrace(&self) -> Pid {
        let shell = self.tmux.variable("pane_pid");
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(children).unwrap();
        let of_name = |pid: &&str| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "gctrace")
        };
        let pid = children.split_whitespace().find(of_name);
        Pid::from_raw(pid.expect("gctrace").parse().unwrap())
    }

    /// Starts the program without gctrace. Returns its pid.
    fn start_program(&self) -> String {
        let tmux = &self.tmux;
        tmux.line(&format!("{} > output & echo $! > pid", self.program()));
        let pid = self.file("pid");
        wait_until("a pid", || std::fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')));
        std::fs::read_to_string(pid).unwrap().trim().to_owned()
    }
}

impl Drop for TmuxSession {
    fn drop(&mut self) {
        self.end_program();
    }
}

/// The process in the first row about the program.
fn pid_of_row(screen: &str) -> Pid {
    let mut rows = screen.lines().filter(|line| line.contains("churn.py go"));
    let pid = rows.next().and_then(|row| row.split_whitespace().next());
    Pid::from_raw(pid.unwrap().parse().unwrap())
}

const SH: [&str; 1] = ["sh"];
const BASH: [&str; 3] = ["bash", "--norc", "--noprofile"];

#[test]
fn as_a_person_would() {
    let Some(desk) = TmuxSession::new("as_a_person_would", &BASH) else {
        return;
    };
    let tmux = &desk.tmux;
    desk.top_of_program("");
    let screen = desk.wait_for_rows();
    assert!(screen.starts_with("gctrace top"), "{screen}");
    tmux.wait_for("long pauses", |screen| screen.contains("gen 2 manual"));
    sorted(tmux);
    expanded(tmux);
    filtered(tmux);
    stopped(tmux);
    helped(tmux);
    output_shown(tmux);
    resized(tmux);
    tmux.press(&["q"]);
    tmux.wait_for_words("the command keeps running");
    tmux.line("echo code-$?");
    tmux.wait_for_words("code-0");
    desk.terminal_is_as_before();
}

fn sorted(tmux: &Tmux) {
    tmux.press(&["N"]);
    tmux.wait_for_words("PID▼");
    tmux.press(&["I"]);
    tmux.wait_for_words("PID▲");
    tmux.press(&[">"]);
    tmux.wait_for_words("GC ms/s▼");
    tmux.press(&["F6"]);
    tmux.wait_for_words("Sort by");
    tmux.press(&["Down", "Down", "Enter"]);
    tmux.wait_for_words("SHARE%▼");
    tmux.press(&["P"]);
    let screen = tmux.wait_for_words("GC ms/s▼");
    // By a click on its title.
    let head = screen.lines().position(|line| line.contains("GC ms/s▼")).unwrap();
    let column = screen.lines().nth(head).unwrap().find("PID").unwrap();
    tmux.click(u16::try_from(column).unwrap() + 1, u16::try_from(head).unwrap() + 1);
    tmux.wait_for_words("PID▼");
    tmux.press(&["P"]);
    tmux.wait_for_words("GC ms/s▼");
}

fn expanded(tmux: &Tmux) {
    tmux.press(&["Enter"]);
    let screen = tmux.wait_for("the lines", |screen| {
        screen.contains("LINE WITH MOST GC TIME") && screen.contains("churn.py:")
    });
    assert!(screen.contains("gen 2"), "{screen}");
    tmux.press(&["Escape"]);
    tmux.wait_for_words("newest first");
}

fn filtered(tmux: &Tmux) {
    tmux.press(&["/"]);
    tmux.wait_for_words("Filter: _");
    tmux.press(&["z", "z", "z"]);
    tmux.wait_for_words("Nothing matches \"zzz\"");
    tmux.press(&["BSpace", "BSpace", "BSpace", "C", "h", "u", "r", "n", "Enter"]);
    tmux.wait_for_words("Filter: Churn");
    tmux.press(&["Escape"]);
    tmux.wait_for("no filter", |screen| !screen.contains("Filter: "));
}

fn stopped(tmux: &Tmux) {
    tmux.press(&["Space"]);
    tmux.wait_for_words("PAUSED");
    tmux.press(&["Space"]);
    tmux.wait_for("the display resumes", |screen| !screen.contains("PAUSED"));
    tmux.press(&["d"]);
    tmux.wait_for_words("Refresh interval in seconds");
    tmux.press(&["0", ".", "5", "Enter"]);
    tmux.wait_for_words("every 0.5 s");
}

fn helped(tmux: &Tmux) {
    tmux.press(&["?"]);
    let screen = tmux.wait_for_words("gctrace top: keys");
    assert!(screen.contains("Ctrl-C"), "{screen}");
    tmux.press(&["PageDown"]);
    tmux.wait_for_words("OVERLAP%");
    tmux.press(&["Escape"]);
    tmux.wait_for_words("newest first");
}

fn output_shown(tmux: &Tmux) {
    tmux.press(&["o"]);
    tmux.wait_for("the program's lines", |screen| {
        screen.contains("Output of the command") && screen.contains("round ")
    });
    tmux.press(&["l"]);
    tmux.wait_for_words("newest first");
}

fn resized(tmux: &Tmux) {
    tmux.resize(120, 40);
    tmux.wait_for("more columns", |screen| {
        screen.contains("OBJECTS") && screen.lines().count() == 40
    });
    for (columns, lines) in [(40, 10), (5, 3), (1, 1), (200, 50)] {
        tmux.resize(columns, lines);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    tmux.resize(80, 24);
    tmux.wait_for("the first size", |screen| {
        screen.starts_with("gctrace top")
            && screen.contains("newest first")
            && screen.contains("q Quit")
    });
}

/// dash does not repair the terminal mode that a program leaves behind.
#[test]
fn gctrace_is_killed() {
    let Some(desk) = TmuxSession::new("gctrace_is_killed", &SH) else {
        return;
    };
    desk.top_of_program("");
    desk.wait_for_rows();
    assert_eq!(desk.tmux.variable("alternate_on"), "1");
    kill(desk.gctrace(), Signal::SIGKILL).unwrap();
    desk.terminal_is_as_before();
}

#[test]
fn gctrace_is_told_to_end() {
    let Some(desk) = TmuxSession::new("gctrace_is_told_to_end", &SH) else {
        return;
    };
    let pid = desk.start_program();
    desk.top(&format!("-p {pid}"));
    desk.wait_for_rows();
    kill(desk.gctrace(), Signal::SIGTERM).unwrap();
    desk.terminal_is_as_before();
}

#[test]
fn interrupted_by_the_keyboard() {
    let Some(desk) = TmuxSession::new("interrupted_by_the_keyboard", &SH) else {
        return;
    };
    desk.top_of_program("");
    desk.wait_for_rows();
    desk.tmux.press(&["C-c"]);
    // The program ends by KeyboardInterrupt, and its words are repeated.
    desk.tmux.wait_for("the command's end", |screen| {
        screen.contains("KeyboardInterrupt") || screen.contains("Press q to quit")
    });
    desk.tmux.press(&["q"]);
    desk.terminal_is_as_before();
}

#[test]
fn the_command_ends() {
    let Some(desk) = TmuxSession::new("the_command_ends", &SH) else {
        return;
    };
    desk.top_of_program("--record trace.json");
    desk.wait_for_rows();
    desk.end_program();
    let screen = desk.tmux.wait_for_words("Press q to quit");
    assert!(screen.contains("ENDED") && screen.contains("exit code 0"), "{screen}");
    // The trace is closed while the view stays.
    let trace = recording::Trace::read(&desk.file("trace.json"));
    assert!(!trace.pauses().is_empty());
    trace.assert_nothing_lost();
    // The end is still shown.
    std::thread::sleep(std::time::Duration::from_secs(7));
    desk.tmux.press(&["Enter"]);
    let screen = desk.tmux.wait_for_words("LINE WITH MOST GC TIME");
    assert!(screen.contains("[ended] ch"), "{screen}");
    desk.tmux.press(&["q"]);
    desk.terminal_is_as_before();
}

#[test]
fn the_command_is_killed() {
    let Some(desk) = TmuxSession::new("the_command_is_killed", &SH) else {
        return;
    };
    desk.top_of_program("");
    let screen = desk.wait_for_rows();
    kill(pid_of_row(&screen), Signal::SIGKILL).unwrap();
    let screen = desk.tmux.wait_for_words("Press q to quit");
    assert!(screen.contains("killed by SIGKILL"), "{screen}");
    desk.tmux.press(&["q"]);
    desk.tmux.line("echo code-$?");
    desk.tmux.wait_for_words("code-137");
    desk.terminal_is_as_before();
}

#[test]
fn suspended_and_continued() {
    let Some(desk) = TmuxSession::new("suspended_and_continued", &BASH) else {
        return;
    };
    desk.top_of_program("");
    let screen = desk.wait_for_rows();
    let program = pid_of_row(&screen);
    let is_stopped = || {
        let status = std::fs::read_to_string(format!("/proc/{program}/status"));
        status.is_ok_and(|status| status.contains("State:\tT"))
    };
    assert!(!is_stopped());
    desk.tmux.press(&["C-z"]);
    desk.tmux.wait_for("the shell", |screen| screen.contains("Stopped"));
    assert_eq!(desk.tmux.variable("alternate_on"), "0");
    wait_until("the program's stop", is_stopped);
    desk.tmux.line("echo shell-$((6*7))");
    desk.tmux.wait_for_words("shell-42");
    desk.tmux.line("fg");
    desk.tmux.wait_for("the view", |screen| {
        screen.starts_with("gctrace top") && screen.contains("churn.py")
    });
    assert!(!is_stopped());
    assert_eq!(desk.tmux.variable("alternate_on"), "1");
    desk.tmux.press(&["q"]);
    desk.terminal_is_as_before();
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let Some(desk) = TmuxSession::new("a_dumb_terminal_gets_lines", &SH) else {
        return;
    };
    desk.tmux.line("export TERM=dumb");
    desk.top_of_program("-n 2");
    desk.tmux.wait_for_words("TERM=dumb");
    desk.terminal_is_as_before();
}

#[test]
fn no_colours_where_none_are_wanted() {
    let Some(desk) = TmuxSession::new("no_colours_where_none_are_wanted", &SH) else {
        return;
    };
    let coloured = |screen: &str| {
        let named = (1..8).any(|colour| screen.contains(&format!("\x1b[3{colour}m")));
        named || screen.contains("38;5;")
    };
    desk.top_of_program("");
    desk.wait_for_rows();
    assert!(coloured(&desk.tmux.coloured_screen()));
    desk.tmux.press(&["q"]);
    desk.terminal_is_as_before();
    desk.tmux.line("clear; export NO_COLOR=1");
    desk.top_of_program("");
    desk.wait_for_rows();
    let screen = desk.tmux.coloured_screen();
    assert!(!coloured(&screen), "{screen}");
    desk.tmux.press(&["q"]);
    desk.terminal_is_as_before();
}

#[test]
fn a_screen_of_ascii() {
    let Some(desk) = TmuxSession::new("a_screen_of_ascii", &SH) else {
        return;
    };
    desk.tmux.line("export LC_ALL=C");
    desk.top_of_program("");
    let screen = desk.wait_for_rows();
    assert!(screen.is_ascii(), "{screen}");
    desk.tmux.press(&["q"]);
    desk.terminal_is_as_before();
}

/// No process remains after its terminal has gone away.
#[test]
fn the_terminal_goes_away() {
    let Some(desk) = TmuxSession::new("the_terminal_goes_away", &SH) else {
        return;
    };
    desk.top_of_program("");
    desk.wait_for_rows();
    let gctrace = desk.gctrace();
    desk.tmux.kill();
    wait_until("gctrace's end", || kill(gctrace, None).is_err());
}

/// Of the command's output, which is repeated in the terminal when the view ends. It stays, with a name,
/// for a command that goes on.
#[test]
fn no_temporary_file_is_left() {
    const TEST: &str = "no_temporary_file_is_left";
    let Some(desk) = TmuxSession::new(TEST, &SH) else {
        return;
    };
    let folder = desk.file("temporary");
    std::fs::create_dir(&folder).unwrap();
    let unnamed = nix::fcntl::OFlag::O_TMPFILE | nix::fcntl::OFlag::O_RDWR;
    if nix::fcntl::open(&folder, unnamed, nix::sys::stat::Mode::S_IRWXU).is_err() {
        eprintln!("skipped {TEST}: this file system has no files without a name");
        return;
    }
    let files = || std::fs::read_dir(&folder).unwrap().count();
    desk.tmux.line("export TMPDIR=$PWD/temporary");
    desk.top_of_program("");
    desk.wait_for_rows();
    assert_eq!(files(), 0);
    kill(desk.gctrace(), Signal::SIGKILL).unwrap();
    desk.terminal_is_as_before();
    assert_eq!(files(), 0);
    desk.end_program();

    desk.tmux.line("clear; touch go");
    wait_until("a new file", || desk.file("go").exists());
    desk.top_of_program("");
    desk.wait_for_rows();
    desk.end_program();
    desk.tmux.wait_for_words("Press q to quit");
    desk.tmux.press(&["q"]);
    desk.tmux.wait_for("the output", |screen| {
        !screen.contains("Press q to quit") && screen.contains("round ")
    });
    assert_eq!(files(), 0);

    desk.tmux.line("clear; touch go");
    wait_until("a new file", || desk.file("go").exists());
    desk.top_of_program("");
    desk.wait_for_rows();
    desk.tmux.press(&["q"]);
    desk.tmux.wait_for_words("the command's output is in");
    assert_eq!(files(), 1);
}
