//! Records a program that uses the simulated GPU as gctrace does: listens, reads the rings, and
//! keeps the program's output.

#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::expect_used,
    clippy::panic,
    reason = "test support, of which each test file uses a part"
)]

pub(crate) mod truth;
pub(crate) mod work;

use gctrace_ring::{
    CuptiState, GpuMessage, InjectOptions, OPTIONS_VARIABLE, RENDEZVOUS_VARIABLE, RingConsumer,
    RingHello, RingListener, RingRole, TextId,
};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use test_kit::simulator;
use test_kit::simulator::log::Log;

/// Maximum time between a process's connect(2) and its sendmsg(2).
const PATIENCE: Duration = Duration::from_secs(60);

/// Options that request GPU work and nothing else.
pub(crate) fn options() -> InjectOptions {
    InjectOptions { collections: false, ..InjectOptions::default() }
}

/// The built library: next to this test, or one folder up; the newest, as Cargo leaves old copies
/// behind.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this test has a file");
    let folders = program.ancestors().skip(1).take(2);
    let files = folders.map(|folder| folder.join("libgctrace_inject.so"));
    let built = files.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file)));
    built.max().expect("cargo built the library").1
}

/// Sets the environment variables that the driver and the library read.
pub(crate) fn injected(command: &mut Command, folder: &Path, options: &InjectOptions) {
    command
        .env("CUDA_INJECTION64_PATH", library())
        .env("LD_LIBRARY_PATH", simulator::libraries())
        .env(RENDEZVOUS_VARIABLE, folder.join("rendezvous"))
        .env(OPTIONS_VARIABLE, options.to_string());
}

/// A ring and everything read from it.
pub(crate) struct Ring {
    pub(crate) hello: RingHello,
    pub(crate) pid: u32,
    pub(crate) records: Vec<GpuMessage>,
    pub(crate) lost: u64,
    consumer: RingConsumer,
    texts: BTreeMap<TextId, String>,
}

impl Ring {
    fn read(&mut self, dead: bool) {
        let (records, texts) = (&mut self.records, &mut self.texts);
        let read = self.consumer.read(dead, |record| {
            if let GpuMessage::Text { id, text } = &record {
                texts.insert(*id, text.to_string());
            }
            records.push(record);
        });
        assert_eq!(read.damaged, 0);
        self.lost = self.consumer.lost().total();
    }

    pub(crate) fn text(&self, id: TextId) -> &str {
        self.texts.get(&id).map_or("", String::as_str)
    }

    /// The reported states of CUPTI: state, code, detail.
    pub(crate) fn states(&self) -> Vec<(CuptiState, i64, &str)> {
        let states = self.records.iter().filter_map(|record| match record {
            GpuMessage::Cupti { state, code, detail, .. } => {
                Some((*state, *code, self.text(*detail)))
            }
            _ => None,
        });
        states.collect()
    }

    pub(crate) fn dropped(&self) -> u64 {
        let dropped = self.records.iter().map(|record| match record {
            GpuMessage::Dropped { count, .. } => *count,
            _ => 0,
        });
        dropped.sum()
    }

    pub(crate) fn flushed_ns(&self) -> Vec<u64> {
        let flushed = self.records.iter().filter_map(|record| match record {
            GpuMessage::Flushed { at_ns } => Some(*at_ns),
            _ => None,
        });
        flushed.collect()
    }
}

/// A program that was recorded.
pub(crate) struct Recorded {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) rings: Vec<Ring>,
    pub(crate) log: Log,
}

impl Recorded {
    /// The only ring.
    pub(crate) fn ring(&self) -> &Ring {
        let [ring] = self.rings.as_slice() else {
            panic!("one ring, not {}: {}", self.rings.len(), self.output);
        };
        assert_eq!(ring.hello.role, RingRole::Gpu);
        ring
    }
}

/// Records a test's scenario, run by a process of its own. `None` in that process, after `play`.
pub(crate) fn recorded(
    test: &str,
    settings: &[(&str, &str)],
    options: &InjectOptions,
    play: impl FnOnce(&Path),
) -> Option<Recorded> {
    if let Some(folder) = simulator::playing() {
        play(&folder);
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = simulator::command(test, folder.path(), settings);
    injected(&mut command, folder.path(), options);
    Some(record(command, folder.path(), |_, _| {}))
}

/// Runs a command and reads its rings until it has exited. `watch` is called repeatedly with what
/// was read so far.
pub(crate) fn record(
    mut command: Command,
    folder: &Path,
    mut watch: impl FnMut(&mut Child, &[Ring]),
) -> Recorded {
    let listener = RingListener::bind(&folder.join("rendezvous")).expect("bound");
    let output = std::fs::File::create(folder.join("output")).expect("created");
    let errors = output.try_clone().expect("cloned");
    let mut child =
        command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().expect("it starts");
    let (mut rings, begun) = (Vec::new(), Instant::now());
    let status = loop {
        let ended = child.try_wait().expect("waited for");
        accept(&listener, &mut rings);
        rings.iter_mut().for_each(|ring| ring.read(ended.is_some()));
        if let Some(status) = ended {
            break status;
        }
        watch(&mut child, &rings);
        if begun.elapsed() > Duration::from_secs(120) {
            child.kill().expect("killed");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = std::fs::read(folder.join("output")).expect("read");
    Recorded {
        status,
        output: String::from_utf8_lossy(&output).into_owned(),
        rings,
        log: Log::read(folder),
    }
}

fn accept(listener: &RingListener, rings: &mut Vec<Ring>) {
    while let Some(connection) = listener.accept().expect("no error") {
        let Some(offered) = connection.receive_within(PATIENCE) else {
            continue;
        };
        let records = offered.hello.role.records(&InjectOptions::default());
        rings.push(Ring {
            hello: offered.hello,
            pid: offered.pid,
            records: Vec::new(),
            lost: 0,
            consumer: RingConsumer::open(offered.ring.as_fd(), records).expect("a ring"),
            texts: BTreeMap::new(),
        });
    }
}
