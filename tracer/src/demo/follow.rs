//! `gctrace demo --apply`: follows the first advice that `gctrace apply` can apply, or without one the
//! first setting that one recording cannot judge, and prints its predicted saving beside the measured one.

use super::{code, write_out};
use crate::args::DemoConfig;
use crate::units::{duration, signed_duration};
use crate::{analyze, print, render, setting};
use anyhow::Context as _;
use gctrace_analysis::report::Advice;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs with and without the change, in turns: the machine changes less than between two blocks.
const RUNS: usize = 3;

/// The function of the demo program that is called once per step.
const STEP_FUNCTION: &str = "train_step";

/// Runs the demo program with and without the advice of its trace. `program`: its command, with
/// its environment but not yet started.
///
/// # Errors
/// The trace cannot be read, no advice can be applied, or the program does not print its time.
pub(super) fn follow(
    gctrace: &Path,
    config: &DemoConfig,
    program: impl Fn(&Path, &[&str]) -> Command,
) -> anyhow::Result<u8> {
    let (mut analysis, _) = analyze::read_all(std::slice::from_ref(&config.output), None)?;
    let report = render::report(&mut analysis);
    let (advised, others) = (report.advice.iter(), report.not_advised.iter());
    let advised = advised.zip(1..).map(|(advice, number)| (advice, Some(number)));
    // On a busy machine the ranges are wide: then what one recording cannot tell is tried.
    let uncertain =
        others.filter(|advice| advice.effect.is_uncertain()).map(|advice| (advice, None));
    let first = advised.chain(uncertain).find_map(|(advice, number)| {
        let setting = setting::of_advice(advice.effect.settings.as_ref()?)?;
        Some((number, advice, setting.to_string()))
    });
    let Some((number, advice, setting)) = first else {
        write_out("\nNo change of the settings was priced: there is nothing to follow.\n")?;
        return Ok(0);
    };
    let why: String = match number {
        Some(number) => format!("Following advice {number}"),
        None => "One recording cannot tell what this saves, so it is tried".to_owned(),
    };
    write_out(&format!(
        "\n{why}: gctrace apply --gc {setting}, {RUNS} runs with it and {RUNS} without, in turns\n"
    ))?;
    let applied = ["apply", "-q", "--step-function", STEP_FUNCTION, "--gc", &setting, "--"];
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..RUNS {
        print::message(format!("runs {} and {} of {}", turn * 2 + 1, turn * 2 + 2, RUNS * 2));
        for (arguments, times) in [&[][..], &applied[..]].iter().zip(&mut times) {
            match timed(&mut program(gctrace, arguments))? {
                Ok(time_ns) => times.push(time_ns),
                Err(code) => return Ok(code),
            }
        }
    }
    write_out(&table(&times, advice))?;
    Ok(0)
}

/// Runs the program and returns the time of its training in ns, or the exit code of its failure.
fn timed(command: &mut Command) -> anyhow::Result<Result<u64, u8>> {
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        return Ok(Err(code(output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = text.split(" steps in ").nth(1).and_then(|rest| {
        let number = rest.split_whitespace().next()?;
        number.parse::<f64>().ok()
    });
    let seconds =
        seconds.with_context(|| format!("the demo printed no time of its steps: {text}"))?;
    let time = std::time::Duration::try_from_secs_f64(seconds)
        .with_context(|| format!("the demo printed {seconds} s"))?;
    Ok(Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// Predicted and measured, side by side.
fn table([without, with]: &[Vec<u64>; 2], advice: &Advice) -> String {
    let range = |times: &[u64]| {
        let (least, most) = (times.iter().min(), times.iter().max());
        let [least, most] =
            [least, most].map(|time| time.map_or_else(String::new, |ns| duration(*ns)));
        format!("{least} .. {most}")
    };
    let mean = |times: &[u64]| times.iter().sum::<u64>() / times.len().max(1) as u64;
    let [mean_without, mean_with] = [mean(without), mean(with)];
    let saved_ns = i64::try_from(mean_without).unwrap_or(i64::MAX)
        - i64::try_from(mean_with).unwrap_or(i64::MAX);
    let least_ns = advice.effect.saves_at_least_ns.unwrap_or(0);
    let most_ns = advice.effect.saves_at_most_ns.unwrap_or(u64::MAX);
    let inside =
        saved_ns >= least_ns && u64::try_from(saved_ns.max(0)).is_ok_and(|ns| ns <= most_ns);
    format!(
        "\n  training without   {} (mean {})\n  training with      {} (mean {})\n  \
         saving predicted   {} .. {}\n  saving measured    {}: {} the predicted range\n",
        range(without),
        duration(mean_without),
        range(with),
        duration(mean_with),
        signed_duration(least_ns),
        advice.effect.saves_at_most_ns.map_or_else(|| "?".to_owned(), duration),
        signed_duration(saved_ns),
        if inside { "inside" } else { "outside" },
    )
}
