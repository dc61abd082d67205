//! The steps of a command: of the ranks of a job, or of the process that made the most.

use crate::apply::ApplySession;
use gctrace_analysis::tune::StepTable;
use gctrace_settings::AppliedProcess;
use std::collections::BTreeMap;

/// The steps of a command by now, and what they are of.
#[derive(Debug, Default)]
pub(super) struct CommandSteps {
    /// As the job made them.
    pub(super) table: StepTable,
    /// Processes that they are of.
    pub(super) ranks: u64,
    /// Processes with other steps.
    pub(super) others: u64,
    /// Time of the agent per step, in ns; `None`: no process has reported yet.
    pub(super) agent_ns: Option<u64>,
}

/// Reads the tables of all processes. `settings`: number of settings that alternate.
pub(super) fn read(session: &ApplySession, settings: usize) -> CommandSteps {
    let mut stepping: Vec<(AppliedProcess, StepTable)> = session
        .tables(session.processes().processes)
        .filter_map(|(process, bytes)| {
            let table = StepTable::parse(&bytes, settings);
            (!table.rows.is_empty()).then_some((process, table))
        })
        .collect();
    let all = stepping.len() as u64;
    // Of each rank the process with the most steps; without ranks the one of all.
    stepping.sort_by_key(|(_, table)| std::cmp::Reverse(table.rows.len()));
    let mut by_rank: BTreeMap<Option<u32>, (AppliedProcess, StepTable)> = BTreeMap::new();
    for (process, table) in stepping {
        by_rank.entry(process.rank).or_insert((process, table));
    }
    if by_rank.len() > 1 {
        by_rank.remove(&None);
    }
    let agent_ns =
        by_rank.values().filter_map(|(process, _)| process.agent_ns.checked_div(process.steps));
    let agent_ns = agent_ns.max();
    let ranks = by_rank.len() as u64;
    let tables: Vec<StepTable> = by_rank.into_values().map(|(_, table)| table).collect();
    CommandSteps {
        table: StepTable::of_job(&tables),
        ranks,
        others: all.saturating_sub(ranks),
        agent_ns,
    }
}
