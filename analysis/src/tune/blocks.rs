//! Blocks of steps in groups: in each group every setting once, next to each other in time.

use super::report::{TuneMethod, TuneUnit};
use super::steps::{StepRow, StepTable};
use crate::statistics::warm_up::{FEWEST, warm_up};

/// The means of one block of steps, or of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Wall time per step (or of the run), in ns.
    pub wall_ns: f64,
    /// CPU time per step of the thread that makes steps (or of the run), in ns; `None`: unknown.
    pub cpu_ns: Option<f64>,
    /// Time of collections per step (or of the run), in ns; `None`: unknown.
    pub pause_ns: Option<f64>,
    /// Collections in the block (or the run), by generation.
    pub collections: [f64; 3],
    /// Part of the time of collections that full collections take, in ns per step (or run); `None`:
    /// unknown.
    pub full_pause_ns: Option<f64>,
    /// Largest resident memory of the run, in bytes; `None` for blocks of one run.
    pub peak_rss_bytes: Option<u64>,
}

/// A setting that was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredSetting {
    /// As on the command line.
    pub name: String,
    /// Without automatic collections: its blocks need not contain any.
    pub collects: bool,
}

/// What was measured, in groups of one block, or run, per setting.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredBlocks {
    /// Blocks of one run, or whole runs.
    pub method: TuneMethod,
    /// What the times are of.
    pub unit: TuneUnit,
    /// The groups, in order of time; in each one entry per setting, in the order of the settings.
    pub groups: Vec<Vec<Measured>>,
    /// Steps that were recorded.
    pub steps: u64,
    /// Steps before the warm-up's end, which are in no group.
    pub warm_up_steps: u64,
    /// Steps per block; `None` for runs.
    pub block_steps: Option<u64>,
}

/// Groups the steps of a run by blocks of `block_steps` steps, without the warm-up.
#[must_use]
pub fn blocks(table: &StepTable, settings: usize, block_steps: u64) -> MeasuredBlocks {
    let walls: Vec<f64> = table.rows.iter().map(|row| float(row.wall_ns)).collect();
    let dropped = warm_up(&walls);
    let rows = table.rows.get(dropped..).unwrap_or_default();
    let complete = rows
        .chunk_by(|one, other| one.block == other.block)
        .filter(|block| block.len() as u64 == block_steps)
        .filter_map(|block| Some((block.first()?.block?, block)));
    let complete: Vec<(u64, &[StepRow])> = complete.collect();
    let count = settings.max(1) as u64;
    let groups = complete
        .chunk_by(|one, other| one.0 / count == other.0 / count)
        .filter_map(|group| one_of_each(group, settings));
    MeasuredBlocks {
        method: TuneMethod::Blocks,
        unit: TuneUnit::Step,
        groups: groups.collect(),
        steps: table.rows.len() as u64,
        warm_up_steps: dropped as u64,
        block_steps: Some(block_steps),
    }
}

/// The means of a whole run's steps after the warm-up; `None` of too few steps.
#[must_use]
pub fn whole_run(table: &StepTable, peak_rss_bytes: Option<u64>) -> Option<Measured> {
    if table.rows.len() < 2 * FEWEST {
        return None;
    }
    let walls: Vec<f64> = table.rows.iter().map(|row| float(row.wall_ns)).collect();
    let rows = table.rows.get(warm_up(&walls)..)?;
    Some(Measured { peak_rss_bytes, ..measured(rows)? })
}

/// In the order of the settings; `None` if one is missing.
fn one_of_each(group: &[(u64, &[StepRow])], settings: usize) -> Option<Vec<Measured>> {
    let of_setting = |setting| {
        let has_it = |block: &[StepRow]| block.iter().all(|row| row.setting == setting);
        let found = group.iter().find(|(_, block)| has_it(block));
        found.and_then(|(_, block)| measured(block))
    };
    (0..settings).map(of_setting).collect()
}

/// The means of these steps; `None` of none.
pub(super) fn measured(rows: &[StepRow]) -> Option<Measured> {
    let count = float(rows.len() as u64);
    let mean = |value: &dyn Fn(&StepRow) -> u64| {
        let sum: f64 = rows.iter().map(|row| float(value(row))).sum();
        (count > 0.0).then(|| sum / count)
    };
    let cpu_known = rows.iter().all(|row| row.cpu_ns.is_some());
    let collections = [0, 1, 2].map(|generation: usize| {
        let of = |row: &StepRow| row.collections.get(generation).copied().unwrap_or(0);
        rows.iter().map(|row| float(of(row))).sum()
    });
    Some(Measured {
        wall_ns: mean(&|row| row.wall_ns)?,
        cpu_ns: if cpu_known { Some(mean(&|row| row.cpu_ns.unwrap_or(0))?) } else { None },
        pause_ns: mean(&|row| row.pause_ns),
        collections,
        full_pause_ns: Some(full_pause(rows) / count),
        peak_rss_bytes: None,
    })
}

