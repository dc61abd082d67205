//! Each row: the request, the facts, the decision.

use super::*;
use crate::args::usual_recording;
use crate::launch::{ObstacleKind, PreloadObstacle};
use crate::privileges;

fn asked(mode: RecordMode) -> RecordConfig {
    changed(usual_recording("python"), |config| config.sources.mode = mode)
}

fn changed(mut config: RecordConfig, change: impl Fn(&mut RecordConfig)) -> RecordConfig {
    change(&mut config);
    config
}

fn attach(mode: RecordMode) -> RecordConfig {
    RecordConfig { target: RecordTarget::Process(12), ..asked(mode) }
}

/// A privileged process without CUDA, and a usable library.
fn facts() -> ModeFacts {
    ModeFacts {
        no_probes: None,
        cuda: None,
        foreign_injection: None,
        library: Some(Ok("/l/libgctrace_inject.so".into())),
        obstacles: Vec::new(),
    }
}

fn unprivileged() -> ModeFacts {
    ModeFacts { no_probes: Some(NoProbes::Denied(privileges::ordinary_user())), ..facts() }
}

fn with_cuda() -> ModeFacts {
    ModeFacts { cuda: Some("/usr/lib/libcuda.so.1".into()), ..facts() }
}

fn no_library(facts: ModeFacts) -> ModeFacts {
    ModeFacts {
        library: Some(Err(LibraryError::NotFound { searched: vec!["/opt".into()] })),
        ..facts
    }
}

fn obstacle(what: ObstacleKind) -> Vec<PreloadObstacle> {
    vec![PreloadObstacle { file: "/bin/x".into(), what }]
}

/// The sources in short: `probes`, `probes+gpu`, `injected`, `both`; or the error.
fn outcome(config: &RecordConfig, facts: &ModeFacts) -> String {
    match choose(config, facts) {
        Ok(decision) => {
            let by = match (&decision.collections, &decision.injection) {
                (RecordingMode::Ebpf, None) => "probes",
                (RecordingMode::Ebpf, Some(_)) => "probes+gpu",
                (RecordingMode::Inject, _) => "injected",
                (mode, _) => mode.as_ref(),
            };
            let injects = decision.injection.map(|injection| injection.options);
            assert_eq!(
                injects.is_some_and(|options| options.collections),
                decision.collections != RecordingMode::Ebpf
            );
            let is_one_line = |note: &String| !note.contains('\n');
            assert!(decision.notes.iter().all(is_one_line));
            format!("{by}, {} notes", decision.notes.len())
        }
        Err(error) => match error {
            ModeError::Denied { .. } => "denied".to_owned(),
            ModeError::Kernel { .. } => "kernel".to_owned(),
            ModeError::Attach { .. } => "attach".to_owned(),
            ModeError::InProcess { .. } => "function".to_owned(),
            ModeError::Library(_) => "library".to_owned(),
            ModeError::Command { .. } => "command".to_owned(),
        },
    }
}

#[test]
fn the_mode_of_a_command_depends_on_the_facts() {
    let seccomp = ModeFacts { no_probes: Some(NoProbes::Kernel("it refuses".into())), ..facts() };
    let rows = [
        (RecordMode::Auto, facts(), "probes, 0 notes"),
        (RecordMode::Auto, with_cuda(), "probes+gpu, 0 notes"),
        (RecordMode::Auto, no_library(facts()), "probes, 0 notes"),
        (RecordMode::Auto, no_library(with_cuda()), "probes, 1 notes"),
        (RecordMode::Auto, unprivileged(), "injected, 0 notes"),
        (RecordMode::Auto, seccomp.clone(), "injected, 0 notes"),
        (RecordMode::Auto, no_library(unprivileged()), "denied"),
        (RecordMode::Auto, no_library(seccomp.clone()), "kernel"),
        (RecordMode::Ebpf, facts(), "probes, 0 notes"),
        (RecordMode::Ebpf, with_cuda(), "probes, 0 notes"),
        (RecordMode::Ebpf, unprivileged(), "denied"),
        (RecordMode::Inject, facts(), "injected, 0 notes"),
        (RecordMode::Inject, unprivileged(), "injected, 0 notes"),
        (RecordMode::Inject, no_library(facts()), "library"),
        (RecordMode::Both, facts(), "both, 0 notes"),
        (RecordMode::Ebpf, seccomp.clone(), "kernel"),
        (RecordMode::Both, seccomp, "kernel"),
        (RecordMode::Both, unprivileged(), "denied"),
        (RecordMode::Both, no_library(facts()), "library"),
    ];
    for (mode, facts, expected) in rows {
        assert_eq!(outcome(&asked(mode), &facts), expected, "{mode:?} {facts:?}");
    }
}

