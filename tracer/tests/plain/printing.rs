//! Output of gctrace is harmless: without a reader, and to the terminal.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

/// The write end of a pipe without a reader.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn gctrace(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(recording::binary());
    command.args(arguments).current_dir(place).env_remove("SUDO_UID");
    command
}

/// In-process recording with all messages: start, processes, end.
#[test]
fn messages_without_a_reader_leave_the_commands_exit_code() {
    let place = tempfile::tempdir().unwrap();
    for options in [
        vec!["record", "-v", "--mode", "inject", "--", "sh", "-c", "exit 5"],
        vec!["top", "--format", "text", "--mode", "inject", "--", "sh", "-c", "exit 5"],
    ] {
        let status =
            gctrace(place.path(), &options).stderr(closed_pipe()).status_in_time().unwrap();
        assert_eq!(status.code(), Some(5), "{options:?}");
    }
}

/// A trace with one pause.
fn trace(place: &Path) -> String {
    let name = "t.json";
    let pause = serde_json::json!({
        "name": "gc", "cat": "gc", "ph": "X", "ts": 10.0, "dur": 5.0, "pid": 1, "tid": 1,
        "args": {"generation": 2, "reason": "automatic"}
    });
    let mut file = File::create(place.join(name)).unwrap();
    write!(file, "{}", serde_json::json!({"traceEvents": [pause]})).unwrap();
    name.to_owned()
}

/// All command lines that print to standard output.
fn answers(trace: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["--help"],
        vec!["record", "--help"],
        vec!["--version"],
        vec!["man"],
        vec!["completions", "bash"],
        vec!["analyze", trace],
        vec!["analyze", "--format", "json", trace],
        vec!["doctor"],
    ]
}

#[test]
fn an_answer_whose_reader_is_gone_is_no_failure() {
    let place = tempfile::tempdir().unwrap();
    let trace = trace(place.path());
    for arguments in answers(&trace) {
        let output = gctrace(place.path(), &arguments)
            .stdout(closed_pipe())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .output_in_time()
            .unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        let expected = Some(0).filter(|_| arguments != ["doctor"]);
        if expected.is_some() {
            assert_eq!(output.status.code(), expected, "{arguments:?} {messages}");
        }
        assert!(!messages.contains("panicked"), "{arguments:?} {messages}");
        assert!(!messages.contains("roken pipe"), "{arguments:?} {messages}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let place = tempfile::tempdir().unwrap();
    let trace = trace(place.path());
    for arguments in answers(&trace) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = gctrace(place.path(), &arguments)
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .output_in_time()
            .unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?} {messages}");
        assert!(messages.contains("No space left"), "{arguments:?} {messages}");
        assert_eq!(messages.lines().count(), 1, "{messages}");
    }
}

#[test]
fn usage_errors_without_a_reader_have_their_exit_code() {
    let place = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| -> ExitStatus {
        let mut command = gctrace(place.path(), arguments);
        command.stderr(closed_pipe()).status_in_time().unwrap()
    };
    assert_eq!(code(&["--no-such-option"]).code(), Some(2));
    assert_eq!(code(&["analyze", "no-such-trace.json"]).code(), Some(1));
    assert_eq!(code(&["--", "./no-such-command"]).code(), Some(127));
}

/// If the reader of standard error does not read, messages are dropped after a timeout.
#[test]
fn messages_that_are_not_read_hold_nothing_up() {
    let place = tempfile::tempdir().unwrap();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    fill(&mut writer);
    let arguments = ["record", "-v", "--mode", "inject", "--", "sh", "-c", "exit 5"];
    let status = gctrace(place.path(), &arguments)
        .stdout(Stdio::null())
        .stderr(writer)
        .status_in_time()
        .unwrap();
    assert_eq!(status.code(), Some(5));
}

/// Fills a pipe, so that further writes block.
fn fill(writer: &mut std::io::PipeWriter) {
    use nix::fcntl::{FcntlArg, OFlag};
    let flags = |flags| nix::fcntl::fcntl(&*writer, FcntlArg::F_SETFL(flags)).unwrap();
    flags(OFlag::O_NONBLOCK);
    while (&*writer).write(&[b'x'; 4096]).is_ok() {}
    flags(OFlag::empty());
}

/// Names of files, arguments and options that gctrace quotes in messages.
#[test]
fn words_of_the_command_line_cannot_steer_the_terminal() {
    let place = tempfile::tempdir().unwrap();
    let name = "no\x1b]0;x\x07\u{9b}2J\u{202e}\nFORGED";
    let (option, program) = (format!("--{name}"), format!("./{name}"));
    for arguments in [
        vec!["analyze", name],
        vec!["export", name],
        vec!["doctor", "--python", name],
        vec!["--", &program],
        vec![&option],
        vec![name, "x.py"],
        vec!["record", "-p", name],
        vec!["record", "-o", &program, "--mode", name],
        vec!["record", "--mode", "inject", "-o", "no-such-folder/x\x1b[2J", "--", "true"],
    ] {
        let output = gctrace(place.path(), &arguments).output_in_time().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(r"\x1b"), "{arguments:?} {text}");
        let harmful = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
        assert!(!text.contains(harmful), "{arguments:?} {text:?}");
        assert!(!text.contains("\nFORGED"), "{arguments:?} {text}");
    }
}
