//! `analyze --on` with a scheduler and two executors on loopback, one of which is killed. The
//! answer must be `gctrace analyze`'s on the same traces, to the byte, or an error.

use crate::job;
use crate::job::Job;
use crate::limit::{LIMIT, WithTimeout as _};
use std::fs::Permissions;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A process that is killed at the end of a test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    /// kill -9.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A scheduler and two executors, each of which reads one trace at a time.
pub(crate) struct Cluster {
    directory: TempDir,
    /// Environment of all processes.
    variables: Vec<(&'static str, String)>,
    ports: [u16; 3],
    scheduler: Process,
    executors: Vec<Process>,
}

impl Cluster {
    /// Starts them. A trace takes `seconds` longer to read than gctrace needs.
    pub(crate) fn start(seconds: &str, mut variables: Vec<(&'static str, String)>) -> Self {
        let ports = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = ports.map(|port| port.local_addr().unwrap().port());
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().to_str().unwrap().to_owned();
        variables.push(("XDG_CONFIG_HOME", home));
        let scheduler = start_scheduler(ports[0], &variables);
        let mut cluster = Self { directory, variables, ports, scheduler, executors: Vec::new() };
        for port in &ports[1..] {
            let begun = cluster.begun_by(cluster.executors.len());
            std::fs::write(&begun, "").unwrap();
            let script = format!(
                "#!/bin/sh\necho \"$2\" >>'{}'\nsleep {seconds}\nexec '{}' \"$@\"\n",
                begun.display(),
                job::gctrace().display()
            );
            cluster.add(*port, &script);
        }
        cluster.wait();
        cluster
    }

    /// Waits until the scheduler listens; executors do so by themselves.
    fn wait(&self) {
        let patience = Instant::now() + LIMIT;
        while TcpStream::connect(("127.0.0.1", self.ports[0])).is_err() {
            assert!(Instant::now() < patience, "the scheduler does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Those of the scheduler and the executors.
    pub(crate) fn ports(&self) -> [u16; 3] {
        self.ports
    }

    /// Where its files are: [`Self::secret`], and who began to read what.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What its processes share, once the scheduler is there.
    pub(crate) fn secret(&self) -> PathBuf {
        self.directory.path().join("gctrace/cluster.pem")
    }

    /// Starts an executor that reads traces with this script.
    fn add(&mut self, port: u16, script: &str) {
        let program = self.directory.path().join(format!("gctrace-{port}"));
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut executor = Command::new(env!("CARGO_BIN_EXE_gctrace-cluster"));
        executor.arg("--gctrace").arg(program).arg("executor");
        executor.args([
            "--scheduler-port",
            &self.ports[0].to_string(),
            "--port",
            &port.to_string(),
        ]);
        executor.args(["--jobs", "1"]).envs(self.variables.clone());
        self.executors.push(Process::start(&mut executor));
    }

    /// Where an executor's program notes the traces that it begins to read.
    fn begun_by(&self, executor: usize) -> PathBuf {
        self.directory.path().join(executor.to_string())
    }

    /// Number of traces that an executor began to read.
    pub(crate) fn begun(&self, executor: usize) -> usize {
        std::fs::read_to_string(self.begun_by(executor)).unwrap().lines().count()
    }

    /// The command that summarizes `inputs` into `summaries` and prints the report.
    pub(crate) fn analyze(&self, inputs: &[String], summaries: &str) -> Command {
        let mut command = job::cluster();
        command.args(["analyze", "--on", &format!("ballista://127.0.0.1:{}", self.ports[0])]);
        command.args(inputs).args(["-o", summaries, "--", "--format", "json"]);
        command.envs(self.variables.clone());
        command
    }
}

fn start_scheduler(port: u16, variables: &[(&str, String)]) -> Process {
    let mut scheduler = job::cluster();
    scheduler.envs(variables.iter().cloned());
    scheduler.args(["scheduler", "--executor-timeout", "6", "--port", &port.to_string()]);
    Process::start(&mut scheduler)
}

/// The report on the traces by one process, without a cluster.
pub(crate) fn report(job: &Job) -> String {
    let mut gctrace = Command::new(job::gctrace());
    let output = gctrace.args(["analyze", "--format", "json"]).args(&job.traces).output_in_time();
    job::succeeded(&output.unwrap())
}

/// Starts the command; its output is kept.
fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until it is so. `client` must not have ended before.
fn wait_until(client: &mut Child, so: impl Fn() -> bool) {
    let patience = Instant::now() + LIMIT;
    while !so() {
        assert_eq!(client.try_wait().unwrap(), None, "the client ended too early");
        assert!(Instant::now() < patience, "it never was so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names(job: &Job) -> Vec<String> {
    job.traces.iter().map(|trace| trace.to_str().unwrap().to_owned()).collect()
}

fn summaries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "gcsum")).collect()
}

/// When an executor is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    Never,
    /// When it has begun to read that many traces.
    Begun(usize),
    /// When no trace is left to be begun.
    AllBegun,
}

#[test]
fn an_executor_is_killed() {
    let job = Job::new(8);
    let (inputs, expected) = (names(&job), report(&job));
    let begun = [1, 2, 3].map(Killed::Begun);
    for killed in [&[Killed::Never], &begun[..], &[Killed::AllBegun]].concat() {
        let mut cluster = Cluster::start("1", Vec::new());
        let directory = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let mut client = start(&mut cluster.analyze(&inputs, directory.path().to_str().unwrap()));
        let both = |cluster: &Cluster| [cluster.begun(0), cluster.begun(1)];
        if killed != Killed::Never {
            wait_until(&mut client, || match killed {
                Killed::Begun(begun) => cluster.begun(0) == begun,
                _ => cluster.begun(0) > 0 && both(&cluster).iter().sum::<usize>() == inputs.len(),
            });
            cluster.executors[0].kill();
        }
        let before = both(&cluster);
        let output = client.output_in_time().unwrap();
        let seconds = started.elapsed().as_secs_f32();
        assert_eq!(job::succeeded(&output), expected, "killed: {killed:?}");
        assert_eq!(summaries(directory.path()).len(), inputs.len());
        let after = both(&cluster);
        let [a, b] = after;
        match killed {
            Killed::Never => assert_eq!(a + b, inputs.len()),
            // What it had begun, the other read again.
            _ => assert!(b > inputs.len() - before[0], "{before:?} {after:?}"),
        }
        println!("| A killed: {killed:?} | same report | {seconds:.1} s | {a} / {b} |");
    }
}

#[test]
fn the_scheduler_is_killed() {
    let job = Job::new(8);
    let inputs = names(&job);
    let mut cluster = Cluster::start("1", Vec::new());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut client = start(&mut cluster.analyze(&inputs, directory.to_str().unwrap()));
    wait_until(&mut client, || summaries(directory).len() >= 3);
    cluster.scheduler.kill();
    let killed = Instant::now();
    let message = job::refused(&client.output_in_time().unwrap());
    let seconds = killed.elapsed().as_secs_f32();
    assert!(message.contains("the traces were not summarized"), "{message}");

    // The executors find the next one, and what was done is not done again.
    cluster.scheduler = start_scheduler(cluster.ports[0], &cluster.variables);
    cluster.wait();
    let times = |path: &PathBuf| std::fs::metadata(path).unwrap().modified().unwrap();
    let files = summaries(directory).into_iter().map(|path| (times(&path), path));
    let files: Vec<_> = files.collect();
    assert!((3..inputs.len()).contains(&files.len()), "{files:?}");
    let kept = files.len();
    println!("| scheduler killed | exit code 1 | {seconds:.1} s after | {kept} summaries kept |");
    let started = Instant::now();
    let again = cluster.analyze(&inputs, directory.to_str().unwrap()).output_in_time();
    let seconds = started.elapsed().as_secs_f32();
    assert_eq!(job::succeeded(&again.unwrap()), report(&job));
    for (time, path) in files {
        assert_eq!(times(&path), time, "{}", path.display());
    }
    println!("| the same again, with a new scheduler | same report | {seconds:.1} s | |");
}

#[test]
fn a_trace_without_a_summary_is_an_error() {
    let job = Job::new(3);
    let inputs = names(&job);
    let mut cluster = Cluster::start("0", Vec::new());
    for executor in &mut cluster.executors {
        executor.kill();
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = format!(
        "#!/bin/sh\ncase $2 in *rank1.json) echo 'gctrace: no space' >&2; exit 1;; esac\nexec '{}' \"$@\"\n",
        job::gctrace().display()
    );
    cluster.add(port, &script);
    let directory = tempfile::tempdir().unwrap();
    let summaries = directory.path().to_str().unwrap();
    let message = job::refused(&cluster.analyze(&inputs, summaries).output_in_time().unwrap());
    assert!(message.contains("rank1.json: gctrace, exit status: 1: no space"), "{message}");
}

#[test]
fn without_a_scheduler_there_is_no_answer() {
    let job = Job::new(2);
    let mut cluster = Cluster::start("0", Vec::new());
    cluster.scheduler.kill();
    let port = cluster.ports[0];
    for (scheduler, expected) in [
        (format!("ballista://127.0.0.1:{port}"), "not summarized"),
        (format!("http://127.0.0.1:{port}"), "ballista://HOST:PORT"),
    ] {
        let mut command = job::cluster();
        command
            .args(["analyze", "--on", &scheduler, "-o", "/nowhere"])
            .args(&job.traces)
            .envs(cluster.variables.clone());
        let message = job::refused(&command.output_in_time().unwrap());
        assert!(message.contains(expected), "{message}");
    }
}

/// A report of the others would lack its rank.
#[test]
fn a_summary_is_not_summarized_again() {
    let job = Job::new(2);
    let summaries = job.summarize(&job.traces[1..], "summaries");
    let summary = summaries.join("rank1.json.gcsum");
    let analyze = |inputs: &[&Path]| {
        let mut command = job::cluster();
        command
            .args(["analyze", "--on", "ballista://127.0.0.1:1", "-o"])
            .arg(job.directory.path().join("others"))
            .args(inputs);
        job::refused(&command.output_in_time().unwrap())
    };
    let expected = ["rank1.json.gcsum: has summaries", "summaries: has summaries"];
    for (input, expected) in [&summary, &summaries].into_iter().zip(expected) {
        let message = analyze(&[&job.traces[0], input]);
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("run gctrace analyze on"), "{message}");
    }
}
