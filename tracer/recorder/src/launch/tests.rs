//! Starts real commands: inherited state, identity, exit codes.

use super::*;
use crate::files::command_output::create_command_output;
use crate::files::{NewTrace, write_export, write_manual_pages};
use crate::invoker::PrivilegeTool;
use nix::unistd::Uid;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use test_kit::limit::WithTimeout as _;

fn plan(words: &[&str]) -> LaunchPlan {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    LaunchPlan::new(&words, &Invoker::detect(), false)
}

fn end_of(words: &[&str]) -> CommandEnd {
    let mut launched = plan(words).spawn().expect("start");
    launched.wait().expect("wait")
}

/// The text that a shell script run as the command wrote to `$OUT`.
fn output_of(mut plan: LaunchPlan, script: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).expect("chmod");
    let file = directory.path().join("out");
    plan.program = "sh".into();
    plan.arguments = vec!["-c".into(), script.into()];
    plan.environment.insert("OUT".into(), file.clone().into_os_string());
    let ended = plan.spawn().expect("start").wait().expect("wait");
    assert_eq!(ended, CommandEnd::Code(0), "{script}");
    fs::read_to_string(file).expect("output")
}

fn skipped_without_root(test: &str) -> bool {
    let plain = !Uid::effective().is_root();
    if plain {
        eprintln!("skipped {test}: it needs root");
    }
    plain
}

/// `unprivileged`, as if behind sudo.
fn unprivileged() -> Invoker {
    Invoker::from_ids(65534, 65534, Some(PrivilegeTool::Sudo))
}

#[test]
fn exit_codes_are_those_of_a_shell() {
    assert_eq!(end_of(&["true"]).exit_code(), 0);
    assert_eq!(end_of(&["sh", "-c", "exit 7"]).exit_code(), 7);
    assert_eq!(end_of(&["sh", "-c", "kill -9 $$"]), CommandEnd::Signal(9));
    assert_eq!(end_of(&["sh", "-c", "kill -TERM $$"]).exit_code(), 143);
}

#[test]
fn commands_that_cannot_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path =
        |name: &str| directory.path().join(name).into_os_string().into_string().expect("text");
    fs::write(path("plain"), "x").expect("write");
    fs::write(path("script"), "#!/nonexistent/python\n").expect("write");
    fs::set_permissions(path("script"), PermissionsExt::from_mode(0o755)).expect("chmod");
    let refused = |program: &str| {
        let error = plan(&[program]).spawn().expect_err(program);
        (error.exit_code(), error.to_string())
    };
    let (code, message) = refused("no-such-program-as-this");
    assert_eq!(code, 127);
    assert!(message.starts_with("no-such-program-as-this: command not found in PATH="));
    assert_eq!(refused("/nonexistent/x"), (127, "/nonexistent/x: command not found".to_owned()));
    let (code, message) = refused(&path("script"));
    assert_eq!(code, 127);
    assert!(message.contains("#!"), "{message}");
    let (code, message) = refused(&path("plain"));
    assert_eq!(code, 126);
    assert!(message.contains("chmod +x"), "{message}");
    assert_eq!(refused("/").0, 126);
    let of = |number| LaunchError::NotExecutable {
        program: "x".to_owned(),
        who: String::new(),
        source: std::io::Error::from_raw_os_error(number),
        advice: String::new(),
    };
    assert_eq!((of(libc::EMFILE).exit_code(), of(libc::EACCES).exit_code()), (1, 126));
}

#[test]
fn same_group_same_directory() {
    let script = "{ cut -d' ' -f5 /proc/self/stat; pwd -P; } > $OUT";
    let directory = std::env::current_dir().expect("a directory");
    let expected = format!("{}\n{}\n", nix::unistd::getpgrp(), directory.display());
    assert_eq!(output_of(plan(&["sh"]), script), expected);
}

#[test]
fn descriptors_of_gctrace_are_not_inherited() {
    let directory = tempfile::tempdir().expect("a directory");
    let _open = fs::File::create(directory.path().join("opened-by-gctrace")).expect("create");
    let _signals = Signals::block().expect("block");
    let listed = output_of(plan(&["sh"]), "ls -l /proc/self/fd > $OUT");
    assert!(listed.contains("/out\n"), "{listed}");
    assert!(!listed.contains("opened-by-gctrace"), "{listed}");
    assert!(!listed.contains("signalfd"), "{listed}");
    assert!(!listed.contains("pidfd"), "{listed}");
}

