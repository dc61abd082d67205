//! Runs programs with the library preloaded, and reads their rings as gctrace does.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support, of which each test file uses a part"
)]

#[path = "../../../../tests/limit.rs"]
pub mod limit;

use self::limit::WithTimeout as _;
use gctrace_ring::AllocationTotals;
use gctrace_ring::CLASSES;
use gctrace_ring::HookState;
use gctrace_ring::InjectOptions;
use gctrace_ring::LostRecords;
use gctrace_ring::OPTIONS_VARIABLE;
use gctrace_ring::RENDEZVOUS_VARIABLE;
use gctrace_ring::RingConsumer;
use gctrace_ring::RingHello;
use gctrace_ring::RingListener;
use gctrace_ring::RingRecord;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;

/// Maximum time between a process's connect(2) and its sendmsg(2).
const PATIENCE: Duration = Duration::from_secs(60);

/// A ring and everything read from it.
pub struct SeenRecords {
    pub hello: RingHello,
    pub pid: u32,
    pub records: Vec<RingRecord>,
    pub lost: LostRecords,
    pub allocations: Option<(u64, [AllocationTotals; CLASSES], u64)>,
    consumer: RingConsumer,
}

/// The results of a program.
pub struct Run {
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
    pub rings: Vec<SeenRecords>,
}

/// Runs a program with the library, and reads until it has exited and its rings are drained
/// (`settle` longer).
pub fn run(options: InjectOptions, command: &mut Command) -> Run {
    run_with_children(options, command, Duration::ZERO)
}

/// The same for programs with children that outlive them by some time.
pub fn run_with_children(options: InjectOptions, command: &mut Command, settle: Duration) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = RingListener::bind(&socket).unwrap();
    let out = folder.path().join("out");
    let err = folder.path().join("err");
    let library = gctrace_inject::find_library().unwrap();
    let mut child = command
        .env("LD_PRELOAD", library)
        .env(RENDEZVOUS_VARIABLE, &socket)
        .env(OPTIONS_VARIABLE, options.to_string())
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&out).unwrap())
        .stderr(std::fs::File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let mut rings = Vec::new();
    let status = loop {
        read(&listener, &mut rings, false);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    std::thread::sleep(settle);
    read(&listener, &mut rings, true);
    for ring in &mut rings {
        ring.lost = ring.consumer.lost();
        ring.allocations = ring.consumer.allocations();
    }
    Run {
        status,
        output: String::from_utf8_lossy(&std::fs::read(out).unwrap()).into_owned(),
        errors: String::from_utf8_lossy(&std::fs::read(err).unwrap()).into_owned(),
        rings,
    }
}

fn read(listener: &RingListener, rings: &mut Vec<SeenRecords>, dead: bool) {
    while let Some(connection) = listener.accept().unwrap() {
        let Some(offered) = connection.receive_within(PATIENCE) else {
            continue;
        };
        let records = offered.hello.role.records(&InjectOptions::default());
        let consumer = RingConsumer::open(offered.ring.as_fd(), records).unwrap();
        rings.push(SeenRecords {
            hello: offered.hello,
            pid: offered.pid,
            records: Vec::new(),
            lost: consumer.lost(),
            allocations: None,
            consumer,
        });
    }
    for ring in rings {
        let records = &mut ring.records;
        while ring
            .consumer
            .read(dead, |record| records.push(record.unwrap()))
            .records
            > 0
        {}
    }
}

impl Run {
    /// The only ring.
    pub fn only(&self) -> &SeenRecords {
        assert_eq!(self.rings.len(), 1, "{}", self.errors);
        &self.rings[0]
    }

    /// The ring of a process.
    pub fn of(&self, pid: u32) -> &SeenRecords {
        let mut own = self.rings.iter().filter(|ring| ring.pid == pid);
        let ring = own
            .next()
            .unwrap_or_else(|| panic!("no ring of {pid}: {}", self.errors));
        assert!(own.next().is_none(), "two rings of {pid}");
        ring
    }

    /// The program's output, parsed as a list of numbers.
    pub fn numbers(&self) -> Vec<u64> {
        assert!(self.status.success(), "{:?} {}", self.status, self.errors);
        let words = self
            .output
            .split(|sign: char| !sign.is_ascii_digit())
            .filter(|word| !word.is_empty());
        words.map(|word| word.parse().unwrap()).collect()
    }
}

/// A pause, with its names resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: u32,
    pub generation: u8,
    pub interpreter: i64,
    pub collected: u64,
    pub uncollectable: u64,
    pub frame: u32,
    pub at_exit: bool,
}

impl SeenRecords {
    pub fn pauses(&self) -> Vec<Pause> {
        let pause = |record: &RingRecord| match *record {
            RingRecord::Pause {
                interval,
                tid,
                generation,
                interpreter,
                collected,
                uncollectable,
                frame,
                at_exit,
            } => Some(Pause {
                start_ns: interval.start_ns,
                end_ns: interval.end_ns,
                tid,
                generation,
                interpreter,
                collected,
                uncollectable,
                frame,
                at_exit,
            }),
            _ => None,
        };
        self.records.iter().filter_map(pause).collect()
    }

