//! `gctrace dump --keep DIR`: asks the recorder of a directory to keep its segments, and waits until it has.

use crate::files::segments::{kept_in, recorder_of};
use crate::print;
use crate::text::shell_line;
use anyhow::Context as _;
use nix::errno::Errno;
use std::path::Path;
use std::time::{Duration, Instant};

/// A recorder turns 25 times a second.
const POLL: Duration = Duration::from_millis(20);
/// How long it may take on a machine under load.
const PATIENCE: Duration = Duration::from_secs(20);

/// Prints the folder. Returns the exit code: 0.
///
/// # Errors
/// No recorder writes to the directory, or only another process has its lock; it may not be signaled, or it does not
/// answer.
pub(super) fn run(directory: &Path) -> anyhow::Result<u8> {
    let shown = directory.display();
    let found = recorder_of(directory);
    let found =
        found.with_context(|| format!("{shown} is no directory of gctrace record --keep"))?;
    let recorder = found.with_context(|| {
        format!(
            "no gctrace records into {shown} now; it has left: {}",
            shell_line(&[Path::new("gctrace"), Path::new("analyze"), directory])
        )
    })?;
    let before = if let Some((number, _)) = kept_in(directory).last() { *number } else { 0 };
    let pid = recorder.pid;
    match recorder.ask_to_keep() {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            let keep = shell_line(&[Path::new("--keep"), directory]);
            anyhow::bail!("the recorder (pid {pid}) is of another user: sudo gctrace dump {keep}")
        }
        Err(errno) => return Err(errno).context(format!("the recorder (pid {pid})")),
    }
    let asked = Instant::now();
    loop {
        if let Some((_, kept)) = kept_in(directory).into_iter().find(|(number, _)| *number > before)
        {
            print::answer(&format!("{}\n", kept.display()))?;
            print::message(format!(
                "Next: {}",
                shell_line(&[Path::new("gctrace"), Path::new("analyze"), kept.as_path()])
            ));
            return Ok(0);
        }
        anyhow::ensure!(
            asked.elapsed() < PATIENCE,
            "the recorder (pid {pid}) has kept nothing for {} s; what it wrote to its standard error has \
             the reason",
            PATIENCE.as_secs()
        );
        std::thread::sleep(POLL);
    }
}
