//! `gctrace demo`: records and explains a training program on a simulated GPU.
//!
//! Owns the folder in which it runs. Recording and explaining are those of everyone else: gctrace is started as
//! a user would start it.

use crate::args::DemoConfig;
use crate::files::write_export;
use crate::launch::Invoker;
use crate::launch::LaunchPlan;
use crate::print;
use crate::record::mode;
use crate::variables::VariableEffect;
use crate::variables::temporary_directory;
use crate::variables::variable;
use anyhow::Context as _;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// The training program, as it is in `examples/`.
const PROGRAM: &str = include_str!("../../examples/train_simgpu.py");

/// Its name.
const PROGRAM_NAME: &str = "train_simgpu.py";

/// What runs it.
const PYTHON: &str = "python3";

/// A folder of its own under the system's for temporary files, removed when dropped.
struct DemoDir(PathBuf);

impl DemoDir {
    fn new() -> anyhow::Result<Self> {
        let parent = temporary_directory();
        let path = nix::unistd::mkdtemp(&parent.join("gctrace-demo-XXXXXX"))
            .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        Ok(Self(path))
    }
}

impl Drop for DemoDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} is left behind: {error}", self.0.display());
        }
    }
}

/// Lays out the simulated GPU, records, explains. Returns the exit code: that of the first part that failed.
///
/// # Errors
/// Where neither the kernel nor the program lets gctrace record, when the simulated GPU was not built, or the folder cannot be written.
pub(crate) fn run(config: &DemoConfig) -> anyhow::Result<u8> {
    // Said of this command, before anything is made, and not of the one in a folder that is gone by then.
    possible()?;
    let folder = DemoDir::new()?;
    let program = lay_out(&folder.0)?;
    say(
        "The GPU of this demonstration is simulated: its kernels take the time that they are told, nothing is computed.\n",
    )?;
    let gctrace = std::env::current_exe().context("cannot find gctrace's own file")?;
    let mut record = Command::new(&gctrace);
    record
        .args(["record", "-o"])
        .arg(&config.output)
        .arg("--")
        .args(command(&program, &folder.0, config))
        .env("GCTRACE_NVML", folder.0.join("libnvidia-ml.so.1"))
        .env("LD_LIBRARY_PATH", search_path(&folder.0));
    let recorded = code(&mut record)?;
    if recorded != 0 {
        return Ok(recorded);
    }
    keep_program(config);
    say("\n")?;
    code(Command::new(&gctrace).arg("analyze").arg(&config.output))
}

/// The program beside its trace, so that the lines of the report can be looked up. A file that is there stays.
fn keep_program(config: &DemoConfig) {
    let path = config.output.with_file_name(PROGRAM_NAME);
    let write = |out: &mut dyn std::io::Write| out.write_all(PROGRAM.as_bytes());
    match write_export(&path, &Invoker::detect(), &[], false, &write) {
        Ok(()) => print::message(format!(
            "the program of the demonstration is {}",
            path.display()
        )),
        Err(error) => tracing::info!("the program is not kept: {error:#}"),
    }
}

/// On standard output; a reader that is gone misses nothing.
fn say(text: &str) -> anyhow::Result<()> {
    print::unless_closed(print::answer(text)).context("cannot write to standard output")
}

/// Whether a command can be recorded at all, in one way or the other.
fn possible() -> anyhow::Result<()> {
    let config = crate::args::usual_recording(PYTHON);
    let launch = LaunchPlan::new(&[PYTHON.into()], &Invoker::detect(), false);
    mode::decide(&config, Some(&launch)).map(drop)
}

/// There the program's CUDA is looked for by gctrace, and CUPTI by what gctrace loads into the program.
fn search_path(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(own) =
        variable("LD_LIBRARY_PATH", VariableEffect::Place).filter(|own| !own.is_empty())
    {
        path.push(":");
        path.push(own);
    }
    path
}

/// The libraries, and the program beside them; everyone may read them: under sudo the program runs as the user.
#[expect(
    clippy::disallowed_methods,
    reason = "in a folder of its own, which nobody else can write to before"
)]
fn lay_out(folder: &Path) -> anyhow::Result<PathBuf> {
    let library = gctrace_simgpu::find_library()?;
    gctrace_simgpu::lay_out(&library, folder)?;
    let program = folder.join(PROGRAM_NAME);
    let write = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    std::fs::write(&program, PROGRAM)
        .with_context(|| format!("cannot write {}", program.display()))?;
    let shared = folder.join("shared");
    std::fs::create_dir_all(&shared)
        .with_context(|| format!("cannot write {}", shared.display()))?;
    write(folder, 0o755)?;
    write(&program, 0o644)?;
    // As of folders for temporary files: each may make files there and remove none but its own.
    write(&shared, 0o1777)?;
    Ok(program)
}

fn command(program: &Path, folder: &Path, config: &DemoConfig) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec![PYTHON.into(), program.into(), "--library".into()];
    command.push(folder.into());
    command.extend(["--steps".into(), config.steps.to_string().into()]);
    command
}

fn code(command: &mut Command) -> anyhow::Result<u8> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}