    pub fn begins(&self) -> usize {
        let is_begin = |record: &&RingRecord| matches!(record, RingRecord::PauseStart { .. });
        self.records.iter().filter(is_begin).count()
    }

    /// States of hooks, with their counts and details.
    pub fn hooks(&self) -> Vec<(HookState, i64, u64, String)> {
        let texts = self.texts();
        let hook = |record: &RingRecord| match *record {
            RingRecord::Hook {
                state,
                interpreter,
                detail,
                count,
                ..
            } => Some((
                state,
                interpreter,
                count,
                texts.get(&detail).cloned().unwrap_or_default(),
            )),
            _ => None,
        };
        self.records.iter().filter_map(hook).collect()
    }

    pub fn settings(&self) -> Vec<([i32; 3], bool)> {
        let settings = |record: &RingRecord| match *record {
            RingRecord::Settings {
                thresholds,
                enabled,
                ..
            } => Some((thresholds, enabled)),
            _ => None,
        };
        self.records.iter().filter_map(settings).collect()
    }

    pub fn texts(&self) -> BTreeMap<u32, String> {
        let mut texts = BTreeMap::<u32, Vec<u8>>::new();
        for record in &self.records {
            if let RingRecord::Text(piece) = record {
                texts.entry(piece.id).or_default().extend(piece.used());
            }
        }
        let text = |(id, bytes)| (id, String::from_utf8(bytes).unwrap());
        texts.into_iter().map(text).collect()
    }

    /// (function, file, line) of a frame and its callers.
    pub fn stack(&self, frame: u32) -> Vec<(String, String, u32)> {
        let texts = self.texts();
        let mut frames = BTreeMap::new();
        for record in &self.records {
            if let RingRecord::Frame {
                id,
                parent,
                function,
                file,
                line,
            } = *record
            {
                frames.insert(
                    id,
                    (parent, texts[&function].clone(), texts[&file].clone(), line),
                );
            }
        }
        let mut next = frame;
        std::iter::from_fn(|| {
            let (parent, function, file, line) = frames.get(&next)?.clone();
            next = parent;
            Some((function, file, line))
        })
        .collect()
    }

    /// The interpreter's own data: version, file, whether it is free-threaded.
    pub fn interpreter(&self) -> Option<(String, String, bool)> {
        let texts = self.texts();
        self.records.iter().find_map(|record| match *record {
            RingRecord::Interpreter {
                version,
                file,
                free_threaded,
                ..
            } => Some((texts[&version].clone(), texts[&file].clone(), free_threaded)),
            _ => None,
        })
    }
}

/// An interpreter of the manifest that scripts/interpreters.sh writes.
#[derive(Clone, Debug)]
pub struct Python {
    pub name: String,
    pub version: (u32, u32, u32),
    pub traits: Vec<String>,
    pub path: PathBuf,
}

impl Python {
    pub fn is(&self, what: &str) -> bool {
        self.traits.iter().any(|own| own == what)
    }

    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.args(["-c", script]);
        command
    }
}

/// All interpreters of the manifest; if there is none, the system's, which is reported.
pub fn interpreters(test: &str) -> Vec<Python> {
    let path = std::env::var_os("GCTRACE_INTERPRETERS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.interpreters/manifest.tsv"),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut all: Vec<Python> = lines.filter_map(|line| python(test, line)).collect();
    if all.is_empty() {
        eprintln!("{test}: only with the system's python3: scripts/interpreters.sh makes more");
        all.extend(system_python());
    }
    assert!(!all.is_empty(), "{test}: there is no python3 here");
    all
}

fn python(test: &str, line: &str) -> Option<Python> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, version, traits, path, note] = fields.as_slice() else {
        return None;
    };
    if *path == "-" {
        eprintln!("skipped {test} with {name}: {note}");
        return None;
    }
    if traits.contains("container") {
        eprintln!("skipped {test} with {name}: starting it needs root");
        return None;
    }
    let mut numbers = version.split('.').map(|number| number.parse().unwrap());
    Some(Python {
        name: (*name).to_owned(),
        version: (numbers.next()?, numbers.next()?, numbers.next()?),
        traits: traits.split(',').map(str::to_owned).collect(),
        path: PathBuf::from(path),
    })
}

fn system_python() -> Option<Python> {
    let ask = "import sys; print(*sys.version_info[:3], getattr(sys, 'abiflags', ''))";
    let printed = Command::new("python3")
        .args(["-c", ask])
        .output_in_time()
        .ok()?;
    let printed = String::from_utf8(printed.stdout).ok()?;
    let mut words = printed.split_whitespace();
    let mut number = || words.next()?.parse().ok();
    let version = (number()?, number()?, number()?);
    let free = words.next().is_some_and(|flags| flags.contains('t'));
    Some(Python {
        name: "python3".to_owned(),
        version,
        traits: free
            .then(|| "free-threaded".to_owned())
            .into_iter()
            .collect(),
        path: PathBuf::from("python3"),
    })
}
