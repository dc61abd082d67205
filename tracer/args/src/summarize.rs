//! The command line of `gctrace summarize`.

use super::CONFIGURABLE;
use crate::variables;
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace summarize rank*.json.gz -o summaries           then: gctrace analyze summaries
  gctrace summarize rank*.json.gz -o summaries --shard 17/512
  sbatch --array=0-511 --wrap 'gctrace summarize logs/*.json.gz -o summaries --shard auto'

Run again after a failure, it makes only what is missing.";

#[derive(Args, Clone, Debug, PartialEq)]
pub struct SummarizeArgs {
    /// Traces of gctrace or the PyTorch profiler; each gives one summary
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Directory for the summaries, created if needed. Complete ones are kept, others replaced
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Only one part of the traces: I/N, with I from 0, of N parts; `auto`: I and N of a Slurm array
    /// (SLURM_ARRAY_TASK_ID, ...); `auto/N`: part JOB_COMPLETION_INDEX or SLURM_ARRAY_TASK_ID of N
    #[arg(long, value_name = "SHARD", value_parser = |text: &str| shard(text, &variables::part_of_work))]
    pub shard: Option<Shard>,
    /// Most traces read at the same time [default: the number of processors]
    #[arg(long, hide = true, group = CONFIGURABLE, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// One of several equal parts of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0, less than `count`.
    pub index: usize,
    /// Number of parts, at least 1.
    pub count: usize,
}

impl Shard {
    /// Everything.
    pub const ALL: Self = Self { index: 0, count: 1 };
}

fn shard(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Shard, String> {
    let number = |name: &str| -> Result<Option<usize>, String> {
        let Some(value) = variable(name) else { return Ok(None) };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{name}={value} is no number")),
        }
    };
    let needed = |name: &str| {
        number(name)?.ok_or_else(|| {
            format!(
                "{name} is not set: this is no job of a Slurm array. Name the part: --shard 0/8"
            )
        })
    };
    let (index, count) = match text.split_once('/') {
        None if text == "auto" => {
            let first = needed("SLURM_ARRAY_TASK_MIN")?;
            let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
            let behind = needed("SLURM_ARRAY_TASK_ID")?.saturating_sub(first);
            if !behind.is_multiple_of(step) {
                return Err(
                    "the array has gaps: number its tasks from 0 and name their number, auto/N"
                        .to_owned(),
                );
            }
            (behind / step, needed("SLURM_ARRAY_TASK_COUNT")?)
        }
        Some(("auto", count)) => {
            let index = match number("JOB_COMPLETION_INDEX")? {
                Some(index) => Some(index),
                None => number("SLURM_ARRAY_TASK_ID")?,
            };
            let index = index.ok_or(
                "neither JOB_COMPLETION_INDEX nor SLURM_ARRAY_TASK_ID is set: this is no task of \
                 an indexed job. Name the part: --shard 0/8",
            )?;
            (index, count.parse().or(Err(NOT_PARTS))?)
        }
        Some((index, count)) => {
            (index.parse().or(Err(NOT_PARTS))?, count.parse().or(Err(NOT_PARTS))?)
        }
        None => return Err(NOT_PARTS.to_owned()),
    };
    if index < count {
        Ok(Shard { index, count })
    } else {
        Err(format!(
            "part {index} of {count} does not exist: the first is 0, the last is {}",
            count.saturating_sub(1)
        ))
    }
}

const NOT_PARTS: &str = "is neither I/N, as in 17/512, nor auto or auto/N";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, variables: &[(&str, &str)]) -> Result<(usize, usize), String> {
        let variable = |name: &str| {
            let mut set = variables.iter().filter(|(set, _)| *set == name);
            set.next().map(|(_, value)| (*value).to_owned())
        };
        shard(text, &variable).map(|shard| (shard.index, shard.count))
    }

    #[test]
    fn parts_are_named_or_from_the_scheduler() {
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", "7"),
            ("SLURM_ARRAY_TASK_MIN", "1"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
            ("SLURM_ARRAY_TASK_COUNT", "4"),
        ];
        assert_eq!(of("17/512", &[]), Ok((17, 512)));
        assert_eq!(of("auto", &slurm), Ok((3, 4)));
        assert_eq!(of("auto/9", &slurm), Ok((7, 9)));
        assert_eq!(of("auto/2", &[("JOB_COMPLETION_INDEX", "1")]), Ok((1, 2)));
        // An array job that contains an indexed one: the inner one counts.
        let both = [("JOB_COMPLETION_INDEX", "1"), slurm[0]];
        assert_eq!(of("auto/2", &both), Ok((1, 2)));
    }

    #[test]
    fn parts_that_do_not_exist_are_errors() {
        let only = |id| {
            vec![
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_MIN", "3"),
                ("SLURM_ARRAY_TASK_COUNT", "2"),
            ]
        };
        // sbatch --array=3,9: is 9 the first part or the second?
        for (text, variables, problem) in [
            ("4/4", vec![], "part 4 of 4 does not exist"),
            ("0/0", vec![], "does not exist"),
            ("-1/4", vec![], "neither"),
            ("auto", vec![], "SLURM_ARRAY_TASK_MIN is not set"),
            ("auto/4", vec![], "neither JOB_COMPLETION_INDEX"),
            ("auto", only("9"), "part 6 of 2 does not exist"),
            ("auto", only("x"), "SLURM_ARRAY_TASK_ID=x is no number"),
            ("", vec![], "neither"),
        ] {
            let error = of(text, &variables).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
