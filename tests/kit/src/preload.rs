//! Runs programs with the library preloaded, and reads their rings as gctrace does.
use gctrace_ring::{
    AllocationTotals, CLASSES, HookState, InjectOptions, LostRecords, OPTIONS_VARIABLE,
    PythonMessage, RENDEZVOUS_VARIABLE, RingCalled, RingConsumer, RingCycleCount, RingGarbage,
    RingHello, RingKindCount, RingListener, RingPause, StepMarker,
};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Maximum time between a process's connect(2) and its sendmsg(2).
const PATIENCE: Duration = Duration::from_secs(60);

/// A ring and everything read from it.
pub struct SeenRecords {
    /// The message that the process sent with its ring.
    pub hello: RingHello,
    /// The process that wrote it.
    pub pid: u32,
    /// All records, in order.
    pub records: Vec<PythonMessage>,
    /// How many did not fit into the ring.
    pub lost: LostRecords,
    /// When and why the library switched recording off; `None`: it did not.
    pub switched_off: Option<(u64, String)>,
    /// The last allocation totals: their time, by class, and without a class.
    pub allocations: Option<(u64, [AllocationTotals; CLASSES], u64)>,
    consumer: RingConsumer,
}

/// The garbage of one collection.
pub struct SeenGarbage {
    /// Its length, when and where.
    pub head: RingGarbage,
    /// By kind.
    pub kinds: Vec<(SeenKind, RingKindCount)>,
    /// By cycle: each object, and the name of its reference to the next.
    pub cycles: Vec<(Vec<(SeenKind, String)>, RingCycleCount)>,
    /// By type and line of birth, the number of sampled objects.
    pub births: Vec<(SeenKind, u32)>,
}

/// A kind of object: type, function, file and line.
pub type SeenKind = (String, String, String, u32);

impl SeenGarbage {
    /// Objects by type.
    pub fn types(&self) -> BTreeMap<String, u64> {
        let mut types = BTreeMap::new();
        for ((name, ..), count) in &self.kinds {
            *types.entry(name.clone()).or_default() += count.objects;
        }
        types
    }
}

/// The results of a program.
pub struct Run {
    /// The program's exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
    /// A ring per process that loaded the library.
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
    let library = crate::library::find_library().unwrap();
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
        ring.switched_off = ring.consumer.switched_off();
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
            switched_off: None,
            allocations: None,
            consumer,
        });
    }
    for ring in rings {
        let records = &mut ring.records;
        while ring.consumer.read(dead, |record| records.push(record)).messages > 0 {}
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
        let mut rings = self.rings.iter().filter(|ring| ring.pid == pid);
        let ring = rings.next().unwrap_or_else(|| panic!("no ring of {pid}: {}", self.errors));
        assert!(rings.next().is_none(), "two rings of {pid}");
        ring
    }

    /// The program's output, parsed as a list of numbers.
    pub fn numbers(&self) -> Vec<u64> {
        assert!(self.status.success(), "{:?} {}", self.status, self.errors);
        let words =
            self.output.split(|sign: char| !sign.is_ascii_digit()).filter(|word| !word.is_empty());
        words.map(|word| word.parse().unwrap()).collect()
    }
}

impl SeenRecords {
    /// The pauses that have ended, in order.
    pub fn pauses(&self) -> Vec<RingPause> {
        let pause = |record: &PythonMessage| match *record {
            PythonMessage::Pause(pause) => Some(pause),
            _ => None,
        };
        self.records.iter().filter_map(pause).collect()
    }

    /// The program's functions that collections called, in order: function, file and line (empty if
    /// unknown), the calls.
    pub fn called(&self) -> Vec<((String, String, u32), RingCalled)> {
        let called = |record: &PythonMessage| match *record {
            PythonMessage::Called(called) => {
                Some((self.stack(called.frame).into_iter().next().unwrap_or_default(), called))
            }
            _ => None,
        };
        self.records.iter().filter_map(called).collect()
    }

    /// What is alive by line of birth, as of the last look: function, file and line, objects and bytes.
    pub fn alive(&self) -> Vec<((String, String, u32), u64, u64)> {
        let last = self.records.iter().rev().find_map(|record| match record {
            PythonMessage::Alive { lines, .. } => Some(lines),
            _ => None,
        });
        let place = |frame| self.stack(frame).into_iter().next().unwrap_or_default();
        let lines = last.into_iter().flatten();
        lines.map(|line| (place(line.frame), line.objects, line.bytes)).collect()
    }

