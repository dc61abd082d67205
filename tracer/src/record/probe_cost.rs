//! What a probe costs here, for those who look on while a recording runs.
//!
//! Owns the thread that measures it, once, on BPF programs of its own: a calibration throws away what else is in
//! the rings of its session. A recording that nobody looks at measures at its end (`record/shutdown.rs`).

use crate::args::RecordConfig;
use crate::record::counters::CounterRecording;
use gctrace_ebpf::BpfSession;
use gctrace_ebpf::Calibration;
use gctrace_ebpf::CalibrationLock;
use gctrace_ebpf::Error;
use gctrace_ebpf::KernelSupport;
use gctrace_ebpf::SessionConfig;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::sync_channel;

/// The measurement, once it is there.
pub(super) struct MeasuredCost {
    measured: Receiver<Calibration>,
    known: Option<Calibration>,
}

impl MeasuredCost {
    /// Begins to measure probes like those of this recording.
    pub(super) fn begin(config: &RecordConfig) -> std::io::Result<Self> {
        let (tell, measured) = sync_channel(1);
        let config = config.clone();
        let thread = std::thread::Builder::new().name("calibrate".to_owned());
        thread.spawn(move || match measure(&config) {
            // Nobody listens any more where the recording has ended.
            Ok(calibration) => drop(tell.send(calibration)),
            Err(error) => tracing::info!("what the probes cost is not known: {error}"),
        })?;
        Ok(Self {
            measured,
            known: None,
        })
    }

    /// What a hit costs, if that is known by now.
    pub(super) fn known(&mut self) -> Option<Calibration> {
        self.known = self.known.or_else(|| self.measured.try_recv().ok());
        self.known
    }
}

fn measure(config: &RecordConfig) -> Result<Calibration, Error> {
    let mut counting = CounterRecording::examine(config.counters.counters());
    let config = SessionConfig {
        // gctrace is what is recorded here, and the command its child.
        follow_children: false,
        ring_bytes: config.ring_size,
        stack_depth: config.stack_depth,
        counters: counting.set(),
    };
    let mut session = BpfSession::open(config, &KernelSupport::probe())?;
    counting.open(&session);
    let turn = CalibrationLock::wait();
    let (calibration, probes) = session.calibrate()?;
    gctrace_ebpf::detach(probes);
    drop(turn);
    Ok(calibration)
}
