//! The thread with a library that returns known figures, and its schedule.

use super::*;
use gctrace_event::GpuSample;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;
use test_kit::limit::WithTimeout as _;

/// The library of the sampler's own tests, and a file that makes it fail.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    fn build(test: &str, options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../probes/tests/fake_nvml.c");
        let faults = folder.path().join("faults");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(folder.path().join("nvml.so"))
            .arg(format!("-DFAULTS=\"{}\"", faults.display()))
            .args(options)
            .arg(source)
            .status_in_time();
        match built {
            Ok(status) => {
                assert!(status.success(), "cc failed");
                Some(Self { folder })
            }
            Err(error) => {
                println!("skipped {test}: cc: {error}");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("nvml.so")
    }

    fn faults(&self, text: &str) {
        std::fs::write(self.folder.path().join("faults"), text).expect("a file");
    }
}

/// The thread and its messages.
struct Running {
    stop: Option<Sender<()>>,
    messages: Receiver<SamplingMessage>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(library: PathBuf) -> Self {
        let (stop, stopped) = channel();
        let (to_us, messages) = channel();
        let thread = std::thread::spawn(move || {
            let mut worker = SamplingWorker {
                period: Duration::from_millis(1),
                retry: Duration::from_millis(5),
                stop: &stopped,
                messages: &to_us,
                absences: NvmlAbsences::default(),
                known: HashMap::new(),
                reported: HashSet::new(),
            };
            worker.run(Some(&library));
        });
        Self { stop: Some(stop), messages, thread: Some(thread) }
    }

    /// Waits for a message, and returns those before it too.
    fn until(&self, wanted: impl Fn(&SamplingMessage) -> bool) -> Vec<SamplingMessage> {
        let mut all = Vec::new();
        while !all.last().is_some_and(&wanted) {
            let message = self.messages.recv_timeout(Duration::from_secs(60));
            all.push(message.expect("the expected message"));
        }
        all
    }

    fn end(mut self) -> Vec<SamplingMessage> {
        self.stop = None;
        let thread = self.thread.take().expect("a thread");
        thread.join().expect("it ends in order");
        self.messages.try_iter().collect()
    }
}

fn note(message: &SamplingMessage) -> Option<&str> {
    match message {
        SamplingMessage::Note { message, .. } => Some(message),
        _ => None,
    }
}

fn sample(message: &SamplingMessage) -> Option<&GpuSample> {
    match message {
        SamplingMessage::Sample(sample) => Some(sample),
        _ => None,
    }
}

fn devices(messages: &[SamplingMessage]) -> usize {
    let device = |message: &&SamplingMessage| matches!(message, SamplingMessage::Device(_));
    messages.iter().filter(device).count()
}

#[test]
fn gpus_come_first_and_once_then_samples_in_order() {
    let Some(fake) = Fake::build("gpus_come_first_and_once_then_samples_in_order", &[]) else {
        return;
    };
    let running = Running::start(fake.path());
    let mut count = 0;
    let mut messages = Vec::new();
    while count < 20 {
        messages.extend(running.until(|message| sample(message).is_some()));
        count += 1;
    }
    messages.extend(running.end());
    assert_eq!(devices(&messages), 2);
    let samples: Vec<&GpuSample> = messages.iter().filter_map(sample).collect();
    let first = messages.iter().position(|message| sample(message).is_some());
    assert_eq!(devices(&messages[..first.expect("samples")]), 2);
    assert!(samples.is_sorted_by_key(|sample| sample.at_ns));
    assert!(samples.iter().zip(0..).all(|(sample, n)| sample.device == n % 2));
    let extras = |samples: &[&GpuSample]| {
        let asked = samples.iter().filter(|sample| sample.processes.is_some());
        asked.count()
    };
    assert_eq!(extras(&samples[..2]), 2, "all in the first round");
    assert!(samples[0].pcie_rx_kb_per_s.is_some() && samples[1].pcie_rx_kb_per_s.is_some());
    assert!(messages.iter().all(|message| note(message).is_none()));
}

#[test]
fn a_driver_that_goes_and_comes_back_is_reported_once_each() {
    let test = "a_driver_that_goes_and_comes_back_is_reported_once_each";
    let Some(fake) = Fake::build(test, &["-DDEVICES=1", "-DNO_POWER=0"]) else {
        return;
    };
    let running = Running::start(fake.path());
    let mut messages = running.until(|message| note(message).is_some());
    fake.faults("gone");
    messages.extend(running.until(|message| {
        note(message).is_some_and(|note| note.starts_with("GPU 0 does not respond any more"))
    }));
    // By now the library refuses to be initialized; that is reported too, with another text.
    messages.extend(running.until(|message| {
        note(message).is_some_and(|note| note.contains("failed: NVML was not first initialized"))
    }));
    std::thread::sleep(Duration::from_millis(50));
    fake.faults("");
    messages.extend(
        running.until(|message| note(message).is_some_and(|note| note == "GPU 0 responds again")),
    );
    messages.extend(running.until(|message| sample(message).is_some()));
    messages.extend(running.end());
    let notes: Vec<&str> = messages.iter().filter_map(note).collect();
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(notes[0].starts_with("NVML: not recorded: power of GPU 0"));
    assert_eq!(devices(&messages), 1, "it has not changed");
}

#[test]
fn one_gpu_of_two_goes_and_comes_back() {
    let Some(fake) = Fake::build("one_gpu_of_two_goes_and_comes_back", &[]) else {
        return;
    };
    let running = Running::start(fake.path());
    running.until(|message| sample(message).is_some());
    fake.faults("lost:1");
    let lost = running.until(|message| note(message).is_some());
    assert!(lost.last().and_then(note).is_some_and(|note| note.starts_with("GPU 1 does not")));
    let others = running.until(|message| sample(message).is_some());
    assert!(others.iter().filter_map(sample).all(|sample| sample.device == 0));
    fake.faults("");
    running.until(|message| note(message) == Some("GPU 1 responds again"));
    running.until(|message| sample(message).is_some_and(|sample| sample.device == 1));
    running.end();
}

#[test]
fn a_missing_library_is_not_reported() {
    let running = Running::start("/no/such/libnvidia-ml.so.1".into());
    let messages = running.until(|message| matches!(message, SamplingMessage::Detail(_)));
    assert_eq!(messages.len(), 1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(running.end(), [], "one message, at detail level");
}

#[test]
fn extras_take_turns() {
    let start = Instant::now();
    let mut schedule = SamplingSchedule::new(3);
    let mut round = |ms: u64| -> Vec<(bool, bool)> {
        schedule.start_round(start + Duration::from_millis(ms));
        let asked = (0..3).map(|place| schedule.extras(place));
        let asked = asked.map(|extras| (extras.processes, extras.pcie)).collect();
        schedule.end_round();
        asked
    };
    let none = (false, false);
    assert_eq!(round(0), [(true, true); 3]);
    assert_eq!(round(200), [none; 3]);
    assert_eq!(round(999), [none; 3]);
    assert_eq!(round(1000), [(true, true), (true, false), (true, false)]);
    assert_eq!(round(1200), [none, (false, true), none]);
    assert_eq!(round(1400), [none, none, (false, true)]);
    assert_eq!(round(2000), [(true, true), (true, false), (true, false)]);
}
