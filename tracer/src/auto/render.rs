//! Messages of `gctrace auto`: decisions while the program runs, and their results.

use crate::advice::{FoundProcess, FoundSettings, FrozenForks, LoadingCollections};
use crate::text::shell_line;
use crate::units::{bytes, count, counted, duration, percent, signed_duration, whole};
use gctrace_settings::{
    AutoDecision, AutoDifference, AutoEvent, AutoReport, AutoSaving, AutoState, GcSetting,
};
use gctrace_units::{beyond, if_known, times};
use std::path::Path;

/// A decision in a line. `by_time`: steps are milliseconds of work.
pub(crate) fn decision(event: &AutoEvent, by_time: bool) -> String {
    let what = match &event.decision {
        AutoDecision::NothingToGain { share } => format!(
            "the collector takes {} of the CPU time: everything stays as it is",
            percent(*share)
        ),
        AutoDecision::Explore { share } => format!(
            "the collector takes {} of the CPU time: settings are compared",
            percent(*share)
        ),
        AutoDecision::Compare { share, block_steps } => format!(
            "the collector takes {} of the CPU time: settings are compared in blocks of {}",
            percent(*share),
            counted(*block_steps, "step")
        ),
        AutoDecision::OwnIsBest => "none is better than the program's own settings".to_owned(),
        AutoDecision::Hold { setting } => format!("{setting} is the best so far, and is checked"),
        AutoDecision::Proven { mean, low, high, pairs } => format!(
            "it takes {} less CPU time ({} .. {}, 95 %, {}): proven, and held",
            percent(less(*mean)),
            percent(less(*high)),
            percent(less(*low)),
            counted(*pairs, "pair"),
        ),
        AutoDecision::NotProven { pairs } => {
            format!(
                "{} pairs of blocks show no gain: the program's own settings again",
                count(*pairs)
            )
        }
        AutoDecision::Loss => "it loses time: the program's own settings again".to_owned(),
        AutoDecision::Changed { before, now } => format!(
            "the program makes {} containers a step instead of {}: it is watched again",
            count(whole(*now)),
            count(whole(*before))
        ),
        AutoDecision::OwnChanged { .. } => {
            "the program has set its thresholds: it is watched again".to_owned()
        }
        AutoDecision::Memory { rss_bytes, limit_bytes } => format!(
            "{} are resident, {} are allowed: everything is given back (--memory allows more)",
            bytes(*rss_bytes),
            bytes(*limit_bytes)
        ),
        AutoDecision::DeviceMemory { used_bytes, limit_bytes } => format!(
            "{} of the GPU's memory are in use, {} are allowed: everything is given back (--memory \
             allows more)",
            bytes(*used_bytes),
            bytes(*limit_bytes)
        ),
        AutoDecision::Pause { pause_ns, before_ns } => format!(
            "a collection took {}, before at most {}: everything is given back",
            duration(*pause_ns),
            duration(*before_ns)
        ),
        AutoDecision::RankMemory => {
            "memory grew too much in another rank: everything is given back".to_owned()
        }
        AutoDecision::MemoryUnknown => {
            "memory cannot be read any more: everything is given back".to_owned()
        }
        AutoDecision::Unfrozen => "the program has called gc.unfreeze()".to_owned(),
        AutoDecision::TakenBack => "everything was given back when asked".to_owned(),
    };
    if by_time {
        let work = duration(times(event.step, 1_000_000));
        return format!("no step is known; after {work} of work: {what}");
    }
    format!("step {}: {what}", count(event.step))
}

/// The relative decrease by a setting, as a share of the program's own, from a difference as a share of the mean of
/// both.
fn less(difference: f64) -> f64 {
    -more(difference)
}

/// The relative increase, from the same difference.
pub(crate) fn more(difference: f64) -> f64 {
    2.0 * difference / (2.0 - difference)
}

/// The likely best setting while nothing is proven: the setting, and how much less it takes than the program's own.
pub(crate) struct Guess {
    pub(crate) setting: GcSetting,
    text: String,
}

