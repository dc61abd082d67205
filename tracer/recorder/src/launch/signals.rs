//! Signals while recording: the process they are meant for, and their handling.
//!
//! The command shares gctrace's process group, so signals from the terminal reach both; signals to
//! gctrace alone are meant for the command and forwarded. Job control (Ctrl-Z) and SIGWINCH keep
//! their default effect. Signals ignored when gctrace started (nohup, `&` in scripts) stay ignored,
//! for gctrace and the command, except SIGTERM: a recording can always be ended.

use crate::launch::inherited::{ignore_size_limit, is_ignored};
use gctrace_probes::proc_status;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const HANDLED: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOrigin {
    /// The terminal, or sudo on its behalf: the whole process group has it, including the command.
    Group,
    /// The command or a descendant of it, to its process group.
    Command,
    /// Another process, to gctrace alone.
    Other,
}

/// A signal that gctrace received, and whether the command received it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    pub signal: Signal,
    pub origin: SignalOrigin,
}

/// Reaction to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalDecision {
    /// None: the process concerned has received it.
    GoOn,
    /// Send it to the command.
    Forward(Signal),
    /// End the recording in an orderly way; the command keeps running.
    EndRecording,
}

/// The phase of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordPhase {
    /// The command does not exist yet, or a process is recorded that was already running.
    Alone,
    WithCommand,
}

/// Decides whether a signal ends the recording, is forwarded to the command or is left to it. Pure.
#[derive(Clone, Copy, Debug)]
pub struct SignalPolicy {
    phase: RecordPhase,
    /// Ctrl-C was typed before.
    interrupted: bool,
}

impl SignalPolicy {
    /// For a process that was already running (`-p`), and until a command is started: signals are
    /// meant for gctrace.
    pub fn alone() -> Self {
        Self { phase: RecordPhase::Alone, interrupted: false }
    }

    /// From now on signals are forwarded or left to the command; only a second Ctrl-C ends the
    /// recording.
    pub fn command_started(&mut self) {
        self.phase = RecordPhase::WithCommand;
    }

    /// Decides how to react to a signal.
    pub fn decide(&mut self, received: ReceivedSignal) -> SignalDecision {
        let ReceivedSignal { signal, origin } = received;
        match (self.phase, origin) {
            (RecordPhase::Alone, _) if matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) => {
                SignalDecision::GoOn
            }
            (RecordPhase::Alone, _) => SignalDecision::EndRecording,
            (RecordPhase::WithCommand, SignalOrigin::Group) if signal == Signal::SIGINT => {
                self.interrupted()
            }
            (RecordPhase::WithCommand, SignalOrigin::Group | SignalOrigin::Command) => {
                SignalDecision::GoOn
            }
            (RecordPhase::WithCommand, SignalOrigin::Other) => SignalDecision::Forward(signal),
        }
    }

    /// Ctrl-C was typed in a terminal that does not generate the signal (raw mode): decided as if
    /// it had, but no process has received it yet.
    pub fn typed_interrupt(&mut self) -> SignalDecision {
        let typed = ReceivedSignal { signal: Signal::SIGINT, origin: SignalOrigin::Group };
        match self.decide(typed) {
            SignalDecision::GoOn => SignalDecision::Forward(Signal::SIGINT),
            decision => decision,
        }
    }

    /// Ctrl-C: the first is for the command, the second ends the recording.
    fn interrupted(&mut self) -> SignalDecision {
        if std::mem::replace(&mut self.interrupted, true) {
            SignalDecision::EndRecording
        } else {
            SignalDecision::GoOn
        }
    }
}

