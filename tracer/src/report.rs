//! `gctrace report`: one page for the browser, to look at and to send.
//!
//! Owns the name of the page and whether a browser opens it: otherwise it is `gctrace analyze -o FILE.html`, and
//! `--perfetto` is `gctrace export -o FILE.pftrace`.

mod perfetto;

use crate::args::{AnalyzeArgs, OutputArgs, ReportArgs, ReportFormat};
use crate::files::STANDARD_STREAM;
use crate::invoker::Invoker;
use crate::{analyze, platform, print, variables};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables; one of them is set where a browser has a screen.
const SCREENS: [&str; 2] = ["DISPLAY", "WAYLAND_DISPLAY"];

/// Writes the page. Returns the exit code: 0, or 1 if an error kept any trace from being read completely.
///
/// # Errors
/// No trace can be read, or the page cannot be written.
pub(crate) fn run(config: &ReportArgs) -> anyhow::Result<u8> {
    if config.perfetto {
        return perfetto::run(config);
    }
    let path = output(config, "html");
    let code = analyze::run(&AnalyzeArgs {
        traces: config.traces.clone(),
        jobs: config.jobs,
        report: OutputArgs::new(ReportFormat::Page, path.clone(), config.force),
        ..AnalyzeArgs::default()
    })?;
    if config.output.is_none() {
        // `mailto:x.html` alone would be an address, and `-x.html` an option.
        let is_open = std::path::absolute(&path).is_ok_and(|file| open(file.as_os_str()));
        let what = if is_open { ", and opened it" } else { ": open it in a browser" };
        print::message(format!("wrote {}{what}", path.display()));
    }
    Ok(code)
}

/// The file to write: the named one, else named after the first trace.
fn output(config: &ReportArgs, extension: &str) -> PathBuf {
    let named = config.output.clone();
    named.unwrap_or_else(|| file_name(config.traces.first().map(PathBuf::as_path), extension))
}

/// `runs/trace.json.gz` becomes `trace.html`, if that is the extension.
fn file_name(trace: Option<&Path>, extension: &str) -> PathBuf {
    let name = trace.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name = name.filter(|name| name != STANDARD_STREAM).unwrap_or_default();
    let stem = name.split('.').find(|part| !part.is_empty()).unwrap_or("report");
    PathBuf::from(format!("{stem}.{extension}"))
}

/// Opens a file or an address with the user's browser. False where that is not known to work.
fn open(target: &OsStr) -> bool {
    let Some(opener) = opener() else { return false };
    let mut command = Command::new(opener);
    command.arg(target).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It ends at once, or with the browser.
    command.spawn().is_ok()
}

/// The program that opens a browser; `None` where there is no screen, or gctrace has more rights than the user.
fn opener() -> Option<&'static str> {
    let screen = || SCREENS.iter().any(|name| variables::text(name).is_some());
    let opener = match std::env::consts::OS {
        "macos" => "open",
        _ if screen() => "xdg-open",
        _ => return None,
    };
    let is_another =
        platform::has_more_rights_than_its_user() || Invoker::detect().is_another_user();
    if is_another { None } else { Some(opener) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_named_after_the_trace() {
        for (trace, page) in [
            ("trace.json", "trace.html"),
            ("runs/a.b.json.gz", "a.html"),
            ("trace.json.zst", "trace.html"),
            (".json", "json.html"),
            ("-", "report.html"),
            ("..", "report.html"),
        ] {
            assert_eq!(file_name(Some(Path::new(trace)), "html"), Path::new(page), "{trace}");
        }
    }
}
