//! `--nvml-hz`: how the GPUs do, as NVIDIA's driver sees them.
//!
//! Owns the thread that asks: calls take from microseconds to seconds, and where a GPU is broken they
//! may not return at all, during which the recording goes on. What is asked is `gctrace_probes::nvml`,
//! when is `nvml/worker.rs`.

mod worker;

use crate::record::output::RecordOutput;
use crate::variables::VariableEffect;
use crate::variables::variable;
use gctrace_event::GpuDevice;
use gctrace_event::GpuSample;
use gctrace_event::Record;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::time::Instant;

/// Names another library than the driver's, for tests and the simulated GPU.
const LIBRARY_VARIABLE: &str = "GCTRACE_NVML";

/// Most time that the end of a recording waits for a driver that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the thread tells.
#[derive(Debug, PartialEq)]
enum SamplingMessage {
    /// A GPU.
    Device(GpuDevice),
    /// How it does.
    Sample(GpuSample),
    /// What cannot be had, for user and trace.
    Note { at_ns: u64, message: String },
    /// What only those who ask for details want to know.
    Detail(String),
}

/// The thread.
pub(crate) struct GpuSampling {
    stop: Option<Sender<()>>,
    messages: Receiver<SamplingMessage>,
    waiting: Vec<SamplingMessage>,
}

impl GpuSampling {
    /// Starts to sample, `hz` times a second.
    pub(crate) fn start(hz: f64) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let (from_thread, messages) = channel();
        let library = library();
        let period = Duration::from_secs_f64(1.0 / hz);
        std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || worker::run(library.as_deref(), period, &stopped, &from_thread))?;
        Ok(Self {
            stop: Some(stop),
            messages,
            waiting: Vec::new(),
        })
    }

    /// Writes what the thread said.
    pub(crate) fn tick(&mut self, output: &mut RecordOutput) {
        let waiting = std::mem::take(&mut self.waiting);
        for message in waiting.into_iter().chain(self.messages.try_iter()) {
            match message {
                SamplingMessage::Device(device) => output.write(&Record::GpuDevice(device)),
                SamplingMessage::Sample(sample) => output.write(&Record::GpuSample(sample)),
                SamplingMessage::Note { at_ns, message } => {
                    tracing::warn!("{message}");
                    output.note(None, at_ns, message);
                }
                SamplingMessage::Detail(message) => tracing::info!("{message}"),
            }
        }
    }

    /// Ends the thread; what it said is still to be written. One that a driver holds is left behind.
    pub(crate) fn stop(&mut self) {
        self.stop = None;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) => self.waiting.push(message),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("NVIDIA's driver does not answer; not waiting for it");
                    return;
                }
            }
        }
    }
}

/// The library that the environment names.
pub(crate) fn library() -> Option<PathBuf> {
    let named = variable(LIBRARY_VARIABLE, VariableEffect::Code).filter(|path| !path.is_empty())?;
    Some(named.into())
}