    /// The number of pauses that started.
    pub fn begins(&self) -> usize {
        let is_begin = |record: &&PythonMessage| matches!(record, PythonMessage::PauseStart { .. });
        self.records.iter().filter(is_begin).count()
    }

    /// States of hooks, with their counts and details.
    pub fn hooks(&self) -> Vec<(HookState, i64, u64, String)> {
        let texts = self.texts();
        let hook = |record: &PythonMessage| match *record {
            PythonMessage::Hook { state, interpreter, detail, count, .. } => {
                Some((state, interpreter, count, texts.get(&detail).cloned().unwrap_or_default()))
            }
            _ => None,
        };
        self.records.iter().filter_map(hook).collect()
    }

    /// The garbage of each collection that was examined, in order.
    pub fn garbage(&self) -> Vec<SeenGarbage> {
        let texts = self.texts();
        let text = |id: u32| texts.get(&id).cloned().unwrap_or_default();
        let (mut kinds, mut all) = (BTreeMap::new(), Vec::new());
        let mut signatures = BTreeMap::new();
        for record in &self.records {
            match record {
                PythonMessage::ObjectKind { id, type_name, function, file, line } => {
                    let kind = (text(*type_name), text(*function), text(*file), *line);
                    assert!(kinds.insert(*id, kind).is_none(), "kind {id} twice");
                }
                PythonMessage::Cycle { id, edges } => {
                    let edges =
                        edges.iter().map(|edge| (kinds[&edge.kind].clone(), text(edge.name)));
                    let before = signatures.insert(*id, edges.collect::<Vec<_>>());
                    assert!(before.is_none(), "cycle {id} twice");
                }
                PythonMessage::Garbage(head) => {
                    let by_kind =
                        head.kinds.iter().map(|count| (kinds[&count.kind].clone(), *count));
                    let births = head.births.iter();
                    let cycles = head.cycles.iter().flatten();
                    all.push(SeenGarbage {
                        head: head.clone(),
                        kinds: by_kind.collect(),
                        cycles: cycles.map(|of| (signatures[&of.cycle].clone(), *of)).collect(),
                        births: births.map(|of| (kinds[&of.kind].clone(), of.samples)).collect(),
                    });
                }
                _ => {}
            }
        }
        all
    }

    /// The collector's thresholds and whether it is enabled, at each change.
    pub fn settings(&self) -> Vec<([i32; 3], bool)> {
        let settings = |record: &PythonMessage| match *record {
            PythonMessage::Settings { thresholds, enabled, .. } => Some((thresholds, enabled)),
            _ => None,
        };
        self.records.iter().filter_map(settings).collect()
    }

    /// The marks of steps in order: what marks, its name, the thread.
    pub fn steps(&self) -> Vec<(StepMarker, String, u32)> {
        let texts = self.texts();
        let step = |record: &PythonMessage| match *record {
            PythonMessage::StepMark { marker, name, tid, .. } => {
                Some((marker, texts.get(&name).cloned().unwrap_or_default(), tid))
            }
            _ => None,
        };
        self.records.iter().filter_map(step).collect()
    }

    /// The texts that other records refer to, by id.
    pub fn texts(&self) -> BTreeMap<u32, String> {
        let text = |record: &PythonMessage| match record {
            PythonMessage::Text { id, text } => Some((*id, text.to_string())),
            _ => None,
        };
        self.records.iter().filter_map(text).collect()
    }

    /// (function, file, line) of a frame and its callers.
    pub fn stack(&self, frame: u32) -> Vec<(String, String, u32)> {
        let texts = self.texts();
        let mut frames = BTreeMap::new();
        for record in &self.records {
            if let PythonMessage::Frame { id, parent, function, file, line } = *record {
                // Frames that stand for others have no file.
                let file = texts.get(&file).cloned().unwrap_or_default();
                frames.insert(id, (parent, texts[&function].clone(), file, line));
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
            PythonMessage::Interpreter { version, file, free_threaded, .. } => {
                Some((texts[&version].clone(), texts[&file].clone(), free_threaded))
            }
            _ => None,
        })
    }
}
