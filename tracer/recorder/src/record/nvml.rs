//! `--nvml-hz`: samples the state of the GPUs through NVML.
//!
//! Owns the sampling thread: calls take from microseconds to seconds, and on a broken GPU may never
//! return, while the recording goes on. `gctrace_probes::nvml` has the queries, `nvml/worker.rs`
//! their schedule.

mod worker;

use crate::record::output::{RecordOutput, RecordSink as _};
use crate::variables::{VariableEffect, variable};
use gctrace_event::{GpuDevice, GpuSample, Record};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Names a replacement for the driver's library, for tests and the simulated GPU.
const LIBRARY_VARIABLE: &str = "GCTRACE_NVML";

/// How long the end of a recording waits for a driver that does not respond.
const PATIENCE: Duration = Duration::from_secs(2);

/// Messages from the thread.
#[derive(Debug, PartialEq)]
enum SamplingMessage {
    /// A GPU, new or changed.
    Device(GpuDevice),
    /// One sample of a GPU.
    Sample(GpuSample),
    /// A limitation, for user and trace.
    Note { at_ns: u64, message: String },
    /// A detail, logged at info level only.
    Detail(String),
}

/// The sampling thread, and the messages received from it.
pub struct GpuSampling {
    stop: Option<Sender<()>>,
    messages: Receiver<SamplingMessage>,
    waiting: Vec<SamplingMessage>,
}

impl GpuSampling {
    /// Starts to sample `hz` times per second.
    pub fn start(hz: f64) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let (from_thread, messages) = channel();
        let library = library();
        let period = Duration::from_secs_f64(1.0 / hz);
        std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || worker::run(library.as_deref(), period, &stopped, &from_thread))?;
        Ok(Self { stop: Some(stop), messages, waiting: Vec::new() })
    }

    /// Writes the devices, samples and notes that the thread has sent since the last call. Never
    /// blocks.
    pub fn tick(&mut self, output: &mut RecordOutput) {
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

    /// Ends the thread; `tick` must still write its messages. A thread stuck in the driver is left behind.
    pub fn stop(&mut self) {
        self.stop = None;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) => self.waiting.push(message),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("NVIDIA's driver does not respond; not waiting for it");
                    return;
                }
            }
        }
    }
}

/// The library named by the environment.
pub fn library() -> Option<PathBuf> {
    let named = variable(LIBRARY_VARIABLE, VariableEffect::Code)?;
    if named.is_empty() { None } else { Some(named.into()) }
}
