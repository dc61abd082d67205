//! Waits for processes in tests, with a limit: a test that hangs fails, and leaves nothing running.
//! Included by path in the tests of every crate.
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far longer than any process of a test takes, on a busy machine too.
pub const LIMIT: Duration = Duration::from_secs(180);

/// [`LIMIT`], or the seconds of `GCTRACE_TEST_PATIENCE` if longer: an emulated machine is slow.
fn limit() -> Duration {
    let given = std::env::var("GCTRACE_TEST_PATIENCE").ok();
    let seconds = given.and_then(|text| text.parse().ok()).unwrap_or(0);
    LIMIT.max(Duration::from_secs(seconds))
}

/// Methods of commands and children, with a limit.
pub trait WithTimeout {
    /// Like `output` and `wait_with_output`.
    fn output_in_time(&mut self) -> std::io::Result<Output>;
    /// Like `status` and `wait`; after [`LIMIT`] kills the process and panics.
    fn status_in_time(&mut self) -> std::io::Result<ExitStatus>;
}

impl WithTimeout for Command {
    fn output_in_time(&mut self) -> std::io::Result<Output> {
        self.stdin(Stdio::null());
        let mut child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.output_in_time()
    }

    fn status_in_time(&mut self) -> std::io::Result<ExitStatus> {
        self.spawn()?.status_in_time()
    }
}

impl WithTimeout for Child {
    fn status_in_time(&mut self) -> std::io::Result<ExitStatus> {
        drop(self.stdin.take());
        let limit = limit();
        let patience = Instant::now() + limit;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > patience {
                let _ = self.kill();
                panic!("process {} did not end in {limit:?}: killed", self.id());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn output_in_time(&mut self) -> std::io::Result<Output> {
        let stdout = self.stdout.take().map(read_all);
        let stderr = self.stderr.take().map(read_all);
        Ok(Output { status: self.status_in_time()?, stdout: whole(stdout), stderr: whole(stderr) })
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// A descendant may keep the pipe open for longer.
fn whole(reader: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    let Some(reader) = reader else {
        return Vec::new();
    };
    let patience = Instant::now() + LIMIT;
    while !reader.is_finished() {
        assert!(Instant::now() < patience, "a pipe was not closed in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(3));
    }
    reader.join().unwrap()
}
