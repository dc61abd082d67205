//! The thread that samples: the library comes and goes, and so do GPUs.

use super::Message;
use crate::record::clock;
use gctrace_event::GpuDevice;
use gctrace_probes::nvml::Absences;
use gctrace_probes::nvml::Extras;
use gctrace_probes::nvml::NvmlError;
use gctrace_probes::nvml::NvmlLibrary;
use gctrace_probes::nvml::Sampler;
use std::collections::HashMap;
use std::collections::HashSet;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::Instant;

/// Between two looks for a library or a GPU that is not there.
const RETRY: Duration = Duration::from_secs(5);
/// Between two looks at what takes long or changes slowly.
const EXTRAS_EVERY: Duration = Duration::from_secs(1);

/// Samples until the other end of `stop` is dropped.
pub(super) fn run(
    library: Option<&Path>,
    period: Duration,
    stop: &Receiver<()>,
    messages: &Sender<Message>,
) {
    let mut worker = Worker {
        period,
        retry: RETRY,
        stop,
        messages,
        absences: Absences::default(),
        known: HashMap::new(),
        said: HashSet::new(),
    };
    worker.run(library);
}

/// Why no more samples are taken.
#[derive(Debug, PartialEq)]
enum Ended {
    /// The recording ends.
    Stopped,
    /// The GPUs are gone.
    Lost,
}

struct Worker<'a> {
    period: Duration,
    retry: Duration,
    stop: &'a Receiver<()>,
    messages: &'a Sender<Message>,
    absences: Absences,
    /// GPUs as they were written.
    known: HashMap<u32, GpuDevice>,
    /// Errors that were told.
    said: HashSet<String>,
}

impl Worker<'_> {
    fn run(&mut self, library: Option<&Path>) {
        loop {
            match NvmlLibrary::open(library) {
                Ok(library) => {
                    if self.watch(&library) == Ended::Stopped {
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

    /// Samples as long as a GPU answers.
    fn watch(&mut self, library: &NvmlLibrary) -> Ended {
        let (mut sampler, devices) = match Sampler::new(library) {
            Ok(found) => found,
            Err(error) => {
                self.no_library(&error);
                return Ended::Lost;
            }
        };
        self.announce(devices);
        for place in sampler.lost() {
            self.note_once(format!("GPU {place} cannot be asked how it does (NVML)"));
        }
        let mut schedule = Schedule::new(sampler.count());
        let mut next = Instant::now();
        let mut look_again = next + self.retry;
        loop {
            self.sample_all(&mut sampler, &mut schedule);
            let lost = sampler.lost().len();
            if lost == sampler.count() {
                return Ended::Lost;
            }
            if lost > 0 && Instant::now() >= look_again {
                self.announce(sampler.find_lost());
                look_again = Instant::now() + self.retry;
            }
            // What was missed is not made up for.
            next = (next + self.period).max(Instant::now());
            if self.stopped_within(next.saturating_duration_since(Instant::now())) {
                return Ended::Stopped;
            }
        }
    }

    fn sample_all(&mut self, sampler: &mut Sampler<'_>, schedule: &mut Schedule) {
        schedule.begin_round(Instant::now());
        for place in 0..sampler.count() {
            let extras = schedule.extras(place);
            let now = clock::monotonic_ns();
            match sampler.sample(place, now, extras, &mut self.absences) {
                Ok(None) => {}
                Ok(Some(sample)) => self.send(Message::Sample(sample)),
                Err(reason) => self.note(format!(
                    "GPU {place} does not answer any more ({reason}); asked again every {} s",
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
                    self.note(format!("GPU {index} answers again"));
                    if before == device {
                        continue;
                    }
                }
                None => self.send(Message::Detail(describe(&device))),
            }
            device.at_ns = clock::monotonic_ns();
            self.send(Message::Device(device));
        }
    }

    /// Most machines have no GPU, and nothing is to be said of that.
    fn no_library(&mut self, error: &NvmlError) {
        let message = format!("how the GPUs do is not recorded: {error}");
        if error.is_absence() {
            if self.said.insert(message.clone()) {
                self.send(Message::Detail(message));
            }
        } else {
            self.note_once(message);
        }
    }

    fn note_once(&mut self, message: String) {
        if self.said.insert(message.clone()) {
            self.note(message);
        }
    }

    fn note(&self, message: String) {
        self.send(Message::Note {
            at_ns: clock::monotonic_ns(),
            message,
        });
    }

    fn send(&self, message: Message) {
        // Nobody listens any more once the recording has ended without waiting.
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
        device.name.as_deref().unwrap_or("name not known"),
        device.driver.as_deref().unwrap_or("not known"),
    )
}

/// Who is asked for extras in a round: everyone in the first, so that what is missing is known at once;
/// then each once a second at most, and for PCIe, which takes long, one GPU in a round.
struct Schedule {
    /// When each was asked last, for memory by process and for PCIe.
    asked: Vec<[Option<Instant>; 2]>,
    now: Instant,
    first_round: bool,
    pcie_taken: bool,
}

impl Schedule {
    fn new(count: usize) -> Self {
        Self {
            asked: vec![[None; 2]; count],
            now: Instant::now(),
            first_round: true,
            pcie_taken: false,
        }
    }

    fn begin_round(&mut self, now: Instant) {
        self.now = now;
        self.pcie_taken = false;
    }

    fn extras(&mut self, place: usize) -> Extras {
        let longest_ago = |asked: &Vec<[Option<Instant>; 2]>| {
            let pcie = asked.iter().map(|[_, pcie]| *pcie);
            pcie.enumerate().min_by_key(|(_, at)| *at).map(|(at, _)| at)
        };
        let turn = longest_ago(&self.asked) == Some(place) && !self.pcie_taken;
        let (now, first_round) = (self.now, self.first_round);
        let Some([processes, pcie]) = self.asked.get_mut(place) else {
            return Extras::default();
        };
        let due = |last: Option<Instant>| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= EXTRAS_EVERY)
        };
        let extras = Extras {
            processes: due(*processes),
            pcie: due(*pcie) && (first_round || turn),
        };
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