/// The signals of this process, readable from a descriptor.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks the signals and opens the descriptor. Must be called before any thread is started. Ignored signals stay
    /// ignored, as POSIX requires for programs that a shell starts in the background (XCU 2.12). SIGTERM is an
    /// exception: a blocked thread receives it although it is ignored (`sig_ignored`, kernel/signal.c). The command
    /// inherits all of them as gctrace did.
    pub fn block() -> io::Result<Self> {
        ignore_size_limit();
        let mut set = SigSet::empty();
        for signal in HANDLED {
            if signal == Signal::SIGTERM || !is_ignored(signal as i32) {
                set.add(signal);
            }
        }
        set.thread_block()?;
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { descriptor })
    }

    /// The next signal; `None` if none is pending.
    pub fn receive(&mut self) -> io::Result<Option<ReceivedSignal>> {
        let Some(info) = self.descriptor.read_signal()? else {
            return Ok(None);
        };
        let signal = Signal::try_from(info.ssi_signo.cast_signed())?;
        Ok(Some(ReceivedSignal { signal, origin: origin(&info) }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn origin(info: &siginfo) -> SignalOrigin {
    let this_pid = std::process::id();
    if hung_up(info) {
        SignalOrigin::Other
    } else if info.ssi_code == libc::SI_KERNEL || relayed_to_group(info.ssi_pid, this_pid) {
        SignalOrigin::Group
    } else if descends_from(info.ssi_pid, this_pid) {
        SignalOrigin::Command
    } else {
        SignalOrigin::Other
    }
}

/// Whether the terminal has hung up and gctrace leads its session (`ssh -t HOST gctrace`, a window
/// of tmux): the kernel sends SIGHUP to the leader only (`tty_signal_session_leader`,
/// drivers/tty/tty_jobctrl.c). A shell that leads it forwards it to its jobs.
fn hung_up(info: &siginfo) -> bool {
    let leads = nix::unistd::getsid(None) == Ok(nix::unistd::Pid::this());
    info.ssi_signo == libc::SIGHUP as u32 && info.ssi_code == libc::SI_KERNEL && leads
}

/// sudo with a terminal of its own (`use_pty`) runs a monitor as the leader of the new session;
/// that monitor, our parent, forwards signals to the whole process group (`deliver_signal`,
/// src/exec_monitor.c of sudo 1.9).
fn relayed_to_group(sender: u32, this_pid: u32) -> bool {
    match (proc_status::stat(sender), proc_status::stat(this_pid)) {
        (Ok(relay), Ok(this_process)) => {
            relay.name == "sudo"
                && this_process.parent == sender
                && relay.session == sender
                && this_process.group == this_pid
        }
        _ => false,
    }
}

/// Whether a process is in gctrace's own process group.
pub(super) fn in_own_group(pid: u32) -> bool {
    let group = nix::unistd::getpgrp().as_raw();
    proc_status::stat(pid).is_ok_and(|stat| i64::from(stat.group) == i64::from(group))
}

fn descends_from(pid: u32, ancestor: u32) -> bool {
    super::environment::ancestors(pid).any(|pid| pid == ancestor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_kit::limit::WithTimeout as _;

    fn decisions(
        policy: &mut SignalPolicy,
        received: &[(Signal, SignalOrigin)],
    ) -> Vec<SignalDecision> {
        let decide = |(signal, origin): &(Signal, SignalOrigin)| {
            policy.decide(ReceivedSignal { signal: *signal, origin: *origin })
        };
        received.iter().map(decide).collect()
    }

    fn with_command() -> SignalPolicy {
        let mut policy = SignalPolicy::alone();
        policy.command_started();
        policy
    }

    #[test]
    fn the_second_interrupt_of_the_terminal_ends_the_recording() {
        let typed = (Signal::SIGINT, SignalOrigin::Group);
        assert_eq!(
            decisions(&mut with_command(), &[typed, typed, typed]),
            [SignalDecision::GoOn, SignalDecision::EndRecording, SignalDecision::EndRecording]
        );
    }

    #[test]
    fn signals_to_gctrace_alone_are_forwarded() {
        let received = HANDLED.map(|signal| (signal, SignalOrigin::Other));
        assert_eq!(decisions(&mut with_command(), &received), HANDLED.map(SignalDecision::Forward));
        let twice = [(Signal::SIGINT, SignalOrigin::Other); 2];
        assert_eq!(
            decisions(&mut with_command(), &twice),
            [SignalDecision::Forward(Signal::SIGINT); 2]
        );
    }

    #[test]
    fn signals_that_the_command_has_are_not_forwarded() {
        for origin in [SignalOrigin::Group, SignalOrigin::Command] {
            for signal in HANDLED {
                assert_eq!(
                    decisions(&mut with_command(), &[(signal, origin)]),
                    [SignalDecision::GoOn]
                );
            }
        }
        let signals = [(Signal::SIGINT, SignalOrigin::Command); 3];
        assert_eq!(decisions(&mut with_command(), &signals), [SignalDecision::GoOn; 3]);
    }

    #[test]
    fn without_a_command_signals_end_the_recording() {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            for origin in [SignalOrigin::Group, SignalOrigin::Other] {
                assert_eq!(
                    decisions(&mut SignalPolicy::alone(), &[(signal, origin)]),
                    [SignalDecision::EndRecording]
                );
            }
        }
    }

    #[test]
    fn a_typed_interrupt_is_forwarded_once() {
        let mut policy = with_command();
        assert_eq!(policy.typed_interrupt(), SignalDecision::Forward(Signal::SIGINT));
        assert_eq!(policy.typed_interrupt(), SignalDecision::EndRecording);
        assert_eq!(SignalPolicy::alone().typed_interrupt(), SignalDecision::EndRecording);
    }

    #[test]
    fn children_are_recognized() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        assert!(descends_from(child.id(), std::process::id()));
        assert!(!descends_from(std::process::id(), child.id()));
        assert!(!relayed_to_group(child.id(), std::process::id()));
        child.kill().expect("kill");
        child.status_in_time().expect("wait");
    }
}
