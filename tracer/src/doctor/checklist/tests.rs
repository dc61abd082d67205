//! Checklists of fixed facts.

use super::*;
use crate::args::usual_recording;
use crate::doctor::machine::{GpuFacts, InProcessFacts};
use crate::launch::LibraryError;
use crate::privileges::Capabilities;
use crate::record::mode;
use crate::record::mode::NoProbes;
use gctrace_ebpf::KernelSupport;
use gctrace_event::{CollectorKind, Counter, GpuDevice};
use gctrace_probes::nvml::NvmlError;
use gctrace_probes::{
    ProbePoint, ProbePointKind, PythonVersion, Resolution, SearchStrategy, StrategyOutcome,
};
use std::path::PathBuf;

fn good_machine() -> HostFacts {
    HostFacts {
        kernel: KernelSupport {
            release: "6.18.5".into(),
            machine: "x86_64".into(),
            btf: true,
            ring_buffer: true,
            cookie: true,
            uprobe_multi: true,
            process_filter: true,
            uprobe_session: true,
            stops_children: true,
            loops: true,
            send_signal: true,
            perf_events: true,
            uprobe_events: true,
            permitted: true,
        },
        rights: PrivilegeFacts {
            user: "root".into(),
            group: "root".into(),
            effective: Capabilities(u64::MAX),
            bounding: Capabilities(u64::MAX),
            newest_capability: Some(40),
            no_new_privileges: false,
            foreign_user_namespace: false,
            foreign_pid_namespace: false,
            container: None,
            lockdown: Lockdown::Off,
            executable: "/usr/local/bin/gctrace".into(),
            on_nosuid_mount: false,
            arguments: vec!["doctor".into()],
        },
        perf_event_paranoid: Some(2),
        locked_memory: Some(8 << 20),
        counters: vec![(Counter::Cycles, Ok(())), (Counter::BranchMisses, Ok(()))],
        gpus: Ok(GpuFacts {
            driver: Some("570.86.10".into()),
            nvml: Some("12.570.86.10".into()),
            devices: vec![GpuDevice {
                name: Some("NVIDIA H100 80GB HBM3".into()),
                ..GpuDevice::default()
            }],
        }),
        replaceable: None,
        within: within(None),
    }
}

/// Facts with a library, a driver and CUPTI, with or without kernel probes.
fn within(no_probes: Option<NoProbes>) -> InProcessFacts {
    let library: PathBuf = "/usr/local/lib/gctrace/libgctrace_inject.so".into();
    let driver: PathBuf = "/usr/lib/x86_64-linux-gnu/libcuda.so.1".into();
    let facts = mode::ModeFacts {
        no_probes,
        cuda: Some(driver.clone()),
        foreign_injection: None,
        library: Some(Ok(library.clone())),
        obstacles: vec![],
    };
    InProcessFacts {
        library: Ok(library),
        cuda: Some(driver),
        cupti: vec!["/venv/nvidia/cuda_cupti/lib/libcupti.so.12".into()],
        choice: mode::choose(&usual_recording("python3"), &facts),
    }
}

/// Facts without a library.
fn nothing(no_probes: NoProbes) -> InProcessFacts {
    let error = LibraryError::Unusable {
        path: "/opt/libgctrace_inject.so".into(),
        reason: "it is not a file".into(),
    };
    let facts = mode::ModeFacts {
        no_probes: Some(no_probes),
        cuda: None,
        foreign_injection: None,
        library: Some(Err(error.clone())),
        obstacles: vec![],
    };
    InProcessFacts {
        library: Err(error),
        cuda: None,
        cupti: vec![],
        choice: mode::choose(&usual_recording("python3"), &facts),
    }
}

fn kernel_refuses() -> NoProbes {
    NoProbes::Kernel("the kernel refuses".into())
}

/// Debian's interpreter, with made-up numbers.
fn resolution() -> Resolution {
    let point = |kind, function: &str, offset, instruction: &str, emulated| ProbePoint {
        arguments: Default::default(),
        kind,
        function: function.into(),
        address: 0x5a_1000,
        offset_in_function: offset,
        file_offset: 0x1a_1000 + offset,
        probe_address: 0x5a_1000 + offset,
        instruction: instruction.into(),
        emulated,
        semaphore_file_offset: None,
    };
    let outcome =
        |rung, found, detail: &str| StrategyOutcome { rung, found, detail: detail.into() };
    Resolution {
        file: "/usr/bin/python3.11".into(),
        build_id: Some("0123456789abcdef".into()),
        version: PythonVersion { major: 3, minor: 11, micro: Some(2), level: String::new() },
        free_threaded: false,
        collector: CollectorKind::Generational,
        rung: SearchStrategy::CodeAnalysis,
        tried: vec![
            outcome(SearchStrategy::SymbolTable, false, "no .symtab"),
            outcome(SearchStrategy::CodeAnalysis, true, "1 function"),
        ],
        points: vec![
            point(ProbePointKind::Collect, "gc_collect_main", 4, "push r15", true),
            point(ProbePointKind::GcCollectBuiltin, "gc_collect", 0, "sub rsp, 8", false),
        ],
        layout: None,
        frames: None,
        objects: None,
        runtime: 0x90_0000,
        lowest_address: 0x40_0000,
        warnings: vec![],
    }
}

