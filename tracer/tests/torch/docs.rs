//! Torch tier: the commands in the documents on launchers and schedulers, with the real ones.

#![expect(clippy::expect_used, reason = "helpers of tests, outside of #[test]")]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use test_kit::docs;
use test_kit::docs::Shell;
use test_kit::limit::WithTimeout as _;

/// A path in this variable of the environment, which `scripts/test.sh` sets, or a named skip.
fn path_of(test: &str, variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    if value.is_none() {
        eprintln!("skipped {test}: {variable} is not set");
    }
    value.map(PathBuf::from)
}

/// Puts the virtual environment of a Python first, for an ordinary user.
fn use_environment(shell: &mut Shell, python: &Path) {
    let bin = python.parent().expect("a file is in a folder");
    shell.path.push(bin.to_owned());
    let environment = bin.parent().expect("bin is in a folder").to_owned();
    shell.ordinary_user = Some(vec![environment]);
}

/// Slurm's controller and its nodes, which are on this machine with host names of their own.
struct Slurm(Child);

impl Slurm {
    fn start(shell: &Shell) -> Self {
        let folder = shell.work.parent().expect("a folder").join("slurm");
        std::fs::create_dir(&folder).expect("a new folder");
        let log = std::fs::File::create(folder.join("daemons.log")).expect("a log");
        let mut command = shell.command("exec slurmd.sh ../slurm node1 node2");
        command.process_group(0).stdout(log.try_clone().expect("a log"));
        let started = Self(command.stderr(log).spawn().expect("bash"));
        let waited = shell
            .command(
                "for n in {1..60}; do if timeout 3 srun --nodes 2 --immediate=1 true; then exit; fi
                sleep 0.2; done; cat ../slurm/*.log; exit 1",
            )
            .output_in_time()
            .expect("bash");
        assert!(waited.status.success(), "{waited:?}");
        started
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // The daemons end with the script: they have its death as their signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn commands_of_torch() {
    let Some(python) = path_of("commands_of_torch", "GCTRACE_TORCH_PYTHON") else {
        return;
    };
    docs::run("torch", |shell| {
        shell.add("torch");
        use_environment(shell, &python);
    });
}

#[test]
fn commands_of_slurm() {
    let test = "commands_of_slurm";
    let python = path_of(test, "GCTRACE_TORCH_PYTHON");
    let (Some(python), Some(schedulers)) = (python, path_of(test, "GCTRACE_SCHEDULERS")) else {
        return;
    };
    // Otherwise its daemons need munge's, which needs a user of its own.
    let plugin = "usr/lib/x86_64-linux-gnu/slurm-wlm/auth_none.so";
    if !schedulers.join(plugin).exists() {
        eprintln!("skipped {test}: this Slurm has no authentication plugin `none`");
        return;
    }
    docs::run("slurm", |shell| {
        shell.add("slurm");
        use_environment(shell, &python);
        let schedulers = schedulers.display().to_string();
        shell.variables.push(("SCHEDULERS".to_owned(), schedulers));
        let configuration = shell.work.with_file_name("slurm").join("slurm.conf");
        let configuration = configuration.display().to_string();
        shell.variables.push(("SLURM_CONF".to_owned(), configuration));
        // Slurm's nodes change host names.
        shell.ordinary_user = None;
        Slurm::start(shell)
    });
}

#[test]
fn commands_of_mpirun() {
    let Some(schedulers) = path_of("commands_of_mpirun", "GCTRACE_SCHEDULERS") else {
        return;
    };
    docs::run("mpi", |shell| {
        shell.add("mpi");
        shell.ordinary_user = Some(vec![schedulers.clone()]);
        let schedulers = schedulers.display().to_string();
        shell.variables.push(("SCHEDULERS".to_owned(), schedulers));
    });
}

#[test]
fn commands_of_ray() {
    let Some(python) = path_of("commands_of_ray", "GCTRACE_RAY_PYTHON") else {
        return;
    };
    docs::run("ray", |shell| {
        shell.add("ray");
        use_environment(shell, &python);
    });
}
