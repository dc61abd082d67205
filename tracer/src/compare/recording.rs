//! The run after the change, recorded now, with the options of the trace before it.

use super::after_name;
use crate::advice::wanted;
use crate::args::{CompareArgs, RecordConfig, is_trace_name};
use crate::files::read_head;
use crate::files::segments::segments_in;
use crate::{analyze, args, print};
use anyhow::Context as _;
use gctrace_event::{RecordingMode, TraceCompression, TraceHeader};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Whether the words are a command: the first one names no trace. A missing file with the name of a trace is not a
/// command either, but a mistake.
pub(super) fn is_command(words: &[OsString]) -> bool {
    let Some(first) = words.first().map(Path::new) else {
        return false;
    };
    let name = first.as_os_str().to_string_lossy();
    if is_trace_name(&name) || !segments_in(first).is_empty() {
        return false;
    }
    let head = read_head(first, 64).unwrap_or_default();
    let json = head.iter().find(|byte| !byte.is_ascii_whitespace());
    !matches!(json, Some(b'{' | b'['))
        && TraceCompression::by_content(&head) == TraceCompression::None
}

/// Records the command. Returns the trace, or the exit code of the command if it failed: half a run
/// is not compared.
///
/// # Errors
/// The first trace is not one of gctrace's, or the recording is not possible.
pub(super) fn record(config: &CompareArgs) -> anyhow::Result<Result<PathBuf, u8>> {
    let first = config.before.first().context("no trace given")?;
    let header = analyze::header(first)?.with_context(|| {
        format!(
            "{} was not recorded by gctrace, so its options are unknown; record the command first: \
             gctrace -o after.json -- COMMAND",
            first.display()
        )
    })?;
    let name = config.output.clone();
    let name = name.unwrap_or_else(|| after_name(first));
    let setting = match config.gc.is_some() || !config.from.is_empty() {
        true => Some(wanted(config.gc.as_ref(), &config.from, None)?),
        false => None,
    };
    let mut options = options(&header, setting.is_some());
    options.extend(["-o".into(), name.into(), "--".into()]);
    options.extend(config.after.iter().cloned());
    let mut recording = args::recording(options).map_err(|error| {
        anyhow::anyhow!("cannot record with the options of {}: {error}", first.display())
    })?;
    recording.apply = setting;
    let (code, trace) = record_to_trace(&recording)?;
    match (code, trace) {
        (0, Some(trace)) => Ok(Ok(trace)),
        (code, _) => {
            print::message(format!("not compared: the command failed (exit code {code})"));
            Ok(Err(code.max(1)))
        }
    }
}

/// Records as configured. Returns gctrace's exit code, and the trace, if there is one.
///
/// # Errors
/// The recording is not possible.
#[cfg(target_os = "linux")]
fn record_to_trace(config: &RecordConfig) -> anyhow::Result<(u8, Option<PathBuf>)> {
    let recorded = crate::recording::run_to_trace(config)?;
    // The rest can be interrupted.
    nix::sys::signal::SigSet::all().thread_unblock()?;
    Ok(recorded)
}

/// # Errors
/// Always: recording needs Linux.
#[cfg(not(target_os = "linux"))]
fn record_to_trace(_: &RecordConfig) -> anyhow::Result<(u8, Option<PathBuf>)> {
    Err(crate::platform::needs_linux("recording a command"))
}

/// The options of `gctrace record` that make a trace like this one. `applies`: with settings; only the injected library
/// applies them.
fn options(header: &TraceHeader, applies: bool) -> Vec<OsString> {
    let mode = match &header.mode {
        RecordingMode::Ebpf if applies => &RecordingMode::Both,
        mode => mode,
    };
    let counters = header.counters.iter().chain(header.counters_missing.keys());
    let counters: Vec<&str> = counters.map(String::as_str).collect();
    let mut options = vec![
        format!("--mode={}", mode.as_ref()),
        format!("--stack-depth={}", header.stack_depth),
        format!("--min-pause={}ns", header.min_pause_ns),
        if counters.is_empty() {
            "--counters=none".to_owned()
        } else {
            format!("--counters={}", counters.join(","))
        },
    ];
    options.extend(header.cuda.iter().map(|cuda| format!("--cuda={cuda}")));
    options.push(format!("--sample={}", header.sample_hz.unwrap_or(0)));
    let steps = header.step_function.iter();
    options.extend(steps.map(|name| format!("--step-function={name}")));
    if !header.follow {
        options.push("--no-follow".to_owned());
    }
    options.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CounterChoice;
    use std::time::Duration;

    #[test]
    fn a_recording_has_the_options_of_the_trace_before() {
        let header = TraceHeader {
            mode: RecordingMode::Inject,
            stack_depth: 7,
            min_pause_ns: 1_500,
            cuda: Some("sync".to_owned()),
            step_function: Some("train_step".to_owned()),
            sample_hz: Some(199),
            counters: vec!["cycles".to_owned()],
            ..TraceHeader::default()
        };
        let mut line = options(&header, false);
        line.extend(["--".into(), "true".into()]);
        let config = args::recording(line).expect("a recording");
        assert_eq!(config.sources.mode, args::RecordMode::Inject);
        assert_eq!(config.sources.stack_depth, 7);
        assert_eq!(config.min_pause, Duration::from_nanos(1_500));
        assert_eq!(config.sources.cuda, args::CudaMode::Sync);
        assert_eq!(config.sample_rate(), Some(199));
        assert_eq!(config.sources.step_function.as_deref(), Some("train_step"));
        assert!(!config.sources.follow);
        let CounterChoice::Named(counters) = config.sources.counters else {
            panic!("{:?}", config.sources.counters);
        };
        assert_eq!(counters, [gctrace_event::Counter::Cycles]);
    }

    #[test]
    fn settings_need_the_library() {
        for (mode, expected) in [
            (RecordingMode::Ebpf, "--mode=both"),
            (RecordingMode::Both, "--mode=both"),
            (RecordingMode::Inject, "--mode=inject"),
        ] {
            let header = TraceHeader { mode, ..TraceHeader::default() };
            assert_eq!(options(&header, true)[0], expected);
        }
    }

    #[test]
    fn commands_and_traces() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("a file");
            vec![path.into_os_string()]
        };
        for (words, expected) in [
            (file("trace", b"  {\"traceEvents\":["), false),
            (file("trace.z", b"\x1f\x8b"), false),
            (file("trace.y", b"\x28\xb5\x2f\xfd"), false),
            (file("train.py", b"#!/usr/bin/python3\n"), true),
            (file("empty", b""), true),
            (vec!["python3".into(), "train.py".into()], true),
            (vec!["missing.json".into()], false),
            (vec!["missing.json.gz".into()], false),
            (vec!["missing.json.zst".into()], false),
        ] {
            assert_eq!(is_command(&words), expected, "{words:?}");
        }
    }
}