#[test]
fn a_running_process_is_recorded_only_from_the_kernel() {
    let rows = [
        (RecordMode::Auto, facts(), "probes, 0 notes"),
        (RecordMode::Auto, unprivileged(), "denied"),
        (RecordMode::Ebpf, facts(), "probes, 0 notes"),
        (RecordMode::Ebpf, unprivileged(), "denied"),
        (RecordMode::Inject, facts(), "attach"),
        (RecordMode::Both, facts(), "attach"),
        (RecordMode::Both, unprivileged(), "attach"),
    ];
    for (mode, facts, expected) in rows {
        let facts = ModeFacts { library: None, ..facts };
        assert_eq!(outcome(&attach(mode), &facts), expected, "{mode:?}");
    }
}

#[test]
fn obstacles_that_prevent_injection() {
    let with = |facts: ModeFacts, what| ModeFacts { obstacles: obstacle(what), ..facts };
    let drops = || ObstacleKind::Drops("sudo".into());
    let rows = [
        (RecordMode::Inject, with(facts(), ObstacleKind::StaticPython), "command"),
        (RecordMode::Inject, with(facts(), ObstacleKind::OtherRights("setuid")), "command"),
        (RecordMode::Inject, with(facts(), ObstacleKind::Static), "injected, 1 notes"),
        (RecordMode::Inject, with(facts(), drops()), "injected, 1 notes"),
        (RecordMode::Both, with(facts(), ObstacleKind::StaticPython), "command"),
        (
            RecordMode::Auto,
            with(unprivileged(), ObstacleKind::Musl("/lib/ld-musl".into())),
            "denied",
        ),
        (RecordMode::Auto, with(unprivileged(), drops()), "injected, 1 notes"),
        (RecordMode::Auto, with(with_cuda(), ObstacleKind::StaticPython), "probes, 1 notes"),
        (RecordMode::Auto, with(with_cuda(), drops()), "probes+gpu, 1 notes"),
    ];
    for (mode, facts, expected) in rows {
        assert_eq!(outcome(&asked(mode), &facts), expected, "{mode:?} {facts:?}");
    }
    let alone = changed(asked(RecordMode::Inject), |config| config.sources.follow = false);
    assert_eq!(outcome(&alone, &with(facts(), ObstacleKind::Static)), "command");
}

#[test]
fn options_reach_the_library() {
    let options = |config: &RecordConfig, facts: &ModeFacts| {
        let decision = choose(config, facts).expect("a decision");
        decision.injection.expect("an injection").options
    };
    let all = changed(asked(RecordMode::Inject), |config| {
        config.sources.alloc = true;
        config.sources.stack_depth = 3;
        config.sources.follow = false;
        config.sources.gpu_yield = true;
        config.sources.cuda = CudaMode::Sync;
    });
    let expected = InjectOptions {
        collections: true,
        garbage: gctrace_ring::GarbageDetail::Types,
        garbage_budget_ppm: 10_000,
        stack_depth: 3,
        allocations: true,
        cuda: true,
        only_waits: true,
        yields: true,
        gpu_records: 1 << 18,
        follow: false,
        ..InjectOptions::default()
    };
    assert_eq!(options(&all, &facts()), expected);
    let both = changed(all, |config| config.sources.mode = RecordMode::Both);
    let beside = options(&both, &facts());
    assert!(!beside.allocations && !beside.turns);
    let gpu = options(&asked(RecordMode::Auto), &with_cuda());
    assert!(!gpu.collections && !gpu.allocations && !gpu.turns && gpu.cuda && gpu.follow);
    let off = changed(asked(RecordMode::Inject), |config| config.sources.cuda = CudaMode::Off);
    assert!(!options(&off, &facts()).cuda);
}

