//! Runs of `tests/python/replay_truth.py` on the simulated GPU, as timelines.
//!
//! Owns starting the programs and reading their output, which `trial.rs` evaluates.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

pub(crate) mod figure;
pub(crate) mod trial;

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_analysis::report::Report;
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use test_kit::limit::WithTimeout as _;

/// Why a case cannot be played here.
pub(crate) type Reason = String;

/// What the profiler was configured to record.
#[derive(Clone, Copy)]
pub(crate) enum RunForm {
    /// What calls waited for as well.
    WithWaits,
    /// The profiler's default.
    Plain,
}

/// One run of a case.
pub(crate) struct Recorded {
    /// The timelines, by rank.
    pub(crate) ranks: Vec<Timeline>,
    /// Time for which its threads waited for a CPU: all of all ranks, and the machine as a whole
    /// for a hypervisor. `None` if the kernel does not count that.
    pub(crate) waited_ns: Option<i64>,
}

/// The folder of the simulated libraries: `GCTRACE_SIMGPU`, else one made of this build's.
fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let named = std::env::var_os("GCTRACE_SIMGPU").filter(|path| !path.is_empty());
        named.map_or_else(lay_out, PathBuf::from)
    })
}

fn lay_out() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulated-gpu");
    let library = gctrace_simgpu::find_library().unwrap();
    gctrace_simgpu::lay_out(&library, &folder).unwrap();
    folder
}

fn script(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/python");
    folder.join(name)
}

fn succeed(command: &mut Command) {
    let output = command.output_in_time().unwrap();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Builds a library of one C file.
fn compile(source: &str, library: &Path) -> Result<(), Reason> {
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(library);
    let status = compiler.arg(script(source)).status_in_time();
    match status {
        Ok(status) => assert!(status.success(), "{compiler:?}"),
        Err(error) => return Err(format!("cc: {error}")),
    }
    Ok(())
}

/// Plays a case; its runs, every even one with collections.
pub(crate) fn play(case: &str, runs: usize, ranks: usize) -> Result<SimulatedRun, Reason> {
    if Command::new("python3").arg("--version").output_in_time().is_err() {
        return Err("there is no python3".to_owned());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new("python3");
    program
        .arg(script("replay_truth.py"))
        .args([case, "--runs", &runs.to_string(), "--library"])
        .arg(libraries())
        .arg("--out")
        .arg(folder.path());
    if case == "native_thread" {
        let native = folder.path().join("launch_loop.so");
        compile("launch_loop.c", &native)?;
        program.arg("--native").arg(native);
    }
    program
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SIMGPU_LOG", folder.path().join("log"))
        // At exit: writing it needs CPU time.
        .env("SIMGPU_LOG_MS", "3600000")
        .env("SIMGPU_SHARED", folder.path().join("shared"));
    succeed(&mut program);
    let mut convert = Command::new("python3");
    convert.arg(script("kineto_of_simgpu.py")).arg(folder.path());
    succeed(convert.env("PYTHONDONTWRITEBYTECODE", "1"));
    let waited_ns = waited(folder.path(), runs, ranks);
    Ok(SimulatedRun { folder, ranks, waited_ns })
}

/// The results of a case.
pub(crate) struct SimulatedRun {
    folder: tempfile::TempDir,
    ranks: usize,
    /// By run, as in [`Recorded`].
    waited_ns: Vec<Option<i64>>,
}

impl SimulatedRun {
    /// The runs with collections as the PyTorch profiler would have recorded them.
    pub(crate) fn with(&self, form: RunForm) -> Vec<Recorded> {
        let form = match form {
            RunForm::WithWaits => "",
            RunForm::Plain => ".plain",
        };
        self.recorded(0, form)
    }

    /// The runs without. Only their figures are of interest, so in one form.
    pub(crate) fn without(&self) -> Vec<Recorded> {
        self.recorded(1, ".plain")
    }

    /// The reports on the runs with collections, each with the time for which its threads waited for
    /// a CPU.
    pub(crate) fn reports(&self) -> Vec<(Report, Option<i64>)> {
        let runs = self.waited_ns.iter().enumerate().step_by(2);
        let report = |(run, waited_ns): (usize, &Option<i64>)| {
            let mut analysis = read(self.files(run, ""));
            analysis.settle();
            (analysis.report(), *waited_ns)
        };
        runs.map(report).collect()
    }

    /// The traces of a run, by rank.
    fn files(&self, run: usize, form: &str) -> impl Iterator<Item = PathBuf> {
        let file = move |rank| self.folder.path().join(format!("run{run}.rank{rank}{form}.json"));
        (0..self.ranks).map(file)
    }

    /// Every second run.
    fn recorded(&self, first: usize, form: &str) -> Vec<Recorded> {
        let runs = self.waited_ns.iter().enumerate().skip(first).step_by(2);
        let run = |(run, waited_ns): (usize, &Option<i64>)| Recorded {
            ranks: timelines(self.files(run, form)),
            waited_ns: *waited_ns,
        };
        runs.map(run).collect()
    }
}

/// For how long threads waited in each run: program.<rank>.json.
fn waited(folder: &Path, runs: usize, ranks: usize) -> Vec<Option<i64>> {
    let program = |rank| {
        let text = std::fs::read(folder.join(format!("program.{rank}.json"))).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()
    };
    let programs: Vec<_> = (0..ranks).map(program).collect();
    let of_run = |run: usize| {
        let ranks = || programs.iter().map(|program| &program["runs"][run]);
        let waited: Option<i64> = ranks().map(|rank| rank["waited"].as_i64()).sum();
        // Each rank reports the same for the one machine.
        let stolen = ranks().map(|rank| rank["stolen"].as_i64().unwrap()).max();
        Some(waited? + stolen?)
    };
    (0..runs).map(of_run).collect()
}

/// Several traces.
fn read(files: impl Iterator<Item = PathBuf>) -> Analysis {
    let mut analysis = Analysis::default();
    for file in files {
        analysis.begin_trace("trace");
        let mut reader = TraceReader::new(EventReader::new(TraceInput::open(&file).unwrap()));
        while let Some(item) = reader.next_item().unwrap() {
            analysis.add(item);
        }
        let ending = reader.finish();
        assert_eq!(ending.anomalies.count, 0, "{:?}", ending.anomalies);
        analysis.end_trace(ending, None);
    }
    analysis
}

/// The processes of several traces, one each, by rank.
fn timelines(files: impl Iterator<Item = PathBuf>) -> Vec<Timeline> {
    let analysis = read(files);
    let kept = analysis.timelines().iter();
    let mut timelines: Vec<Timeline> = kept.map(|kept| kept.whole().into_owned()).collect();
    for (rank, timeline) in (0..).zip(&mut timelines) {
        assert_eq!(timeline.trace, rank as usize, "one process each");
        timeline.rank.get_or_insert(rank);
    }
    timelines
}
