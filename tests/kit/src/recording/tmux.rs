//! A terminal to type in and look at: tmux, with a server of its own.

use crate::limit::WithTimeout as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// One window with one shell.
pub struct Tmux {
    /// The server's socket, by path, so that no server of the user is used.
    socket: PathBuf,
}

/// Whether tmux is installed; prints a skip message if not.
pub fn has_tmux(test: &str) -> bool {
    let found = Command::new("tmux").arg("-V").output_in_time().is_ok();
    if !found {
        eprintln!("skipped {test}: no tmux; apt-get install tmux");
    }
    found
}

impl Tmux {
    /// Starts `shell` in a window of this size.
    pub fn start(place: &Path, (columns, lines): (u16, u16), shell: &[&str]) -> Self {
        let tmux = Self { socket: place.join("tmux") };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let mut command = tmux.command();
        command
            .args(["-f", "/dev/null", "-u", "new-session", "-d"])
            .args(["-x", &columns, "-y", &lines, "-c"])
            .arg(place)
            .args(["env", "PS1=ready> ", "HISTFILE="])
            .arg(format!("TMPDIR={}", place.display()))
            .args(shell);
        let output = command.output_in_time().expect("tmux runs");
        assert!(output.status.success(), "{output:?}");
        tmux.wait_for("a prompt", |screen| screen.contains("ready>"));
        tmux
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket);
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        for name in ["NO_COLOR", "SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output_in_time().expect("tmux runs")
    }

    /// Presses keys, named as tmux does (`Enter`, `C-c`, `F6`).
    pub fn press(&self, keys: &[&str]) {
        let mut arguments = vec!["send-keys"];
        arguments.extend(keys);
        self.run(&arguments);
    }

    /// Types text, followed by Enter.
    pub fn line(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
        self.press(&["Enter"]);
    }

    /// Sends bytes to the program as the terminal would.
    pub fn bytes(&self, bytes: &[u8]) {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut arguments = vec!["send-keys", "-H"];
        arguments.extend(hex.iter().map(String::as_str));
        self.run(&arguments);
    }

    /// A press and release of the left button, counted from 1.
    pub fn click(&self, column: u16, line: u16) {
        self.bytes(format!("\x1b[<0;{column};{line}M\x1b[<0;{column};{line}m").as_bytes());
    }

    /// Resizes the window.
    pub fn resize(&self, columns: u16, lines: u16) {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        self.run(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// The text on the screen.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.run(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// The screen with colors, as escape sequences.
    pub fn coloured_screen(&self) -> String {
        let output = self.run(&["capture-pane", "-p", "-e"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A variable of tmux, for example `alternate_on`.
    pub fn variable(&self, name: &str) -> String {
        let output = self.run(&["display-message", "-p", &format!("#{{{name}}}")]);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Closes the terminal with all its processes.
    pub fn kill(&self) {
        self.run(&["kill-server"]);
    }

    /// Waits until the screen is as described.
    pub fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(std::time::Instant::now() < patience, "{what} did not appear:\n{screen}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Waits for words.
    pub fn wait_for_words(&self, words: &str) -> String {
        self.wait_for(words, |screen| screen.contains(words))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.kill();
    }
}
