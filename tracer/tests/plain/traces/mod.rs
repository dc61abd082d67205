//! A folder with traces of all kinds, in which gctrace runs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::{Process, Record, TraceHeader};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use test_kit::interpreters::root;
use test_kit::limit::WithTimeout as _;
use test_kit::records;

pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A folder with traces, in which gctrace runs.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn add(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
        command.args(arguments).current_dir(self.0.path());
        for set in ["ID", "COUNT", "MIN", "MAX", "STEP"] {
            command.env_remove(format!("SLURM_ARRAY_TASK_{set}"));
        }
        command.env_remove("JOB_COMPLETION_INDEX");
        command
    }

    pub(crate) fn gctrace(&self, arguments: &[&str]) -> Outcome {
        let output = self.command(arguments).output_in_time().unwrap();
        Outcome {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs `gctrace summarize` on the words, which must succeed.
    pub(crate) fn summarize(&self, words: &str) -> String {
        let words: Vec<&str> =
            std::iter::once("summarize").chain(words.split_whitespace()).collect();
        let outcome = self.gctrace(&words);
        assert_eq!(outcome.code, Some(0), "{words:?}: {}", outcome.err);
        outcome.err
    }

    /// The JSON report.
    pub(crate) fn report(&self, words: &str) -> Outcome {
        let words: Vec<&str> =
            ["analyze", "--format", "json"].into_iter().chain(words.split_whitespace()).collect();
        self.gctrace(&words)
    }

    /// Name and content of every file in a directory.
    pub(crate) fn files(&self, directory: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.path(directory)).into_iter().flatten();
        let files = entries.map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        });
        files.collect()
    }
}

/// A gctrace trace of one rank with some pauses in stacks, other processes and a note.
pub(crate) fn rank(rank: u32) -> Vec<u8> {
    let header = TraceHeader { rank: Some(rank), ..records::header() };
    let mut all = vec![
        Record::Process(Process {
            pid: 77,
            rank: Some(rank),
            command: vec!["python".to_owned(), "train.py".to_owned()],
            ..Process::default()
        }),
        records::frame(1, None),
        records::frame(2, Some(1)),
    ];
    all.extend((0..200 + u64::from(rank)).map(|n| records::pause_in(n, 2)));
    records::written(&header, &all, &records::end("exited"))
}

/// Traces of all kinds, by name: real ones of the PyTorch profiler, gctrace's, damaged and cut ones.
pub(crate) fn traces(folder: &Folder) -> Vec<String> {
    let real = root().join("analysis/tests/data/kineto");
    let mut names = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| {
        folder.add(name, bytes);
        names.push(name.to_owned());
    };
    for name in ["sampled_rank0.json.gz", "sampled_rank1.json.gz"] {
        add(&format!("real/{name}"), std::fs::read(real.join(name)).unwrap());
    }
    for number in 0..4 {
        add(&format!("own/rank{number}.json"), rank(number));
    }
    let whole = rank(4);
    add("own/cut.json", whole[..whole.len() / 2].to_vec());
    let mut damaged = rank(5);
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(b'{');
    add("own/damaged.json", damaged);
    add(
        "other/spans.json",
        br#"[{"ph":"X","name":"f","pid":1,"tid":1,"ts":5,"dur":70},
            {"ph":"X","cat":"gc","name":"gc gen2","pid":1,"tid":1,"ts":10,"dur":2.5},
            {"ph":"X","cat":"gc","name":"gc gen1","pid":"x","tid":1,"ts":10,"dur":2.5},
            {"ph":"i","name":"end","pid":2,"ts":900}]"#
            .to_vec(),
    );
    names
}