/// The time of full collections: what steps with one were paused for longer than the others are on
/// the average.
fn full_pause(rows: &[StepRow]) -> f64 {
    let is_full = |row: &&StepRow| matches!(row.collections, [_, _, full] if full > 0);
    let sum = |full: bool| -> (f64, f64) {
        let of_kind = rows.iter().filter(|row| is_full(row) == full);
        of_kind.fold((0.0, 0.0), |(count, sum), row| (count + 1.0, sum + float(row.pause_ns)))
    };
    let ((full, paused_ns), (others, others_ns)) = (sum(true), sum(false));
    let usual = if others > 0.0 { others_ns / others } else { 0.0 };
    (paused_ns - full * usual).max(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "times of steps are far below 2^53 ns")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The agent's order: the digit sum of the block's number.
    pub(in crate::tune) fn setting_of(mut block: u64, settings: u64) -> usize {
        let mut sum = 0;
        while block > 0 {
            (sum, block) = (sum + block % settings, block / settings);
        }
        usize::try_from(sum % settings).unwrap()
    }

    /// Steps as the agent numbers them; `wall` from block and setting.
    pub(in crate::tune) fn table(
        (steps, warm_up, block_steps, settings): (u64, u64, u64, u64),
        mut wall: impl FnMut(u64, usize) -> (u64, [u64; 3], u64),
    ) -> StepTable {
        let rows = (1..=steps).map(|step| {
            let block = (step > warm_up).then(|| (step - 1 - warm_up) / block_steps);
            let setting = block.map_or(0, |block| setting_of(block, settings));
            let (wall_ns, collections, pause_ns) = wall(step, setting);
            StepRow {
                step,
                setting,
                block,
                wall_ns,
                cpu_ns: Some(wall_ns / 2),
                pause_ns,
                collections,
            }
        });
        StepTable { rows: rows.collect(), unreadable: 0 }
    }

    #[test]
    fn each_group_has_each_setting_once() {
        for settings in 2..5 {
            let table = table((50 + 25 * 40, 50, 25, settings), |_, setting| {
                (1_000 + 10 * setting as u64, [1, 0, 0], 5)
            });
            let settings = usize::try_from(settings).unwrap();
            let found = blocks(&table, settings, 25);
            assert_eq!(found.groups.len(), 40 / settings);
            for group in &found.groups {
                for (setting, measured) in group.iter().enumerate() {
                    assert_eq!(measured.wall_ns, 1_000.0 + 10.0 * setting as f64);
                    assert_eq!(measured.collections, [25.0, 0.0, 0.0]);
                }
            }
            assert_eq!((found.steps, found.warm_up_steps), (1_050, 50));
        }
    }

    #[test]
    fn warm_up_and_incomplete_blocks_are_left_out() {
        let table = table((50 + 25 * 41 + 7, 50, 25, 2), |step, _| {
            (if step <= 180 { 5_000 } else { 1_000 + step % 3 }, [0; 3], 0)
        });
        let found = blocks(&table, 2, 25);
        assert!((175..190).contains(&found.warm_up_steps), "{}", found.warm_up_steps);
        // 41 blocks: the first six are touched by the warm-up, and one has no partner.
        assert_eq!(found.groups.len(), 17);
        assert!(found.groups.iter().flatten().all(|measured| measured.wall_ns < 1_003.0));
    }

    #[test]
    fn full_collections_are_what_their_steps_are_longer_by() {
        let table = table((100, 0, 100, 1), |step, _| match step % 10 {
            0 => (90, [1, 0, 1], 60),
            _ => (40, [1, 0, 0], 10),
        });
        let found = measured(&table.rows).unwrap();
        assert!((found.full_pause_ns.unwrap() - 5.0).abs() < 1e-9);
        assert!((found.pause_ns.unwrap() - 15.0).abs() < 1e-9);
        assert_eq!(found.collections, [100.0, 0.0, 10.0]);
        assert_eq!(measured(&[]), None);
    }
}
