//! Each row: what was asked for, what there is, what follows.

use super::*;
use crate::args::usual_recording;
use crate::launch::Obstacle;
use crate::launch::What;
use crate::privileges;

fn asked(mode: Mode) -> RecordConfig {
    RecordConfig {
        mode,
        ..usual_recording("python")
    }
}

fn attach(mode: Mode) -> RecordConfig {
    RecordConfig {
        target: Target::Process {
            pid: 12,
            duration: None,
        },
        ..asked(mode)
    }
}

/// A privileged process without CUDA, and a library that can be used.
fn facts() -> Facts {
    Facts {
        no_probes: None,
        cuda: None,
        foreign_injection: None,
        library: Some(Ok("/l/libgctrace_inject.so".into())),
        obstacles: Vec::new(),
    }
}

fn unprivileged() -> Facts {
    Facts {
        no_probes: Some(NoProbes::Denied(privileges::ordinary_user())),
        ..facts()
    }
}

fn with_cuda() -> Facts {
    Facts {
        cuda: Some("/usr/lib/libcuda.so.1".into()),
        ..facts()
    }
}

fn no_library(facts: Facts) -> Facts {
    Facts {
        library: Some(Err(LibraryError::NotFound {
            searched: vec!["/opt".into()],
        })),
        ..facts
    }
}

fn obstacle(what: What) -> Vec<Obstacle> {
    vec![Obstacle {
        file: "/bin/x".into(),
        what,
    }]
}

/// What is used, in few words: `probes`, `probes+gpu`, `injected`, `both`; or the error.
fn outcome(config: &RecordConfig, facts: &Facts) -> String {
    match choose(config, facts) {
        Ok(decision) => {
            let by = match (decision.collections, &decision.injection) {
                (Collections::Probes, None) => "probes",
                (Collections::Probes, Some(_)) => "probes+gpu",
                (Collections::Injected, _) => "injected",
                (Collections::Both, _) => "both",
            };
            let injects = decision.injection.map(|injection| injection.options);
            assert_eq!(
                injects.is_some_and(|options| options.collections),
                decision.collections != Collections::Probes
            );
            format!("{by}, {} notes", decision.notes.len())
        }
        Err(error) => match error {
            Refused::Denied { .. } => "denied".to_owned(),
            Refused::Kernel { .. } => "kernel".to_owned(),
            Refused::Attach { .. } => "attach".to_owned(),
            Refused::Library(_) => "library".to_owned(),
            Refused::Command { .. } => "command".to_owned(),
        },
    }
}

#[test]
fn a_command_is_recorded_by_what_there_is() {
    let seccomp = Facts {
        no_probes: Some(NoProbes::Kernel("it refuses".into())),
        ..facts()
    };
    let rows = [
        (Mode::Auto, facts(), "probes, 0 notes"),
        (Mode::Auto, with_cuda(), "probes+gpu, 0 notes"),
        (Mode::Auto, no_library(facts()), "probes, 0 notes"),
        (Mode::Auto, no_library(with_cuda()), "probes, 1 notes"),
        (Mode::Auto, unprivileged(), "injected, 0 notes"),
        (Mode::Auto, seccomp.clone(), "injected, 0 notes"),
        (Mode::Auto, no_library(unprivileged()), "denied"),
        (Mode::Auto, no_library(seccomp.clone()), "kernel"),
        (Mode::Ebpf, facts(), "probes, 0 notes"),
        (Mode::Ebpf, with_cuda(), "probes, 0 notes"),
        (Mode::Ebpf, unprivileged(), "denied"),
        (Mode::Inject, facts(), "injected, 0 notes"),
        (Mode::Inject, unprivileged(), "injected, 0 notes"),
        (Mode::Inject, no_library(facts()), "library"),
        (Mode::Both, facts(), "both, 0 notes"),
        (Mode::Both, seccomp, "both, 0 notes"),
        (Mode::Both, unprivileged(), "denied"),
        (Mode::Both, no_library(facts()), "library"),
    ];
    for (mode, facts, expected) in rows {
        assert_eq!(
            outcome(&asked(mode), &facts),
            expected,
            "{mode:?} {facts:?}"
        );
    }
}

#[test]
fn a_running_process_is_recorded_from_the_kernel_alone() {
    let rows = [
        (Mode::Auto, facts(), "probes, 0 notes"),
        (Mode::Auto, unprivileged(), "denied"),
        (Mode::Ebpf, facts(), "probes, 0 notes"),
        (Mode::Ebpf, unprivileged(), "denied"),
        (Mode::Inject, facts(), "attach"),
        (Mode::Both, facts(), "attach"),
        (Mode::Both, unprivileged(), "attach"),
    ];
    for (mode, facts, expected) in rows {
        let facts = Facts {
            library: None,
            ..facts
        };
        assert_eq!(outcome(&attach(mode), &facts), expected, "{mode:?}");
    }
}

