//! The cost of a probe on this machine, for the live view.
//!
//! Owns the thread that measures it, once, on BPF programs of its own: calibration discards the
//! contents of its session's rings. Without a live view it is measured at the end
//! (`record/kernel/totals.rs`).

use crate::args::RecordConfig;
use crate::record::kernel::counters::CounterRecording;
use crate::record::kernel::loaded_probes::open_session;
use gctrace_ebpf::{Calibration, CalibrationLock, Error};
use std::sync::mpsc::{Receiver, sync_channel};

/// The measurement, once it is available.
pub(super) struct MeasuredCost {
    measured: Receiver<Calibration>,
    known: Option<Calibration>,
}

impl MeasuredCost {
    /// Starts to measure probes like this recording's.
    pub(super) fn start(config: &RecordConfig) -> std::io::Result<Self> {
        let (sender, measured) = sync_channel(1);
        let config = config.clone();
        let thread = std::thread::Builder::new().name("calibrate".to_owned());
        thread.spawn(move || match measure(&config) {
            // The receiver is gone if the recording has ended.
            Ok(calibration) => drop(sender.send(calibration)),
            Err(error) => tracing::info!("the overhead of the probes is unknown: {error}"),
        })?;
        Ok(Self { measured, known: None })
    }

    /// The cost of a hit, if it is measured by now.
    pub(super) fn known(&mut self) -> Option<Calibration> {
        self.known = self.known.or_else(|| self.measured.try_recv().ok());
        self.known
    }
}

fn measure(config: &RecordConfig) -> Result<Calibration, Error> {
    let counting = CounterRecording::examine(config.sources.counters.counters());
    // The recorded program is gctrace here, and the command its child.
    let (mut session, _counting) = open_session(config, counting, false)?;
    let turn = CalibrationLock::wait();
    let (calibration, probes) = session.calibrate(None)?;
    gctrace_ebpf::detach(probes);
    drop(turn);
    Ok(calibration)
}