#[test]
fn the_pidfd_reports_the_exit_and_signals_arrive() {
    let mut launched = plan(&["sleep", "60"]).spawn().expect("start");
    assert_eq!(launched.try_wait().expect("wait"), None);
    launched.send(Signal::SIGTERM).expect("send");
    let mut fds = [nix::poll::PollFd::new(launched.as_fd(), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).expect("poll");
    assert_eq!(launched.try_wait().expect("wait"), Some(CommandEnd::Signal(15)));
    launched.send(Signal::SIGTERM).expect("no error once it ended");
}

/// Started by the next test: prints the command's ignored signals and its mask.
#[test]
#[ignore = "runs inside another test"]
fn inner_print_signals() {
    let _signals = Signals::block().expect("block");
    let script = "grep -E '^Sig(Ign|Blk)' /proc/self/status > $OUT";
    println!("{}", output_of(plan(&["sh"]), script));
}

/// The ignored signals among SIGPIPE (13) and SIGUSR2 (12), and the mask, as bits. SIGHUP would do,
/// but the test kit resets it in every test program.
fn ignored_and_blocked(text: &str) -> (u64, u64) {
    let bits = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(value.expect(text).trim(), 16).expect(text)
    };
    (bits("SigIgn:") & 0x1800, bits("SigBlk:"))
}

#[test]
fn the_command_inherits_the_signal_state_of_gctrace() {
    for (disposition, ignored) in [(libc::SIG_IGN, 0x1800), (libc::SIG_DFL, 0)] {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(["--ignored", "--exact", "--nocapture"]);
        command.arg("launch::tests::inner_print_signals");
        // SAFETY: signal(2) with a constant disposition is safe between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGPIPE, disposition);
                libc::signal(libc::SIGUSR2, disposition);
                Ok(())
            });
        }
        let output = command.output_in_time().expect("run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        assert_eq!(ignored_and_blocked(&text), (ignored, 0), "{text}");
    }
}

#[test]
fn the_command_runs_as_the_user_behind_sudo() {
    if skipped_without_root("the_command_runs_as_the_user_behind_sudo") {
        return;
    }
    let plan = LaunchPlan::new(&["sh".into()], &unprivileged(), false);
    assert_eq!(plan.notes().len(), 1, "there is no sudo above the tests");
    let script = "{ id -u; id -g; id -G; grep -E 'Cap(Prm|Eff)' /proc/self/status; echo $USER $HOME; } > $OUT";
    let none = "0000000000000000";
    let expected =
        format!("65534\n65534\n65534\nCapPrm:\t{none}\nCapEff:\t{none}\nnobody /nonexistent\n");
    assert_eq!(output_of(plan, script), expected);
    let as_root = LaunchPlan::new(&["sh".into()], &unprivileged(), true);
    assert_eq!(output_of(as_root, "id -u > $OUT"), "0\n");
}

/// Name of a file, and the function that writes it: returns whether it could.
type Writer = (&'static str, fn(&Path) -> bool);

/// Each way in which gctrace creates files.
fn writers() -> [Writer; 4] {
    [
        ("trace.json", |path| {
            let made = NewTrace::create(path, &unprivileged(), &[], "-o");
            made.is_ok_and(|made| made.keep().is_ok())
        }),
        ("gc.svg", |path| {
            let content = |out: &mut dyn io::Write| out.write_all(b"<svg/>");
            write_export(path, &unprivileged(), &[], true, &content).is_ok()
        }),
        ("gctrace.1", |path| {
            let pages = [("gctrace.1".to_owned(), b".TH gctrace 1".to_vec())];
            let directory = path.parent().expect("a directory");
            write_manual_pages(directory, &unprivileged(), &pages).is_ok()
        }),
        ("output.txt", |path| create_command_output(path, &unprivileged(), &[]).is_ok()),
    ]
}

#[test]
fn files_belong_to_the_user_and_links_are_not_followed() {
    if skipped_without_root("files_belong_to_the_user_and_links_are_not_followed") {
        return;
    }
    for (name, write) in writers() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).expect("chmod");
        let path = |name: &str| -> PathBuf { directory.path().join(name) };
        assert!(write(&path(name)), "{name}");
        let made = fs::metadata(path(name)).expect("made");
        assert_eq!(made.uid(), 65534, "{name}");

        // Files that gctrace would replace if they were the user's; and a missing one, which only
        // root could create.
        let root = tempfile::tempdir().expect("a directory of root's");
        let precious = root.path().join("precious");
        for target in [precious.clone(), root.path().join("new")] {
            fs::write(&precious, ".TH gctrace").expect("write");
            fs::remove_file(path(name)).expect("removed");
            std::os::unix::fs::symlink(&target, path(name)).expect("link");
            let written = write(&path(name));
            // A dangling link may be replaced by a file of the user's.
            let replaced = fs::symlink_metadata(path(name)).is_ok_and(|made| made.uid() == 65534);
            assert!(!written || replaced, "{name} to {}", target.display());
            assert_eq!(fs::read(&precious).expect("read"), b".TH gctrace", "{name}");
            assert!(!root.path().join("new").exists(), "{name}");
        }
        // the ids belonged to a thread that has ended
        fs::write(&precious, "root again").expect("write");
    }
}