#[test]
fn what_keeps_the_library_out() {
    let with = |facts: Facts, what| Facts {
        obstacles: obstacle(what),
        ..facts
    };
    let drops = || What::Drops("sudo".into());
    let rows = [
        (Mode::Inject, with(facts(), What::StaticPython), "command"),
        (
            Mode::Inject,
            with(facts(), What::OtherRights("setuid")),
            "command",
        ),
        (
            Mode::Inject,
            with(facts(), What::Static),
            "injected, 1 notes",
        ),
        (Mode::Inject, with(facts(), drops()), "injected, 1 notes"),
        (Mode::Both, with(facts(), What::StaticPython), "command"),
        (
            Mode::Auto,
            with(unprivileged(), What::Musl("/lib/ld-musl".into())),
            "denied",
        ),
        (
            Mode::Auto,
            with(unprivileged(), drops()),
            "injected, 1 notes",
        ),
        (
            Mode::Auto,
            with(with_cuda(), What::StaticPython),
            "probes, 1 notes",
        ),
        (
            Mode::Auto,
            with(with_cuda(), drops()),
            "probes+gpu, 1 notes",
        ),
    ];
    for (mode, facts, expected) in rows {
        assert_eq!(
            outcome(&asked(mode), &facts),
            expected,
            "{mode:?} {facts:?}"
        );
    }
    let alone = RecordConfig {
        follow: false,
        ..asked(Mode::Inject)
    };
    assert_eq!(outcome(&alone, &with(facts(), What::Static)), "command");
}

#[test]
fn the_library_is_asked_for_what_was_asked() {
    let options = |config: &RecordConfig, facts: &Facts| {
        let decision = choose(config, facts).expect("a decision");
        decision.injection.expect("an injection").options
    };
    let all = RecordConfig {
        alloc_budget: Some(0.01),
        stack_depth: 3,
        follow: false,
        gpu_yield: true,
        cuda: CudaMode::Sync,
        ..asked(Mode::Inject)
    };
    let expected = Options {
        collections: true,
        stack_depth: 3,
        allocations: true,
        cuda: true,
        only_waits: true,
        yields: true,
        gpu_records: 1 << 18,
        follow: false,
        ..Options::default()
    };
    assert_eq!(options(&all, &facts()), expected);
    let both = RecordConfig {
        mode: Mode::Both,
        ..all
    };
    assert!(!options(&both, &facts()).allocations);
    let gpu = options(&asked(Mode::Auto), &with_cuda());
    assert!(!gpu.collections && !gpu.allocations && gpu.cuda && gpu.follow);
    let off = RecordConfig {
        cuda: CudaMode::Off,
        ..asked(Mode::Inject)
    };
    assert!(!options(&off, &facts()).cuda);
}

#[test]
fn cupti_is_left_to_who_has_it() {
    let yielding = RecordConfig {
        gpu_yield: true,
        ..asked(Mode::Auto)
    };
    assert_eq!(outcome(&yielding, &with_cuda()), "probes, 0 notes");
    let facts = Facts {
        foreign_injection: Some("/opt/nsys/inject.so".into()),
        ..with_cuda()
    };
    assert_eq!(outcome(&asked(Mode::Auto), &facts), "probes+gpu, 1 notes");
    let decision = choose(&asked(Mode::Inject), &facts).expect("a decision");
    assert!(decision.notes[0].contains("/opt/nsys/inject.so"));
}

#[test]
fn what_is_said() {
    let texts = [
        choose(&asked(Mode::Auto), &unprivileged())
            .expect("a decision")
            .opening
            .expect("one line")
            .to_string(),
        refusal(&asked(Mode::Ebpf), &unprivileged()),
        refusal(&attach(Mode::Auto), &unprivileged()),
        refusal(&asked(Mode::Auto), &no_library(unprivileged())),
        refusal(&attach(Mode::Inject), &facts()),
        refusal(
            &asked(Mode::Inject),
            &Facts {
                obstacles: obstacle(What::StaticPython),
                ..facts()
            },
        ),
    ];
    // Where others may write /usr/local, the other place is named.
    let texts = texts.join("\n\n");
    insta::assert_snapshot!(texts.replace(" /usr/lib/gctrace", " /usr/local/lib/gctrace"));
}

fn refusal(config: &RecordConfig, facts: &Facts) -> String {
    let refused = choose(config, facts).expect_err("refused");
    format!("gctrace: {refused}\n{}", refused.remedy())
}
