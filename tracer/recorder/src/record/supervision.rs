//! The recorded command, and the signals that concern it or gctrace.
//!
//! Owns the effect of a signal or a typed Ctrl-C, how the command ended, and gctrace's exit code.
//! `launch/signals.rs` interprets signals.

use crate::launch::{CommandEnd, RunningCommand, SignalDecision, SignalPolicy, Signals};
use crate::record::EndReason;
use crate::wait;
use anyhow::Context as _;
use nix::poll::PollTimeout;
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, BorrowedFd};

/// Exit code of a recording that its user ended before the command did.
pub const INTERRUPTED: u8 = 130;

/// The exit code of a command as it ended; `None`: its user ended gctrace before.
pub fn code_of(ended: Option<CommandEnd>) -> u8 {
    if let Some(ended) = ended { ended.exit_code() } else { INTERRUPTED }
}

/// The command, if one was started, and gctrace's signals.
pub struct CommandSupervisor {
    launched: Option<RunningCommand>,
    signals: Signals,
    policy: SignalPolicy,
    /// The command was sent a signal that usually ends a program.
    handed_on: bool,
    /// SIGUSR2 to gctrace is a request to keep segments; otherwise it is the command's.
    keeps: bool,
    /// There was one.
    is_keep_asked: bool,
}

impl CommandSupervisor {
    /// A supervisor without a command yet.
    pub fn new(signals: Signals) -> Self {
        Self {
            launched: None,
            signals,
            policy: SignalPolicy::alone(),
            handed_on: false,
            keeps: false,
            is_keep_asked: false,
        }
    }

    /// With `keeps`, SIGUSR2 is for gctrace ([`CommandSupervisor::take_keep_signal`]), not for the command.
    pub fn keeping(self, keeps: bool) -> Self {
        Self { keeps, ..self }
    }

    /// Whether SIGUSR2 has arrived since the last call and is for gctrace.
    pub fn take_keep_signal(&mut self) -> bool {
        std::mem::take(&mut self.is_keep_asked)
    }

    /// The command was started. A signal to the process group that has arrived by now may have come
    /// before the command was in it (Ctrl-C, or a hangup of the terminal, while gctrace starts): it
    /// is forwarded.
    pub fn started(&mut self, launched: RunningCommand) -> anyhow::Result<()> {
        self.policy.command_started();
        self.launched = Some(launched);
        while let Some(received) = self.signals.receive().context("cannot read signals")? {
            if self.keeps && received.signal == Signal::SIGUSR2 {
                self.is_keep_asked = true;
            } else {
                self.forward(received.signal)?;
            }
        }
        Ok(())
    }

    /// The command, if there is one.
    pub fn command(&self) -> Option<&RunningCommand> {
        self.launched.as_ref()
    }

    /// Whether gctrace forwarded a signal to the command that usually ends a program.
    pub fn handed_on(&self) -> bool {
        self.handed_on
    }

    /// Handles the signals that have arrived. Returns whether the recording is to end.
    pub fn handle_signals(&mut self) -> anyhow::Result<bool> {
        while let Some(received) = self.signals.receive().context("cannot read signals")? {
            if self.keeps && received.signal == Signal::SIGUSR2 {
                self.is_keep_asked = true;
                continue;
            }
            match self.policy.decide(received) {
                SignalDecision::GoOn => {}
                SignalDecision::EndRecording => return Ok(true),
                SignalDecision::Forward(signal) => self.forward(signal)?,
            }
        }
        Ok(false)
    }

    fn forward(&mut self, signal: Signal) -> anyhow::Result<()> {
        self.handed_on |= !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2);
        match &self.launched {
            Some(launched) => {
                launched.send(signal).context("cannot forward a signal to the command")
            }
            None => Ok(()),
        }
    }

    /// Handles the signals that have arrived when nothing is recorded any more. Returns whether one
    /// of them usually ends a program.
    pub fn was_told_to_end(&mut self) -> anyhow::Result<bool> {
        let mut is_stopping = false;
        while let Some(received) = self.signals.receive().context("cannot read signals")? {
            is_stopping |= !matches!(received.signal, Signal::SIGUSR1 | Signal::SIGUSR2);
        }
        Ok(is_stopping)
    }

    /// Handles a Ctrl-C that the terminal passed on as a character. Returns whether the recording
    /// is to end.
    pub fn interrupt(&mut self) -> anyhow::Result<bool> {
        match (self.policy.typed_interrupt(), &self.launched) {
            (SignalDecision::Forward(_), Some(launched)) => {
                self.handed_on = true;
                launched.interrupt_as_terminal().context("cannot interrupt the command")?;
                Ok(false)
            }
            (decision, _) => Ok(decision == SignalDecision::EndRecording),
        }
    }

    /// How the command ended, if it has. Never blocks.
    pub fn try_wait(&mut self) -> anyhow::Result<Option<CommandEnd>> {
        let waited = self.launched.as_mut().map(RunningCommand::try_wait).transpose();
        Ok(waited.context("cannot wait for the command")?.flatten())
    }

    /// The exit code of a recording that is over. A command's is ours, even if the trace failed; that failure is
    /// reported on standard error. A command that still runs is left alone; if only the trace failed, gctrace stays
    /// with it to the end.
    pub fn exit_code<T>(self, why: EndReason, closed: anyhow::Result<T>) -> anyhow::Result<u8> {
        match (why, self.launched.is_some()) {
            (EndReason::CommandEnded(ended), _) => {
                if let Err(error) = closed {
                    tracing::error!("{error:#}");
                }
                Ok(ended.exit_code())
            }
            (EndReason::CannotWrite, true) => {
                if let Err(error) = closed {
                    tracing::error!("{error:#}");
                }
                tracing::warn!("recording has ended; the command keeps running");
                self.stay()
            }
            // The duration given with -d has elapsed: the exit code is the command's nevertheless.
            (EndReason::TimeOver, true) => {
                closed?;
                self.stay()
            }
            (EndReason::Interrupted, true) => closed.map(|_| INTERRUPTED),
            _ => closed.map(|_| 0),
        }
    }

    fn stay(mut self) -> anyhow::Result<u8> {
        let ended = self.wait_for_end()?;
        Ok(code_of(ended))
    }

    /// Waits for the command as a recording would, without recording; `None`: the user ended
    /// gctrace before, and the command keeps running.
    pub fn wait_for_end(&mut self) -> anyhow::Result<Option<CommandEnd>> {
        loop {
            let command = self.launched.as_ref().map(RunningCommand::as_fd);
            let descriptors = [self.signals.as_fd()].into_iter().chain(command);
            wait::readable(descriptors, PollTimeout::NONE)
                .context("cannot wait for the command")?;
            if let Some(ended) = self.try_wait()? {
                return Ok(Some(ended));
            }
            if self.handle_signals()? {
                return Ok(None);
            }
        }
    }
}

/// The signals: readable when one has arrived.
impl AsFd for CommandSupervisor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}
