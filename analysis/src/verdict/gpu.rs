//! The first sentence where the GPU's times are known: what the pauses cost the run.

use crate::gpu_cost::GpuCost;
use crate::gpu_cost::GpuIdle;
use crate::report::Level;
use crate::units::counted;
use crate::units::duration;
use crate::units::percent;

/// How much of a problem the cost is; a single pause is long from `long_ns` on.
pub(super) fn level(cost: &GpuCost, long_ns: u64) -> Level {
    match cost.ratio() {
        ratio if ratio >= super::HEAVY => Level::Heavy,
        ratio if ratio >= super::NOTICEABLE => Level::Noticeable,
        // Hidden pauses are felt by nobody, however long.
        _ if cost.longest_ns >= long_ns && cost.cost_ns >= long_ns => Level::RareLongPauses,
        _ => Level::Negligible,
    }
}

pub(super) fn sentence(level: Level, cost: &GpuCost, idle: Option<&GpuIdle>) -> String {
    let pauses = counted(cost.pauses.count, "pause");
    let run = duration(cost.run_ns);
    let made = match cost.cost_ns {
        0 => format!(
            "its {pauses} did not delay the run of {run}{}, by replay",
            error(cost)
        ),
        cost_ns => format!(
            "its {pauses} made the run of {run} {} longer ({}{}), by replay",
            duration(cost_ns),
            percent(cost.ratio()),
            error(cost),
        ),
    };
    let of = format!(
        "The pauses took {} together, the longest {}",
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

/// An error bar as large as the cost says that there may be none.
fn error(cost: &GpuCost) -> String {
    match cost.error_ns {
        None | Some(0) => String::new(),
        Some(error_ns) if error_ns >= cost.cost_ns && cost.cost_ns > 0 => format!(
            ", give or take {}, so perhaps nothing at all",
            duration(error_ns)
        ),
        Some(error_ns) => format!(", give or take {}", duration(error_ns)),
    }
}

/// What did not delay the run.
fn hidden(cost: &GpuCost) -> String {
    let hidden_ns = cost.pauses.time_ns.saturating_sub(cost.cost_ns);
    match hidden_ns {
        0 => String::new(),
        hidden_ns => format!(
            "; {} of that delayed nothing, because the GPU had work or the run waited for something else",
            duration(hidden_ns)
        ),
    }
}

/// What leaves the GPU idle, where it is not the collector.
fn instead(idle: &GpuIdle) -> String {
    /// A GPU that is idle for less has little to gain.
    const REPORTED_FRACTION: f64 = 0.01;
    match idle.ratio >= REPORTED_FRACTION {
        true => format!(
            " The GPU was idle for {} of its time; in {} of that the host {}.",
            percent(idle.ratio),
            percent(idle.host_ratio),
            idle.host
        ),
        false => format!(
            " The GPU was idle for no more than {} of its time.",
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
    fn levels_go_by_cost_and_not_by_the_length_of_pauses() {
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
    fn the_sentence_says_cost_error_and_what_is_hidden() {
        let heavy = sentence(Level::Heavy, &cost(600_000_000, Some(30_000_000)), None);
        assert!(
            heavy.contains("600 ms longer (6.00 %, give or take 30.0 ms)"),
            "{heavy}"
        );
        assert!(heavy.contains("300 ms of that delayed nothing"), "{heavy}");
        let unsure = sentence(
            Level::Noticeable,
            &cost(150_000_000, Some(200_000_000)),
            None,
        );
        assert!(unsure.contains("perhaps nothing at all"), "{unsure}");
    }

    #[test]
    fn where_it_is_not_the_problem_it_says_what_is() {
        let mut idle = GpuIdle {
            ratio: 0.25,
            host: "was launching late",
            host_ratio: 0.8,
        };
        let free = sentence(Level::Negligible, &cost(0, None), Some(&idle));
        assert!(free.contains("did not delay the run of 10.0 s"), "{free}");
        assert!(
            free.contains(
                "idle for 25.0 % of its time; in 80.0 % of that the host was launching late"
            ),
            "{free}"
        );
        idle.ratio = 0.001;
        let busy = sentence(Level::Negligible, &cost(1_000, None), Some(&idle));
        assert!(busy.contains("idle for no more than 0.100 %"), "{busy}");
    }
}
