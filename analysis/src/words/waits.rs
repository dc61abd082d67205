//! The words of advice on the waits of training's main thread.

use super::AdviceText;
use super::samples::{ShortPlaces, waiting, workers_in_short};
use crate::report::{Location, MainThreadReport, OthersDid};
use crate::units::{counted, duration, percent};

/// From this share on a part is all.
const NEARLY_ALL: f64 = 0.9;

/// Changes that make training wait less, with the evidence. Shares are of the time that training waits.
#[derive(Debug)]
pub(crate) enum WaitRemedy<'a> {
    /// More workers, `enough` instead of `now`, or less time at this line; not more, because of the number of CPUs.
    MoreWorkers { now: u64, enough: u64, of_cpus: Option<u32>, did: OthersDid<'a> },
    /// Less time at this line: more workers would not share it.
    LessThere { workers: u64, did: OthersDid<'a> },
    /// Less time at this line, or more CPUs: the workers wait for CPUs, or each has one.
    NoCpuLeft { workers: u64, waiting: Option<f64>, cpus: Option<u32>, line: &'a Location },
    /// Fewer collections in the workers.
    CollectLess { workers: u64, share: f64 },
    /// Workers, as training's main thread loads its data itself; `None`: there is one CPU only.
    FirstWorkers { workers: Option<u64>, line: &'a Location, line_ns: u64 },
    /// Less time at this line: another thread of the process runs it.
    OtherThread { share: f64, line: &'a Location },
    /// A lock for less time: at this line training, or the main thread, waits for it.
    Lock { at: Option<&'a Location>, did: OthersDid<'a> },
    /// This line elsewhere: another thread runs it while training waits for the GIL.
    Gil { share: f64, line: &'a Location },
}

/// `waited_ns`: how long training waited for it.
pub(crate) fn words(
    remedy: &WaitRemedy<'_>,
    main: &MainThreadReport,
    places: ShortPlaces<'_>,
    waited_ns: u64,
) -> AdviceText {
    let who = if main.training { "training" } else { "the main thread" };
    let (change, evidence) = change(remedy, places, who, waited_ns);
    let whole_ns = main.interval_ns;
    let waited = format!(
        "{} ({} of {})",
        duration(waited_ns),
        percent(waited_ns as f64 / whole_ns.max(1) as f64),
        duration(whole_ns)
    );
    let whose = if main.training { "Training's main thread" } else { "The main thread" };
    let waits = match remedy {
        WaitRemedy::FirstWorkers { .. } => {
            format!("Training's main thread spends {waited} on loading its data.")
        }
        WaitRemedy::Gil { .. } => format!("{whose} waits {waited} for the GIL."),
        WaitRemedy::Lock { .. } => format!("{whose} waits {waited} for a lock."),
        _ => format!("Training's main thread waits {waited} for data."),
    };
    let meanwhile = match &main.workers {
        Some(of) if main.loading.is_none() => workers_in_short(of, places),
        _ => None,
    };
    let meanwhile = gctrace_units::if_known(meanwhile);
    AdviceText {
        action: format!("{change}: {evidence}."),
        why: format!("{waits}{}", sentence(&meanwhile)),
        code: code(remedy),
        risk: risk(remedy).to_owned(),
    }
}

/// ` (meanwhile ...)` as a sentence of its own.
fn sentence(meanwhile: &str) -> String {
    let inner = meanwhile.trim().trim_start_matches("(meanwhile ").trim_end_matches(')');
    if inner.is_empty() { String::new() } else { format!(" Meanwhile {inner}.") }
}

/// The change, and the figures that show it.
fn change(
    remedy: &WaitRemedy<'_>,
    places: ShortPlaces<'_>,
    who: &str,
    waited_ns: u64,
) -> (String, String) {
    let at = |line| places.at(Some(line)).trim_start_matches(" at ").to_owned();
    let time = duration(waited_ns);
    let each = |workers| if workers == 1 { "its worker" } else { "each worker" };
    let part =
        |share: f64| format!("for {} of the {time} that training waits for data", percent(share));
    let does = |workers: u64, of: &OthersDid<'_>| {
        let waits = of.did.map(|reason| format!("is {}", waiting(reason, false)));
        let does = waits.unwrap_or_else(|| "runs".to_owned());
        let (each, part) = (each(workers), part(of.share));
        if of.line_share >= NEARLY_ALL * of.share {
            format!("{each} {does} there {part}")
        } else {
            format!("{each} {does} {part}, {} there", percent(of.line_share))
        }
    };
    match remedy {
        WaitRemedy::MoreWorkers { now, enough, of_cpus, did } => {
            let cpus = if let Some(n) = of_cpus { format!(" on {n} CPUs") } else { String::new() };
            let change = less_there(did, &at(did.line));
            (
                format!("More workers ({enough} instead of {now}{cpus}), or {change}"),
                does(*now, did),
            )
        }
        WaitRemedy::LessThere { workers, did } => {
            let change = less_there(did, &at(did.line));
            let (first, rest) = change.split_at(1);
            (first.to_uppercase() + rest, does(*workers, did))
        }
        WaitRemedy::NoCpuLeft { workers, waiting, cpus, line } => {
            let evidence = match (waiting, cpus) {
                (Some(waiting), _) => {
                    format!("{} waits for a CPU {}", each(*workers), part(*waiting))
                }
                (None, Some(cpus)) => {
                    let workers = counted(*workers, "worker");
                    format!("{workers} and training run on {}", counted((*cpus).into(), "CPU"))
                }
                (None, None) => "no CPU is left".to_owned(),
            };
            (
                format!("Make {} faster, or use more CPUs; more workers do not help", at(line)),
                evidence,
            )
        }
        WaitRemedy::CollectLess { workers, share } => (
            "Let the workers collect less".to_owned(),
            format!("{} is in collections {}", each(*workers), part(*share)),
        ),
        WaitRemedy::FirstWorkers { workers, line, line_ns } => {
            let evidence = format!(
                "training's main thread loads its data itself, {time}, {} of it there",
                duration(*line_ns)
            );
            match workers {
                Some(workers) => (
                    format!(
                        "Load in {} (DataLoader), or make {} faster",
                        counted(*workers, "worker"),
                        at(line)
                    ),
                    evidence,
                ),
                None => (format!("Make {} faster", at(line)), evidence),
            }
        }
        WaitRemedy::OtherThread { share, line } => (
            format!("Make {} faster, or run it in worker processes", at(line)),
            format!("another thread runs it {}", part(*share)),
        ),
        WaitRemedy::Gil { share, line } => (
            format!("Run {} in another process", at(line)),
            format!(
                "another thread runs it for {} of the {time} that {who} waits for the GIL",
                percent(*share)
            ),
        ),
        WaitRemedy::Lock { at: waiting_line, did } => {
            let does = did.did.map(|reason| format!("is {}", waiting(reason, false)));
            (
                format!("Hold the lock for less time at {}", at(did.line)),
                format!(
                    "another thread {} there for {} of the {time} that {who} waits for it{}",
                    does.unwrap_or_else(|| "runs".to_owned()),
                    percent(did.line_share),
                    places.at(*waiting_line)
                ),
            )
        }
    }
}

/// The change at the line itself.
fn less_there(did: &OthersDid<'_>, at: &str) -> String {
    match did.did {
        None => format!("make {at} faster"),
        Some(_) if did.waits_for_disk() => format!("cache what {at} reads, or use faster storage"),
        Some(_) => format!("wait less at {at}"),
    }
}

fn code(remedy: &WaitRemedy<'_>) -> String {
    let loader = |workers: u64| {
        format!(
            "# in PyTorch:\nloader = DataLoader(dataset, num_workers={workers}, persistent_workers=True)"
        )
    };
    match remedy {
        WaitRemedy::MoreWorkers { enough, .. } => loader(*enough),
        WaitRemedy::FirstWorkers { workers: Some(workers), .. } => loader(*workers),
        WaitRemedy::CollectLess { .. } => {
            "import gc\n# in the parent, before the workers start:\ngc.collect()\ngc.freeze()\n\
             # in PyTorch, in the workers:\nloader = DataLoader(dataset, num_workers=..., worker_init_fn=lambda _: gc.disable())"
                .to_owned()
        }
        _ => String::new(),
    }
}

fn risk(remedy: &WaitRemedy<'_>) -> &'static str {
    match remedy {
        WaitRemedy::MoreWorkers { .. } | WaitRemedy::FirstWorkers { workers: Some(_), .. } => {
            "Each worker takes memory: its own copy of all pages it writes to, and its batches."
        }
        WaitRemedy::CollectLess { .. } => {
            "Without collections, cycles that the workers make stay in memory until they end."
        }
        _ => "",
    }
}