impl Guess {
    /// From pairs of blocks if there are any, else from the blocks with tried settings. `None`: no setting seems
    /// better, or there is a result.
    pub(crate) fn of(search: &AutoReport) -> Option<Self> {
        let seeks = matches!(search.state, AutoState::Exploring | AutoState::Proving);
        if !seeks || search.saved.is_some() {
            return None;
        }
        let tried = search.compared.iter().skip(1).filter_map(|one| {
            let mean = one.differences.collections.mean?;
            Some((
                mean,
                &one.setting,
                one.differences.collections,
                one.pairs,
                "less CPU time in collections",
            ))
        });
        let held = search.parts.last().and_then(|part| {
            Some((
                part.differences.cpu.mean?,
                &part.setting,
                part.differences.cpu,
                part.pairs,
                "less CPU time",
            ))
        });
        let best = held.or_else(|| tried.min_by(|one, other| one.0.total_cmp(&other.0)));
        let (mean, setting, AutoDifference { low, high, .. }, blocks, what) = best?;
        if mean >= 0.0 {
            return None;
        }
        let range = match (low, high) {
            (Some(low), Some(high)) => {
                format!("{} .. {}, 95 %, ", signed_percent(less(high)), signed_percent(less(low)))
            }
            _ => String::new(),
        };
        let text = format!(
            "{setting} takes {} {what} ({range}{})",
            percent(less(mean)),
            counted(blocks, if held.is_some() { "pair" } else { "block" })
        );
        Some(Self { setting: setting.clone(), text })
    }
}

/// `-2.1 %`.
fn signed_percent(share: f64) -> String {
    if share < 0.0 { format!("-{}", percent(-share)) } else { percent(share) }
}

/// The findings of a search so far; `None`: nothing yet, or it has a result.
pub(super) fn so_far(search: &AutoReport) -> Option<String> {
    Some(format!("so far {}", Guess::of(search)?.text))
}

/// The results.
pub(super) fn lines(found: &FoundSettings, path: &Path) -> Vec<String> {
    let mut lines: Vec<String> = found.processes.iter().map(process).collect();
    if found.processes.is_empty() {
        let changed = if found.frozen_forks.is_some() { "" } else { ", and nothing was changed" };
        lines.push(format!(
            "no step was seen{changed}: name the function of a step with --step-function, or a \
             shorter --wait"
        ));
    }
    if let Some(FrozenForks { processes, most_objects }) = found.frozen_forks {
        lines.push(format!(
            "{}: the inherited objects ({} at most) were frozen, and stayed shared with the parent",
            counted(processes, "forked process"),
            count(most_objects)
        ));
    }
    lines.extend(found.loading.map(before_steps));
    if let Some(setting) = &found.setting {
        lines.push(format!(
            "{setting} in the next run: gctrace apply --from {} -- {}",
            path.display(),
            shell_line(&found.command)
        ));
    } else if let Some(guess) = found.processes.iter().find_map(|one| Guess::of(&one.search)) {
        lines.push(format!(
            "measure it, in whole runs: gctrace tune --settings 'none|{}' -- {}",
            guess.setting,
            shell_line(&found.command)
        ));
    } else if found.processes.iter().any(|one| one.search.state == AutoState::Exploring) {
        lines.push(format!(
            "gctrace tune -- {} compares whole runs, about four of them",
            shell_line(&found.command)
        ));
    }
    lines
}

/// Time of collections before the first step; a saving in the same run cannot be measured.
fn before_steps(loading: LoadingCollections) -> String {
    format!(
        "before the first step, collections took {} of {} and freed {} (measured): in the next run there are \
         few",
        duration(loading.pause_ns),
        duration(loading.duration_ns),
        counted(loading.garbage, "object"),
    )
}