fn measuring_layers(config: RecordConfig) -> RecordConfig {
    changed(config, |config| config.sources.layers = Some(100))
}

fn watching_step(config: RecordConfig) -> RecordConfig {
    changed(config, |config| config.sources.step_function = Some("train_step".to_owned()))
}

#[test]
fn a_step_function_needs_the_library() {
    let rows = [
        (RecordMode::Auto, facts(), "both, 0 notes"),
        (RecordMode::Auto, with_cuda(), "both, 0 notes"),
        (RecordMode::Auto, unprivileged(), "injected, 0 notes"),
        (RecordMode::Auto, no_library(facts()), "library"),
        (RecordMode::Inject, facts(), "injected, 0 notes"),
        (RecordMode::Both, facts(), "both, 0 notes"),
        (RecordMode::Ebpf, facts(), "function"),
    ];
    for (mode, facts, expected) in rows.clone() {
        let config = watching_step(asked(mode));
        assert_eq!(outcome(&config, &facts), expected, "{mode:?}");
        if let Ok(decision) = choose(&config, &facts) {
            let function = decision.injection.expect("a library").step_function;
            assert_eq!(function.as_deref(), Some("train_step"));
        }
    }
    for mode in [RecordMode::Auto, RecordMode::Inject] {
        assert_eq!(outcome(&watching_step(attach(mode)), &facts()), "function");
        assert_eq!(outcome(&measuring_layers(attach(mode)), &facts()), "function");
    }
    for (mode, facts, expected) in rows {
        let config = measuring_layers(asked(mode));
        assert_eq!(outcome(&config, &facts), expected, "{mode:?}");
        if let Ok(decision) = choose(&config, &facts) {
            assert_eq!(decision.injection.expect("a library").options.layers, 100);
        }
    }
}

#[test]
fn cupti_is_left_to_another_tool() {
    let yielding = changed(asked(RecordMode::Auto), |config| config.sources.gpu_yield = true);
    assert_eq!(outcome(&yielding, &with_cuda()), "probes, 0 notes");
    let facts = ModeFacts { foreign_injection: Some("/opt/nsys/inject.so".into()), ..with_cuda() };
    assert_eq!(outcome(&asked(RecordMode::Auto), &facts), "probes+gpu, 1 notes");
    let decision = choose(&asked(RecordMode::Inject), &facts).expect("a decision");
    assert!(decision.notes[0].contains("/opt/nsys/inject.so"));
}

#[test]
fn messages() {
    let texts = [
        choose(&asked(RecordMode::Auto), &unprivileged())
            .expect("a decision")
            .opening
            .expect("one line")
            .to_string(),
        refusal(&asked(RecordMode::Ebpf), &unprivileged()),
        refusal(&attach(RecordMode::Auto), &unprivileged()),
        refusal(&asked(RecordMode::Auto), &no_library(unprivileged())),
        refusal(&attach(RecordMode::Inject), &facts()),
        refusal(&watching_step(asked(RecordMode::Ebpf)), &facts()),
        refusal(
            &asked(RecordMode::Inject),
            &ModeFacts { obstacles: obstacle(ObstacleKind::StaticPython), ..facts() },
        ),
    ];
    // If others may write /usr/local, the other place is named.
    let texts = texts.join("\n\n");
    insta::assert_snapshot!(texts.replace(" /usr/lib/gctrace", " /usr/local/lib/gctrace"));
}

fn refusal(config: &RecordConfig, facts: &ModeFacts) -> String {
    let refused = choose(config, facts).expect_err("refused");
    format!("gctrace: {refused}\n{}", refused.remedy())
}
