//! Parsers of option values, and the tip about a missing `--`.

use crate::CounterChoice;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use gctrace_event::Counter;
use gctrace_settings::LAYERS_BY_BUDGET;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use strsim::levenshtein;

/// A percentage above 0 and up to 50, as a ratio.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 50.0 => Ok(percent / 100.0),
        _ => Err(format!("{text:?} is not a percentage above 0 and up to 50")),
    }
}

/// A percentage from 0 on, as a ratio.
pub(super) fn more(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err(format!("{text:?} is not a percentage from 0 on (examples: 2%, 150%)")),
    }
}

/// A percentage above 0 and up to 100, as a ratio.
pub(super) fn budget(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err(format!("{text:?} is not a percentage above 0 and up to 100")),
    }
}

/// Maximum of `--layers`: more steps would never come.
const MOST_STEPS: u32 = 1_000_000_000;

/// N, to measure every N-th step, or as many as the budget allows.
pub(super) fn layers(text: &str) -> Result<u32, String> {
    if text == "auto" { Ok(LAYERS_BY_BUDGET) } else { steps(text) }
}

/// A number of steps.
pub(super) fn steps(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(every @ 1..=MOST_STEPS) => Ok(every),
        _ => Err(format!("must be a number of steps, from 1 to {MOST_STEPS}")),
    }
}

/// The name of a Python function, with or without its file before a colon.
pub(super) fn step_function(text: &str) -> Result<String, String> {
    let name = if let Some((_, name)) = text.rsplit_once(':') { name } else { text };
    let is_one = !name.is_empty() && !name.contains(|sign: char| "/()".contains(sign));
    if is_one && !text.contains(|sign: char| sign.is_control()) {
        Ok(text.to_owned())
    } else {
        Err("must be a function: train_step, Trainer.step or train.py:train_step".to_owned())
    }
}

/// Parses a pid above 0; a list of pids is rejected with a message of its own.
pub(super) fn pid(text: &str) -> Result<u32, String> {
    let several = text.split(',').filter(|part| part.parse::<u32>().is_ok()).count() > 1;
    if several {
        return Err("only one process can be given; its children are recorded too".to_owned());
    }
    match text.parse::<u32>() {
        Ok(pid @ 1..) if i32::try_from(pid).is_ok() => Ok(pid),
        _ => Err("not a process id (ps -ef lists them)".to_owned()),
    }
}

/// A polling rate in Hz: 0 for none, or 0.1 to 100.
pub(super) fn nvml_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate == 0.0 || (0.1..=100.0).contains(&rate) => Ok(rate),
        _ => Err("must be 0, or from 0.1 to 100 (Hz)".to_owned()),
    }
}

/// The kernel requires a power of two and whole pages (`ringbuf_map_alloc`,
/// kernel/bpf/ringbuf.c).
const SMALLEST_RING: u64 = 4096;
/// Far above any useful size, and below the kernel's own limit on all machines.
const LARGEST_RING: u64 = 1 << 30;

/// Counter names as in `perf list`, comma-separated; or `default` or `none`.
pub(super) fn counters(text: &str) -> Result<CounterChoice, String> {
    match text {
        "default" => return Ok(CounterChoice::Default),
        "none" => return Ok(CounterChoice::Named(Vec::new())),
        _ => {}
    }
    let mut counters = Vec::new();
    for name in text.split(',').map(str::trim) {
        let counter = Counter::from_name(name.as_bytes())
            .ok_or_else(|| format!("no counter is named {name:?} (known: {})", known_counters()))?;
        if !counters.contains(&counter) {
            counters.push(counter);
        }
    }
    Ok(CounterChoice::Named(counters))
}

fn known_counters() -> String {
    let names: Vec<&str> = Counter::ALL.iter().map(AsRef::as_ref).collect();
    names.join(", ")
}

/// A duration, in seconds if it has no unit: `10`, `2.5`, `30s`, `2m`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let with_unit = if is_plain_number(text) { format!("{text}s") } else { text.to_owned() };
    let duration = humantime::parse_duration(&with_unit)
        .map_err(|error| format!("{error} (examples: 10, 2.5, 30s, 2m)"))?;
    if duration.is_zero() {
        return Err("must be longer than zero".to_owned());
    }
    Ok(duration)
}

/// A duration with a unit: `50us`, `1ms`; `0` needs none.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if is_plain_number(text) {
        return Err(format!("unit missing (write {text}us or {text}ms)"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error} (examples: 50us, 1ms)"))
}