/// The findings of a search that was ended. `apply`: the command that applies a setting.
pub(crate) fn verdict(found: &FoundSettings, apply: impl Fn(&str) -> String) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for one in &found.processes {
        match one.search.parts.iter().rfind(|part| part.is_proven) {
            None => lines.push(process(one)),
            Some(part) => lines.push(format!(
                "process {}: {} takes {} and {} than the program's own, in {}",
                one.pid,
                part.setting,
                compared(part.differences.cpu, "CPU time"),
                compared(part.differences.wall, "wall time"),
                counted(part.pairs, "pair"),
            )),
        }
        lines.extend(too_short(one));
    }
    if found.processes.is_empty() {
        lines.push(
            "nothing was measured: the command made no steps that gctrace knows, and no collections after \
             10 s; --step-function NAME names the function that is called once a step"
                .to_owned(),
        );
    }
    lines.extend(found.loading.map(before_steps));
    if let Some(setting) = &found.setting {
        lines.push(format!("run it with that: {}", apply(&setting.to_string())));
    }
    lines
}

/// The need of a search that had no time for a result.
fn too_short(process: &FoundProcess) -> Option<String> {
    /// Maximum number of pairs; then a gain is no longer sought (`tuner/src/hold.rs` of the library).
    const MOST: u64 = 60;
    let part = process.search.parts.last();
    let more = match (process.search.state, part) {
        (AutoState::SettingUp | AutoState::Exploring, _) => "some thousand steps".to_owned(),
        (AutoState::Proving, Some(part)) if part.pairs > 0 => {
            let block = part.held_steps / part.pairs;
            let steps = times(beyond(MOST, part.pairs), 2 * block);
            format!("{} at most", counted(steps, "more step"))
        }
        (AutoState::Proving, _) => "some thousand steps".to_owned(),
        _ => return None,
    };
    Some(format!("the run, or --budget, was too short: it takes {more} until something is known"))
}

/// `12 % less CPU time (9 % .. 15 %)`, of a difference.
fn compared(difference: AutoDifference, what: &str) -> String {
    let AutoDifference { mean, low, high, .. } = difference;
    let (Some(mean), Some(low), Some(high)) = (mean, low, high) else {
        return format!("an unknown {what}");
    };
    let (mean, low, high) = (less(mean), less(high), less(low));
    let (word, mean, low, high) =
        if mean < 0.0 { ("more", -mean, -high, -low) } else { ("less", mean, low, high) };
    format!("{} {word} {what} ({} .. {})", percent(mean), percent(low), percent(high))
}

fn process(process: &FoundProcess) -> String {
    let FoundProcess { pid, rank, steps, search, failure, .. } = process;
    let rank = if_known(rank.map(|rank| format!(" (rank {rank})")));
    let known = match search.by_time {
        true => "no step is known, its collector's share of CPU time was compared".to_owned(),
        false => counted(*steps, "step"),
    };
    let head = format!("process {pid}{rank}: {known}");
    if let Some(why) = &search.unsupported {
        return format!("{head}: left alone: {why}");
    }
    if let Some(why) = failure {
        return format!("{head}: gctrace's code failed, and gave everything back: {why}");
    }
    if let Some(leader) = search.leader {
        let more = match (search.rss_bytes_before, search.most_rss_bytes_held) {
            (Some(before), Some(most)) => {
                format!("; memory +{}", bytes(beyond(most, before)))
            }
            _ => String::new(),
        };
        return format!("{head}: did as process {leader}{more}");
    }
    let what = match (&search.saved, search.collector_share) {
        (Some(saved), _) => savings(saved, search.cpu_ns),
        (None, None) => "too few to say anything: nothing was changed".to_owned(),
        (None, Some(share)) => {
            let found = match (search.state, Guess::of(search)) {
                (AutoState::Exploring | AutoState::Proving, Some(guess)) => {
                    format!("best guess, as the run was too short for a proof: {}", guess.text)
                }
                (AutoState::Exploring | AutoState::Proving, None) => {
                    "the run was too short to compare settings in it".to_owned()
                }
                _ => "no setting gains anything".to_owned(),
            };
            format!("{found}; the collector took {} of the CPU time", percent(share))
        }
    };
    let mut parts = vec![what];
    if search.saved.is_some()
        && let (Some(own), Some(held)) = (search.longest_own_ns, search.longest_held_ns)
    {
        parts.push(format!("longest collection {} -> {}", duration(own), duration(held)));
    }
    if let (Some(before), Some(most)) = (search.rss_bytes_before, search.most_rss_bytes_held) {
        parts.push(format!("memory +{}", bytes(beyond(most, before))));
    }
    match (search.cost_ns, &search.saved) {
        (0, _) => parts.push("finding it cost nothing".to_owned()),
        (cost_ns, None) => parts.push(format!("cost {}", duration(cost_ns))),
        (cost_ns, Some(_)) => parts.push(format!("cost {}, taken off", duration(cost_ns))),
    }
    if search.followers > 0 {
        parts.push(format!("{} did the same", counted(u64::from(search.followers), "other rank")));
    }
    format!("{head}: {}", parts.join("; "))
}

