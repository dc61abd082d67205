//! The sampling thread: handles a library and GPUs that come and go.

use super::SamplingMessage;
use crate::clock;
use gctrace_event::GpuDevice;
use gctrace_probes::nvml::{ExtraQueries, NvmlAbsences, NvmlError, NvmlLibrary, NvmlSampler};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Time between two attempts to find a missing library or GPU.
const RETRY: Duration = Duration::from_secs(5);
/// Time between two queries that are slow or have slowly changing answers.
const EXTRAS_EVERY: Duration = Duration::from_secs(1);

/// Samples until the other end of `stop` is dropped.
pub(super) fn run(
    library: Option<&Path>,
    period: Duration,
    stop: &Receiver<()>,
    messages: &Sender<SamplingMessage>,
) {
    let mut worker = SamplingWorker {
        period,
        retry: RETRY,
        stop,
        messages,
        absences: NvmlAbsences::default(),
        known: HashMap::new(),
        reported: HashSet::new(),
    };
    worker.run(library);
}

#[derive(Debug, PartialEq)]
enum SamplingEnd {
    /// The recording is ending.
    Stopped,
    /// The GPUs are gone.
    Lost,
}

struct SamplingWorker<'a> {
    period: Duration,
    retry: Duration,
    stop: &'a Receiver<()>,
    messages: &'a Sender<SamplingMessage>,
    absences: NvmlAbsences,
    /// GPUs as they were written.
    known: HashMap<u32, GpuDevice>,
    /// Errors already reported.
    reported: HashSet<String>,
}

impl SamplingWorker<'_> {
    fn run(&mut self, library: Option<&Path>) {
        loop {
            match NvmlLibrary::open(library) {
                Ok(library) => {
                    if self.watch(&library) == SamplingEnd::Stopped {
                        return;
                    }
                }
                Err(error) => self.no_library(&error),
            }
            if self.stopped_within(self.retry) {
                return;
            }
        }
    }

    /// Samples as long as a GPU responds.
    fn watch(&mut self, library: &NvmlLibrary) -> SamplingEnd {
        let (mut sampler, devices) = match NvmlSampler::new(library) {
            Ok(found) => found,
            Err(error) => {
                self.no_library(&error);
                return SamplingEnd::Lost;
            }
        };
        self.announce(devices);
        for place in sampler.lost() {
            self.note_once(format!("GPU {place} cannot be queried (NVML)"));
        }
        let mut schedule = SamplingSchedule::new(sampler.count());
        let mut next = Instant::now();
        let mut look_again = next + self.retry;
        loop {
            self.sample_all(&mut sampler, &mut schedule);
            let lost = sampler.lost().len();
            if lost == sampler.count() {
                return SamplingEnd::Lost;
            }
            if lost > 0 && Instant::now() >= look_again {
                self.announce(sampler.find_lost());
                look_again = Instant::now() + self.retry;
            }
            // Missed samples are not made up for.
            next = (next + self.period).max(Instant::now());
            if self.stopped_within(next.saturating_duration_since(Instant::now())) {
                return SamplingEnd::Stopped;
            }
        }
    }

    fn sample_all(&mut self, sampler: &mut NvmlSampler<'_>, schedule: &mut SamplingSchedule) {
        schedule.start_round(Instant::now());
        for place in 0..sampler.count() {
            let extras = schedule.extras(place);
            let now = clock::monotonic_ns();
            match sampler.sample(place, now, extras, &mut self.absences) {
                Ok(None) => {}
                Ok(Some(sample)) => self.send(SamplingMessage::Sample(sample)),
                Err(reason) => self.note(format!(
                    "GPU {place} does not respond any more ({reason}); retrying every {} s",
                    self.retry.as_secs()
                )),
            }
        }
        schedule.end_round();
        for absence in self.absences.take() {
            self.note(format!("NVML: {absence}"));
        }
    }

    /// Writes GPUs that are new or changed.
    fn announce(&mut self, devices: Vec<GpuDevice>) {
        for mut device in devices {
            let index = device.index;
            match self.known.insert(index, device.clone()) {
                Some(before) => {
                    self.note(format!("GPU {index} responds again"));
                    if before == device {
                        continue;
                    }
                }
                None => self.send(SamplingMessage::Detail(describe(&device))),
            }
            device.at_ns = clock::monotonic_ns();
            self.send(SamplingMessage::Device(device));
        }
    }

    /// Most machines have no GPU: this is not worth a warning.
    fn no_library(&mut self, error: &NvmlError) {
        let message = format!("the GPUs are not sampled: {error}");
        if error.is_absence() {
            if self.reported.insert(message.clone()) {
                self.send(SamplingMessage::Detail(message));
            }
        } else {
            self.note_once(message);
        }
    }

    fn note_once(&mut self, message: String) {
        if self.reported.insert(message.clone()) {
            self.note(message);
        }
    }

    fn note(&self, message: String) {
        self.send(SamplingMessage::Note { at_ns: clock::monotonic_ns(), message });
    }

    fn send(&self, message: SamplingMessage) {
        // The receiver is gone if the recording has ended without waiting.
        let _ = self.messages.send(message);
    }

    fn stopped_within(&self, time: Duration) -> bool {
        self.stop.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }
}

fn describe(device: &GpuDevice) -> String {
    format!(
        "GPU {}: {}, driver {}",
        device.index,
        device.name.as_deref().unwrap_or("name unknown"),
        device.driver.as_deref().unwrap_or("unknown"),
    )
}

/// Decides which GPUs to query for extras in a round. All in the first round, so that missing extras are known at once;
/// then each at most once a second. PCIe queries are slow: one GPU per round.
struct SamplingSchedule {
    /// When each was last queried, for memory by process and for PCIe.
    asked: Vec<[Option<Instant>; 2]>,
    now: Instant,
    first_round: bool,
    pcie_taken: bool,
}

impl SamplingSchedule {
    fn new(count: usize) -> Self {
        Self {
            asked: vec![[None; 2]; count],
            now: Instant::now(),
            first_round: true,
            pcie_taken: false,
        }
    }

    fn start_round(&mut self, now: Instant) {
        self.now = now;
        self.pcie_taken = false;
    }

    fn extras(&mut self, place: usize) -> ExtraQueries {
        let longest_ago = |asked: &Vec<[Option<Instant>; 2]>| {
            let pcie = asked.iter().map(|[_, pcie]| *pcie);
            pcie.enumerate().min_by_key(|(_, at)| *at).map(|(at, _)| at)
        };
        let turn = longest_ago(&self.asked) == Some(place) && !self.pcie_taken;
        let (now, first_round) = (self.now, self.first_round);
        let Some([processes, pcie]) = self.asked.get_mut(place) else {
            return ExtraQueries::default();
        };
        let due = |last: Option<Instant>| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= EXTRAS_EVERY)
        };
        let extras =
            ExtraQueries { processes: due(*processes), pcie: due(*pcie) && (first_round || turn) };
        if extras.processes {
            *processes = Some(now);
        }
        if extras.pcie {
            *pcie = Some(now);
            self.pcie_taken = true;
        }
        extras
    }

    fn end_round(&mut self) {
        self.first_round = false;
    }
}

#[cfg(test)]
mod tests;
