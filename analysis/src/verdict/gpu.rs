//! The verdict for traces with GPU times: what the pauses cost the run.

use crate::gpu_cost::GpuCost;
use crate::gpu_cost::GpuIdle;
use crate::report::Level;
use crate::units::counted;
use crate::units::duration;
use crate::units::percent;

/// How severe the cost is; pauses of `long_ns` or more count as long.
pub(super) fn level(cost: &GpuCost, long_ns: u64) -> Level {
    match cost.ratio() {
        ratio if ratio >= super::HEAVY => Level::Heavy,
        ratio if ratio >= super::NOTICEABLE => Level::Noticeable,
        // Hidden pauses delay nothing, however long they are.
        _ if cost.longest_ns >= long_ns && cost.cost_ns >= long_ns => Level::RareLongPauses,
        _ => Level::Negligible,
    }
}

pub(super) fn sentence(level: Level, cost: &GpuCost, idle: Option<&GpuIdle>) -> String {
    let pauses = counted(cost.pauses.count, "pause");
    let run = duration(cost.run_ns);
    let made = match cost.cost_ns {
        0 => format!(
            "its {pauses} did not delay the {run} run{}, by replay",
            error(cost)
        ),
        cost_ns => format!(
            "its {pauses} made the {run} run {}{} longer ({}{}), by replay",
            duration(cost_ns),
            error(cost),
            percent(cost.ratio()),
            significance(cost),
        ),
    };
    let of = format!(
        "The pauses took {} in total, the longest {}",
        duration(cost.pauses.time_ns),
        duration(cost.longest_ns)
    );
    match level {
        Level::Heavy => {
            format!(
                "The garbage collector is a problem: {made}. {of}{}.",
                hidden(cost)
            )
        }
        Level::Noticeable => {
            format!(
                "The garbage collector costs time: {made}. {of}{}.",
                hidden(cost)
            )
        }
        Level::RareLongPauses => format!(
            "The garbage collector costs little, but some of its pauses are long: {made}. {of}{}.",
            hidden(cost)
        ),
        _ => format!(
            "The garbage collector is not the problem: {made}. {of}{}.{}",
            hidden(cost),
            idle.map_or(String::new(), instead)
        ),
    }
}

/// The error bar, as ` ± 6.60 ms`.
fn error(cost: &GpuCost) -> String {
    match cost.error_ns {
        None | Some(0) => String::new(),
        Some(error_ns) => format!(" ± {}", duration(error_ns)),
    }
}

/// Nothing, unless the error bar includes 0.
fn significance(cost: &GpuCost) -> &'static str {
    match cost.error_ns {
        Some(error_ns) if error_ns > 0 && error_ns >= cost.cost_ns => ", which may be none",
        _ => "",
    }
}

/// The pause time that did not delay the run.
fn hidden(cost: &GpuCost) -> String {
    let hidden_ns = cost.pauses.time_ns.saturating_sub(cost.cost_ns);
    match hidden_ns {
        0 => String::new(),
        hidden_ns => format!(
            "; {} of that delayed nothing, because the GPU had queued work or the run was waiting \
             for something else",
            duration(hidden_ns)
        ),
    }
}

/// Why the GPU is idle, if not because of the collector.
fn instead(idle: &GpuIdle) -> String {
    /// Less idle time than this is not worth reporting.
    const REPORTED_FRACTION: f64 = 0.01;
    match idle.ratio >= REPORTED_FRACTION {
        true => format!(
            " The GPU was idle {} of the time; during {} of that the host {}.",
            percent(idle.ratio),
            percent(idle.host_ratio),
            idle.host
        ),
        false => format!(
            " The GPU was idle at most {} of the time.",
            percent(idle.ratio)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PauseTotal;

    const LONG_NS: u64 = 100_000_000;

    fn cost(cost_ns: u64, error_ns: Option<u64>) -> GpuCost {
        GpuCost {
            run_ns: 10_000_000_000,
            cost_ns,
            error_ns,
            pauses: PauseTotal {
                count: 7,
                time_ns: 900_000_000,
            },
            longest_ns: 400_000_000,
        }
    }

    #[test]
    fn level_depends_on_cost_not_on_pause_length() {
        for (cost_ns, expected) in [
            (900_000_000, Level::Heavy),
            (150_000_000, Level::Noticeable),
            (99_999_999, Level::Negligible),
            (0, Level::Negligible),
        ] {
            assert_eq!(level(&cost(cost_ns, None), LONG_NS), expected, "{cost_ns}");
        }
        let rare = GpuCost {
            run_ns: 100_000_000_000,
            ..cost(200_000_000, None)
        };
        assert_eq!(level(&rare, LONG_NS), Level::RareLongPauses);
    }

    #[test]
    fn sentence_has_cost_error_and_hidden_time() {
        let heavy = sentence(Level::Heavy, &cost(600_000_000, Some(30_000_000)), None);
        assert!(
            heavy.contains("made the 10.0 s run 600 ms ± 30.0 ms longer (6.00 %)"),
            "{heavy}"
        );
        assert!(heavy.contains("300 ms of that delayed nothing"), "{heavy}");
        let unsure = sentence(
            Level::Noticeable,
            &cost(150_000_000, Some(200_000_000)),
            None,
        );
        assert!(unsure.contains("(1.50 %, which may be none)"), "{unsure}");
    }

    #[test]
    fn names_the_other_cause_of_idle_time() {
        let mut idle = GpuIdle {
            ratio: 0.25,
            host: "was launching late",
            host_ratio: 0.8,
        };
        let free = sentence(Level::Negligible, &cost(0, None), Some(&idle));
        assert!(free.contains("did not delay the 10.0 s run"), "{free}");
        assert!(
            free.contains(
                "idle 25.0 % of the time; during 80.0 % of that the host was launching late"
            ),
            "{free}"
        );
        idle.ratio = 0.001;
        let busy = sentence(Level::Negligible, &cost(1_000, None), Some(&idle));
        assert!(busy.contains("idle at most 0.100 % of the time"), "{busy}");
    }
}