/// File name of a trace; may contain `%h`, `%r` and `%p`.
pub(super) fn trace_name() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        #[cfg(target_os = "linux")]
        crate::files::name::check_pattern(&path)?;
        Ok::<_, String>(path)
    })
}

/// Name of a file that is read back later, so not standard output.
pub(super) fn file_name() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if crate::files::is_stdout(&path) {
            Err("must be a file, as it is read back later")
        } else {
            Ok(path)
        }
    })
}

/// A size in bytes that is a power of two: `65536`, `64K`, `16MiB`.
pub(super) fn ring_size(text: &str) -> Result<u32, String> {
    let bytes = bytes(text).ok_or("not a size (examples: 65536, 64KiB, 16MiB)")?;
    if !bytes.is_power_of_two() {
        return Err("must be a power of two".to_owned());
    }
    if !(SMALLEST_RING..=LARGEST_RING).contains(&bytes) {
        return Err("must be between 4KiB and 1GiB".to_owned());
    }
    u32::try_from(bytes).map_err(|error| error.to_string())
}

/// Binary units only, as the size is a power of two.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)? {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A size with a decimal or binary unit, such as `200MB`, `1.5GB` and `64MiB`, in bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 6] = [
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ];
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..)?;
    let (_, factor) = UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let number = digits.trim().parse::<f64>().ok()?;
    if !is_plain_number(digits.trim()) || number <= 0.0 {
        return None;
    }
    Some((number * factor) as u64)
}

fn is_plain_number(text: &str) -> bool {
    text.parse::<f64>().is_ok() && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Adds a tip to the error for `gctrace python train.py`, the most likely mistake, and for options before a subcommand.
pub(super) fn explain_missing_dashes(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let Some(word) = unexpected_word(&error) else { return error };
    let Some(position) = arguments.iter().position(|a| *a == *word) else { return error };
    if position > 1 && super::command().find_subcommand(&word).is_some() {
        let (before, rest) = (shown(&arguments[1..position]), shown(&arguments[position + 1..]));
        if arguments[1..position].iter().all(|one| one.to_string_lossy().starts_with('-')) {
            return super::usage_error(
                ErrorKind::UnknownArgument,
                &format!(
                    "unexpected '{word}': options go after the subcommand\n\n  tip: gctrace {word} {before} {rest}"
                ),
            );
        }
    }
    if word.starts_with('-')
        || arguments.iter().any(|a| a == "--")
        || !records(&arguments[..position])
    {
        return error;
    }
    let rest = shown(&arguments[position..]);
    if position == 1
        && let Some(subcommand) = meant(&word)
    {
        let rest = match subcommand {
            "analyze" if is_trace_name(&word) => rest,
            _ => shown(&arguments[position + 1..]),
        };
        return super::usage_error(
            ErrorKind::UnknownArgument,
            &format!("unexpected '{word}'\n\n  tip: gctrace {subcommand} {rest}"),
        );
    }
    let before = shown(&arguments[1..position]);
    let space = if before.is_empty() { "" } else { " " };
    super::usage_error(
        ErrorKind::UnknownArgument,
        &format!(
            "unexpected '{word}': the command to record goes after `--`\n\n  \
             tip: gctrace {before}{space}-- {rest}"
        ),
    )
}

/// The subcommand that was probably meant: an edit distance of at most 2, or `analyze` if the word
/// is a trace.
fn meant(word: &str) -> Option<&'static str> {
    const NAMES: [&str; 10] = [
        "record",
        "top",
        "analyze",
        "compare",
        "heap",
        "export",
        "demo",
        "doctor",
        "completions",
        "man",
    ];
    if is_trace_name(word) {
        return Some("analyze");
    }
    let close = |name: &&str| levenshtein(word, name) <= 2 && word.len() > 3;
    NAMES.into_iter().filter(close).min_by_key(|name| levenshtein(word, name))
}

/// Whether a file of this name is a trace.
pub fn is_trace_name(word: &str) -> bool {
    [".json", ".json.gz", ".json.zst"].iter().any(|ending| word.ends_with(ending))
}

fn unexpected_word(error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        _ => None,
    }
}

/// Whether the words before the unexpected one belong to a recording.
fn records(before: &[OsString]) -> bool {
    let other = [
        "analyze",
        "compare",
        "doctor",
        "completions",
        "man",
        "help",
        super::GUARDIAN,
        super::TERMINAL_GUARDIAN,
        super::LOAD_LIBRARY,
    ];
    !before.iter().any(|word| other.iter().any(|name| word == name))
}

fn shown(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
