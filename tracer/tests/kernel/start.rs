//! Kernel tier: every way of starting Python, from its very first collection on.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// Collects, and writes what the interpreter counted; later, only the shutdown collects.
const PROGRAM: &str = "
import gc, json, os
for _ in range(5): gc.collect()
gc.set_threshold(1 << 30, 1 << 30, 1 << 30)
with open('truth.json', 'w') as file: json.dump({'pid': os.getpid(), 'stats': gc.get_stats()}, file)
";

/// Records a command line and compares with what its Python wrote.
fn complete(place: &Path, command: &[&str]) {
    let mut line = vec!["--"];
    line.extend(command);
    let output = recording::gctrace(&line, place);
    assert!(output.status.success(), "{command:?}: {output:?}");
    let trace = Trace::read(&place.join("trace.json"));
    trace.assert_nothing_lost();
    let truth = recording::json(&place.join("truth.json"));
    let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
    let pauses = pauses.iter().filter(|pause| pause.reason != "shutdown");
    assert_eq!(
        recording::by_generation(pauses),
        recording::stats(&truth, "collections"),
        "{command:?}"
    );
}

#[test]
fn shebangs_shells_and_virtual_environments() {
    let Some((python, place)) = recording::place_for("shebangs_shells_and_virtual_environments")
    else {
        return;
    };
    let (place, python) = (place.path(), python.to_str().unwrap());
    fs::write(place.join("program.py"), PROGRAM).unwrap();
    for (name, first_line) in
        [("direct.py", format!("#!{python}")), ("env.py", "#!/usr/bin/env python3".to_owned())]
    {
        let script = place.join(name);
        fs::write(&script, format!("{first_line}\n{PROGRAM}")).unwrap();
        fs::set_permissions(script, PermissionsExt::from_mode(0o755)).unwrap();
    }
    complete(place, &[python, "program.py"]);
    complete(place, &["./direct.py"]);
    complete(place, &["./env.py"]);
    complete(place, &["env", "GREETING=hello", python, "program.py"]);
    complete(place, &["bash", "-c", &format!("true; {python} program.py; true")]);
    complete(place, &["sh", "-c", &format!("exec {python} program.py")]);
    complete(place, &["nice", "setsid", "--wait", python, "program.py"]);
    if Command::new(python)
        .args(["-m", "venv", "--without-pip", "venv"])
        .current_dir(place)
        .status_in_time()
        .unwrap()
        .success()
    {
        complete(place, &["venv/bin/python", "program.py"]);
    } else {
        eprintln!(
            "skipped shebangs_shells_and_virtual_environments: {python} makes no virtual environment"
        );
    }
}

/// A program in C that loads a libpython while it is running, like plug-in hosts.
const HOST: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    usleep(300000);
    void *library = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
    if (count != 3 || !library) { fprintf(stderr, "%s\n", dlerror()); return 9; }
    void (*begin)(void) = (void (*)(void))dlsym(library, "Py_Initialize");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
    begin();
    return run(words[2], 0);
}
"#;

#[test]
fn a_library_loaded_late_is_complete() {
    let test = "a_library_loaded_late_is_complete";
    let Some((_, place)) = recording::place_for(test) else {
        return;
    };
    let shared =
        ["pyenv-3.12", "pyenv-3.11"].iter().find_map(|name| interpreters::python(test, name));
    let Some(library) = shared.and_then(|python| libpython_of(&python.path)) else {
        return;
    };
    let place = place.path();
    fs::write(place.join("host.c"), HOST).unwrap();
    let built = Command::new("cc")
        .args(["-o", "host", "host.c", "-ldl"])
        .current_dir(place)
        .output_in_time();
    match built {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => {
            eprintln!("skipped {test}: cc: {error}");
            return;
        }
    }
    let home = Path::new(&library).parent().unwrap().parent().unwrap();
    complete(
        place,
        &["env", &format!("PYTHONHOME={}", home.display()), "./host", &library, PROGRAM],
    );
    let trace = Trace::read(&place.join("trace.json"));
    let processes = &trace.end()["processes"];
    assert_eq!(processes["python"], 1, "{processes}");
    assert!(
        processes["unexamined"].is_null() || processes["unexamined"] == serde_json::json!({}),
        "{processes}"
    );
}

fn libpython_of(python: &Path) -> Option<String> {
    let code =
        "print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libpython' in line))";
    let output = Command::new(python).args(["-c", code]).output_in_time().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// gctrace is stopped while it has a program stopped at exec, and then killed: the guardian resumes
/// the program.
#[test]
fn the_guardian_resumes_stopped_programs() {
    let Some((python, place)) = recording::place_for("the_guardian_resumes_stopped_programs")
    else {
        return;
    };
    let place = place.path().canonicalize().unwrap();
    // A copy that the command line does not name: interpreters named there are probed before the
    // command starts.
    let copy = place.join("interpreter");
    fs::copy(python, &copy).unwrap();
    let line = "touch started; while [ ! -e go ]; do sleep 0.01; done; exec \"$OWN\" -c 'open(\"ended\", \"w\")'";
    let mut gctrace = Command::new(recording::binary())
        .args(["--", "sh", "-c", line])
        .env("OWN", copy)
        .env("PYTHONHOME", "/usr")
        .current_dir(&place)
        .spawn()
        .unwrap();
    recording::wait_until("started", || place.join("started").exists());
    let pid = Pid::from_raw(i32::try_from(gctrace.id()).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    fs::write(place.join("go"), "").unwrap();
    recording::wait_until("the program is stopped", || held(&place, gctrace.id()));
    kill(pid, Signal::SIGKILL).unwrap();
    gctrace.status_in_time().unwrap();
    recording::wait_until("the program was resumed", || place.join("ended").exists());
}

/// Whether a process other than gctrace, with this working directory, is stopped.
fn held(place: &Path, gctrace: u32) -> bool {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != gctrace)
        .filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == place))
        .any(|pid| {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
        })
}
