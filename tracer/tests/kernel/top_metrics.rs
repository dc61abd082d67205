//! `gctrace top --listen`: compares a scrape of a running program with the program and its trace.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::{Trace, top};

/// Collects 25 times once a file exists, then creates another file, and ends once a third exists.
const COLLECTS: &str = "
import gc, os, sys, time
gc.disable()
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
wait('begin')
for _ in range(25):
    ring = []
    ring.append(ring)
    del ring
    gc.collect()
open('done', 'w').close()
wait('end')
";

/// A running gctrace that serves metrics; stopped on drop.
struct Top {
    child: Child,
    address: String,
}

impl Top {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(recording::binary())
            .args(["top", "--format", "text", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(directory)
            .env_remove("SUDO_UID")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .find_map(|line| {
                let line = line.unwrap();
                let at = line.split("http://").nth(1)?;
                at.strip_suffix("/metrics").map(str::to_owned)
            })
            .expect("a message with the address");
        // A full pipe must not block anything.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Every series and its value.
    fn scrape(&self) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(page.ends_with("# EOF\n"));
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                (series.to_owned(), value.parse().unwrap())
            })
            .collect()
    }

    fn value(&self, series: &str) -> Option<f64> {
        self.scrape().get(series).copied()
    }

    /// Ends like a service.
    fn end(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.child.status_in_time().unwrap();
        assert!(TcpStream::connect(&self.address).is_err(), "still serves");
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.status_in_time();
    }
}

fn touch(file: &Path) {
    std::fs::write(file, "").unwrap();
}

#[test]
fn a_scrape_tells_what_the_trace_tells() {
    let Some((python, place)) = recording::place_for("a_scrape_tells_what_the_trace_tells") else {
        return;
    };
    let python = python.to_str().unwrap();
    let arguments = ["--record", "t.json", "--", python, "-c", COLLECTS];
    let mut top = Top::start(place.path(), &arguments);
    recording::wait_until("the process", || top.value("gctrace_processes") == Some(1.0));
    touch(&place.path().join("begin"));
    let count = "gctrace_pauses_total{generation=\"2\",reason=\"manual\"}";
    recording::wait_until("25 collections", || top.value(count) == Some(25.0));
    let page = top.scrape();
    assert_eq!(page[count], 25.0);
    touch(&place.path().join("end"));
    assert!(top.child.status_in_time().unwrap().success());

    let trace = Trace::read(&place.path().join("t.json"));
    let mut until_scraped = top::without_examining(&trace, trace.pauses());
    until_scraped.retain(|pause| pause.reason != "shutdown");
    let manual: Vec<_> = until_scraped.iter().filter(|pause| pause.reason == "manual").collect();
    assert_eq!(manual.len(), 25);
    let (pid, time_ns) =
        (manual[0].pid, manual.iter().map(|pause| pause.end_ns - pause.start_ns).sum::<u64>());
    let seconds = time_ns as f64 / 1e9;
    let both = "generation=\"2\",reason=\"manual\"}";
    assert_eq!(page[&format!("gctrace_pause_seconds_total{{{both}")], seconds);
    let process = format!("{{pid=\"{pid}\",{both}");
    assert_eq!(page[&format!("gctrace_process_pauses_total{process}")], 25.0);
    assert_eq!(page[&format!("gctrace_process_pause_seconds_total{process}")], seconds);
    let collected = format!("gctrace_process_collected_objects_total{{pid=\"{pid}\"}}");
    let reported: u64 = until_scraped.iter().filter_map(|pause| pause.number("collected")).sum();
    assert_eq!(page[&collected], reported as f64);
    assert!(reported >= 25, "a ring for each");
}

#[test]
fn every_python_process_comes_and_goes() {
    let Some((python, place)) = recording::place_for("every_python_process_comes_and_goes") else {
        return;
    };
    let start = |folder: &str| {
        let folder = place.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        touch(&folder.join("begin"));
        Command::new(&python).args(["-c", COLLECTS]).current_dir(folder).spawn().unwrap()
    };
    let mut before = start("before");
    let top = Top::start(place.path(), &[]);
    let known = |child: &Child| {
        let label = format!("gctrace_process_info{{pid=\"{}\"", child.id());
        let page = top.scrape();
        page.keys().any(|series| series.starts_with(&label))
    };
    recording::wait_until("the first is found", || known(&before));
    let mut after = start("after");
    recording::wait_until("the second is found", || known(&after));
    let seen = top.value("gctrace_processes_seen_total");
    before.kill().unwrap();
    before.status_in_time().unwrap();
    recording::wait_until("the first is gone", || !known(&before));
    assert!(known(&after));
    assert!(top.value("gctrace_processes_seen_total") >= seen);
    touch(&place.path().join("after/end"));
    assert!(after.status_in_time().unwrap().success());
    top.end();
}

#[test]
fn nothing_is_started_where_the_address_is_taken() {
    let Some((python, place)) =
        recording::place_for("nothing_is_started_where_the_address_is_taken")
    else {
        return;
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let program = "open('started', 'w').close()";
    let python = python.to_str().unwrap();
    let arguments = ["top", "--format", "text", "--listen", &address, "--", python, "-c", program];
    let output = recording::gctrace(&arguments, place.path());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains(&format!("cannot listen on {address}")), "{printed}");
    assert!(!place.path().join("started").exists());
}
