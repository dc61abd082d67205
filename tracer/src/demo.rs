//! `gctrace demo`: records and explains a training program on a simulated GPU.
//!
//! Owns its directory. Runs `gctrace record`, `gctrace analyze` and `gctrace auto` as a user would.

use crate::args::DemoConfig;
use crate::invoker::Invoker;
use crate::launch::LaunchPlan;
use crate::record::mode;
use crate::variables::{VariableEffect, temporary_directory, variable};
use crate::{output, print};
use anyhow::Context as _;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The training program, a link to `examples/`.
const PROGRAM: &str = include_str!("demo/train_simgpu.py");

/// File name of the program.
const PROGRAM_NAME: &str = "train_simgpu.py";

/// Interpreter that runs it.
const PYTHON: &str = "python3";

/// Options of `gctrace auto`. Before CPython 3.12 the function is not seen, and time is compared. Garbage that waits holds
/// several times the tensors that live, of a simulated GPU that has 16 GiB: with 25 % more auto gives up.
const AUTO: [&str; 9] =
    ["auto", "--step-function", "train_step", "--wait", "2s", "--memory", "400%", "--force", "-o"];
/// File name of its results.
const FOUND_NAME: &str = "demo-auto.json";
/// Steps that it needs, twice: it decides within some thousand.
const AUTO_STEPS: u32 = 8_000;
/// With these the GPU waits for the program, so that a step is as long as its CPU time; fewer new samples
/// in a step keep the longer run below a gigabyte.
const HOST_BOUND: [&str; 4] = ["--kernel-us", "1", "--copies", "100"];
const AUTO_HEAD: &str = "
The same program under gctrace auto, with more steps and kernels so short that the GPU waits for the
program: a setting is sought, proven and held while it runs (--memory 400%: its garbage holds the GPU's memory).
";

/// A temporary directory, removed on drop.
struct DemoDir(PathBuf);

impl DemoDir {
    fn new() -> anyhow::Result<Self> {
        let parent = temporary_directory();
        let path = nix::unistd::mkdtemp(&parent.join("gctrace-demo-XXXXXX"))
            .with_context(|| format!("cannot create a directory in {}", parent.display()))?;
        Ok(Self(path))
    }
}

impl Drop for DemoDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Sets up the simulated GPU, records and analyzes. Returns the exit code of the first part that
/// failed, or 0.
///
/// # Errors
/// No recording mode is possible, the simulated GPU is not installed, or the directory cannot be
/// written.
pub(crate) fn run(config: &DemoConfig) -> anyhow::Result<u8> {
    // Fail early, with an error about this command and not about one in the temporary directory.
    possible()?;
    let folder = DemoDir::new()?;
    let program = lay_out(&folder.0)?;
    print::answer(
        "The GPU of this demo is simulated: kernels take a set time and compute nothing.\n",
    )?;
    let gctrace = std::env::current_exe().context("cannot find gctrace's own file")?;
    let with_simulated_gpu = |command: &mut Command| {
        command
            .env("GCTRACE_NVML", folder.0.join("libnvidia-ml.so.1"))
            .env("LD_LIBRARY_PATH", search_path(&folder.0));
    };
    let mut record = Command::new(&gctrace);
    with_simulated_gpu(record.args(["record", "-o"]).arg(&config.output).arg("--"));
    let recorded = run_to_end(record.args(command(&program, &folder.0, config.steps)))?;
    if recorded != 0 {
        return Ok(recorded);
    }
    keep_program(config);
    print::answer("\n")?;
    let explained = run_to_end(Command::new(&gctrace).arg("analyze").arg(&config.output))?;
    if explained != 0 || !config.auto {
        return Ok(explained);
    }
    print::answer(AUTO_HEAD)?;
    let mut auto = Command::new(&gctrace);
    let found = config.output.with_file_name(FOUND_NAME);
    with_simulated_gpu(auto.args(AUTO).arg(found).arg("--"));
    run_to_end(auto.args(command(&program, &folder.0, AUTO_STEPS)).args(HOST_BOUND))
}

/// Copies the program next to its trace, so that the report's lines can be looked up. Does not
/// overwrite.
fn keep_program(config: &DemoConfig) {
    let path = config.output.with_file_name(PROGRAM_NAME);
    match output::write_file(&path, &[], false, PROGRAM) {
        Ok(()) => print::message(format!("the demo program is {}", path.display())),
        Err(error) => tracing::info!("the demo program was not copied: {error:#}"),
    }
}

/// Fails if no recording mode is possible.
fn possible() -> anyhow::Result<()> {
    let config = crate::args::usual_recording(PYTHON);
    let launch = LaunchPlan::new(&[PYTHON.into()], &Invoker::detect(), false);
    mode::decide(&config, Some(&launch)).map(drop)
}

/// `LD_LIBRARY_PATH`: gctrace searches it for the program's CUDA, and the injected library for CUPTI.
fn search_path(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(variable) = variable("LD_LIBRARY_PATH", VariableEffect::Place)
        && !variable.is_empty()
    {
        path.push(":");
        path.push(variable);
    }
    path
}

/// Copies the libraries and the program, world-readable, as under sudo the program runs as the user.
#[expect(
    clippy::disallowed_methods,
    reason = "in a directory of its own; no other user can write to it yet"
)]
fn lay_out(folder: &Path) -> anyhow::Result<PathBuf> {
    gctrace_simgpu::lay_out_contents(&crate::launch::simulator()?, folder)?;
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
    // Sticky, like directories for temporary files: users can remove their own files only.
    write(&shared, 0o1777)?;
    Ok(program)
}

fn command(program: &Path, folder: &Path, steps: u32) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec![PYTHON.into(), program.into(), "--library".into()];
    command.push(folder.into());
    command.extend(["--steps".into(), steps.to_string().into()]);
    command
}

fn run_to_end(command: &mut Command) -> anyhow::Result<u8> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(code(status))
}

fn code(status: ExitStatus) -> u8 {
    if let Some(Ok(code)) = status.code().map(u8::try_from) { code } else { 1 }
}