fn savings(saved: &AutoSaving, cpu_ns: u64) -> String {
    let without = cpu_ns.saturating_add_signed(saved.mean_ns);
    let verb = if saved.mean_ns < 0 { "lost" } else { "saved" };
    format!(
        "{verb} {} of {} of CPU time ({} .. {}, 95 %, {} pairs of blocks, {} of it computed)",
        duration(saved.mean_ns.unsigned_abs()),
        duration(without),
        signed_duration(saved.low_ns),
        signed_duration(saved.high_ns),
        count(saved.pairs),
        percent(saved.computed_share)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_settings::{AutoDifferences, ComparedSetting};

    fn search(state: AutoState) -> AutoReport {
        let tried = |setting: &str, mean| ComparedSetting {
            setting: setting.parse().expect("a setting"),
            pairs: 4,
            differences: AutoDifferences {
                collections: AutoDifference { mean: Some(mean), ..AutoDifference::default() },
                ..AutoDifferences::default()
            },
            ..ComparedSetting::default()
        };
        let compared = vec![
            tried("threshold=700,10,10", 0.0),
            tried("threshold=2000,10,10", -0.1),
            tried("disable@start", -2.0 / 3.0),
        ];
        AutoReport { state, compared, collector_share: Some(0.55), ..AutoReport::default() }
    }

    #[test]
    fn what_was_seen_so_far_is_a_guess_with_its_interval() {
        let mut exploring = search(AutoState::Exploring);
        let told = so_far(&exploring).expect("a guess");
        assert_eq!(
            told,
            "so far disable@start takes 50.0 % less CPU time in collections (4 blocks)"
        );
        if let Some(best) = exploring.compared.last_mut() {
            (best.differences.collections.low, best.differences.collections.high) =
                (Some(-1.0), Some(0.1));
        }
        let told = so_far(&exploring).expect("a guess");
        assert!(told.ends_with("(-10.5 % .. 66.7 %, 95 %, 4 blocks)"), "{told}");
        // It ends before a proof.
        let ended = FoundProcess {
            pid: 7,
            rank: None,
            python: "3.12.1".to_owned(),
            marker: None,
            steps: 0,
            failure: None,
            search: AutoReport { by_time: true, ..exploring },
        };
        let line = process(&ended);
        assert!(
            line.contains("best guess, as the run was too short for a proof: disable@start"),
            "{line}"
        );
        assert!(!line.contains("no gain"), "{line}");
        assert_eq!(so_far(&search(AutoState::Watching)), None);
    }

    /// Half the CPU time: 50 against 100 is two thirds of their mean.
    #[test]
    fn a_gain_is_a_share_of_the_programs_own_time() {
        let decision = AutoDecision::Proven { mean: -2.0 / 3.0, low: -1.0, high: 0.0, pairs: 12 };
        let told = super::decision(&AutoEvent { step: 1_000, decision }, false);
        let expected = "step 1,000: it takes 50.0 % less CPU time (0 % .. 66.7 %, 95 %, 12 pairs): proven, \
                        and held";
        assert_eq!(told, expected);
    }
}