fn interpreters() -> FoundInterpreters {
    let interpreter =
        |file: &str, seen_in: &[&'static str], pids: &[u32], outcome| InterpreterFile {
            file: file.into(),
            seen_in: seen_in.iter().copied().collect(),
            pids: pids.to_vec(),
            outcome,
        };
    FoundInterpreters {
        interpreters: vec![
            interpreter(
                "/usr/bin/python3.11",
                &["PATH", "venv"],
                &[12, 13, 14, 15, 16, 17],
                Ok(resolution()),
            ),
            interpreter(
                "/opt/odd/python3",
                &["conda"],
                &[],
                Err("contains CPython 3.7; gctrace supports 3.8 to 3.15".into()),
            ),
        ],
        hidden_processes: 0,
    }
}

#[test]
fn everything_is_there() {
    let list = draw(&good_machine(), &interpreters());
    assert!(list.recording_works());
    insta::assert_snapshot!(list.to_string());
}

#[test]
fn an_old_kernel() {
    let mut machine = good_machine();
    machine.kernel.release = "5.10.0".into();
    machine.kernel.cookie = false;
    machine.kernel.uprobe_multi = false;
    machine.kernel.loops = false;
    machine.kernel.btf = false;
    machine.perf_event_paranoid = None;
    machine.locked_memory = None;
    machine.gpus = Err(NvmlError::NoLibrary {
        library: "libnvidia-ml.so.1".into(),
        reason: "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
            .into(),
    });
    machine.within = nothing(kernel_refuses());
    let list = draw(&machine, &FoundInterpreters::default());
    assert!(!list.recording_works());
    // Where others may write to /usr/local, /usr/lib is suggested.
    let text = list.to_string();
    insta::assert_snapshot!(text.replace(" /usr/lib/gctrace", " /usr/local/lib/gctrace"));
}

#[test]
fn without_privileges() {
    let mut machine = good_machine();
    machine.kernel = KernelSupport {
        ring_buffer: false,
        cookie: false,
        uprobe_multi: false,
        loops: false,
        send_signal: false,
        permitted: false,
        ..machine.kernel
    };
    machine.rights.user = "alice".into();
    machine.rights.effective = Capabilities(0);
    let mut found = interpreters();
    found.interpreters.truncate(1);
    found.hidden_processes = 31;
    let denied = PrivilegeError::from_facts(machine.rights.clone()).expect("denied");
    machine.within = within(Some(NoProbes::Denied(denied)));
    machine.within.cupti.clear();
    let list = draw(&machine, &found);
    assert!(list.recording_works(), "in-process");
    insta::assert_snapshot!(list.to_string());
}

#[test]
fn a_container_with_a_seccomp_filter() {
    let mut machine = good_machine();
    machine.kernel.permitted = false;
    machine.rights.container = Some("docker".into());
    machine.rights.lockdown = Lockdown::Integrity;
    machine.gpus = Err(NvmlError::NoDriver { library: "libnvidia-ml.so.1".into() });
    machine.within = within(Some(kernel_refuses()));
    machine.within.cuda = None;
    let list = draw(&machine, &FoundInterpreters::default());
    assert!(list.recording_works(), "in-process");
    insta::assert_snapshot!(list.to_string());
}

#[test]
fn one_interpreter_explained() {
    insta::assert_snapshot!(explain::resolution(&resolution()));
}

#[test]
fn missing_counters_are_named_and_do_not_stop_a_recording() {
    let value = |counters: Vec<(Counter, Result<(), CounterError>)>| {
        let machine = HostFacts { counters, ..good_machine() };
        let line = processor_counters(&machine);
        assert!(draw(&machine, &interpreters()).recording_works());
        (line.verdict, line.value)
    };
    let (verdict, text) = value(vec![(Counter::Cycles, Err(CounterError::NoUnit))]);
    assert_eq!(verdict, CheckStatus::Note);
    assert!(text.starts_with("none: no hardware PMU"), "{text}");
    let (verdict, text) = value(vec![
        (Counter::Cycles, Ok(())),
        (Counter::LlcLoadMisses, Err(CounterError::NotInUnit { cpu: 0 })),
    ]);
    assert_eq!((verdict, text.as_str()), (CheckStatus::Note, "all but LLC-load-misses"));
    let (verdict, _) = value(vec![(Counter::Cycles, Err(CounterError::Denied))]);
    assert_eq!(verdict, CheckStatus::Unknown);
}
