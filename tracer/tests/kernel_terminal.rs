//! Kernel tier: readers and terminals that go away.

mod common;

use common::limit::CommandLimit as _;
use std::fs;
use std::process::Command;

#[test]
fn messages_without_a_reader_leave_the_commands_exit_code() {
    let test = "messages_without_a_reader_leave_the_commands_exit_code";
    let Some((_, place)) = common::place_for(test) else {
        return;
    };
    for mode in ["ebpf", "both"] {
        for how in [vec!["record"], vec!["top", "--plain"]] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let status = Command::new(common::GCTRACE)
                .args(&how)
                .args(["-v", "--mode", mode, "--", "sh", "-c", "exit 5"])
                .current_dir(place.path())
                .env_remove("SUDO_UID")
                .stderr(writer)
                .status_in_time()
                .unwrap();
            assert_eq!(status.code(), Some(5), "{how:?} {mode}");
        }
    }
}

/// The shell that leads the session outlives the terminal, and so does gctrace for a while.
#[test]
fn the_view_without_its_terminal_ends_in_order() {
    let Some((python, place)) = common::place_for("the_view_without_its_terminal_ends_in_order")
    else {
        return;
    };
    let place = place.path();
    let code = "import time; open('ready', 'w').close(); time.sleep(2); open('ended', 'w').close()";
    for mode in ["ebpf", "inject"] {
        let _ = fs::remove_file(place.join("ready"));
        let script = format!(
            "trap '' HUP; {} top --mode {mode} -- {} -c \"{code}\"; echo $? > code",
            common::GCTRACE,
            python.display()
        );
        let output = common::terminal::closed(place, &["/bin/sh", "-c", &script]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}");
        assert_eq!(fs::read_to_string(place.join("code")).unwrap(), "0\n");
        common::wait_until("the command ended", || place.join("ended").exists());
        fs::remove_file(place.join("ended")).unwrap();
    }
}
