//! How long the ranks of each communicator waited for each other, and for whose pauses.
//!
//! Assigns collectives to communicators, and communicators to kinds.

use super::RankJob;
use crate::gpu::replay::ReplayJob;
use crate::gpu::timeline::Communicator as CommunicatorName;
use crate::time::{add_to, later, sum};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Communicators of one kind: with the same number of ranks in the traces, at the same distance from each other.
/// Groups of one dimension of the job's parallelism are one kind, for example the tensor-parallel ones: neighbors.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommunicatorKind {
    /// Number of ranks of each communicator in the traces. `null` in the last of 16: it has all other kinds.
    pub size: Option<u64>,
    /// Distance from the number of each rank to the next rank's; `null` if it differs.
    pub stride: Option<u32>,
    /// Number of these communicators.
    pub communicators: u64,
    /// The waits of all of them.
    pub waits: CollectiveWaits,
    /// The communicators with the longest waits of ranks, at most 16.
    pub longest: Vec<CommunicatorReport>,
}

/// One communicator. Without names, collectives of the same ranks are of one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommunicatorReport {
    /// PyTorch's name of the process group; `null` if the profiler did not record it.
    pub name: Option<String>,
    /// Number of its ranks that are in the traces.
    pub ranks: u64,
    /// The lowest of its ranks.
    pub first_rank: u32,
    /// The highest of its ranks.
    pub last_rank: u32,
    /// How long its ranks waited for each other.
    pub waits: CollectiveWaits,
}

/// How long ranks waited for each other in the collectives, sends and receives of some communicators.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectiveWaits {
    /// Number of matched collectives, and of sends with their receives.
    pub collectives: u64,
    /// Time in them before their last rank had started, summed over the ranks, in ns: the part of
    /// `peer_wait_ns` that these communicators have.
    pub wait_ns: u64,
    /// How much shorter it would be without any pauses, in ns, by replay of all ranks. Includes pauses of ranks of
    /// other communicators, if they made a rank of this one late. Negative if it would be longer: some pauses delay
    /// ranks that would have waited. `null` if no rank paused.
    pub for_pauses_ns: Option<i64>,
    /// The same without the pauses of each of `pauses.sources`, in their order: one row of the
    /// victim matrix by communicator. Rows need not add up to `for_pauses_ns`: if two ranks pause at
    /// the same time, removing the pauses of one of them alone changes little.
    pub for_sources_ns: Vec<i64>,
}

/// Kinds listed one by one; further ones are added up. A job has one for each of its dimensions
/// (tensor, pipeline, context, expert, data) and one of all ranks.
const KINDS: usize = 16;

/// Communicators listed of each kind, the longest waits first.
const LONGEST: usize = 16;

/// The communicators of a job.
#[derive(Debug, Default)]
pub(super) struct Communicators {
    all: Vec<JobCommunicator>,
    /// The communicator of each of the job's collectives, in their order.
    of_collective: Vec<usize>,
}

#[derive(Debug, Default)]
struct JobCommunicator {
    name: Option<String>,
    /// Numbers of the ranks in the traces.
    ranks: BTreeSet<u32>,
    collectives: u64,
}

/// How much less the members of each communicator would wait without pauses, in ns.
#[derive(Debug, Default)]
pub(super) struct ShorterWaits {
    /// By source of the report, by communicator.
    pub(super) sources_ns: Vec<Vec<i64>>,
    /// Without any pause, by communicator.
    pub(super) all_ns: Vec<i64>,
}

/// Number of ranks, and the distance from each to the next if that is always the same.
type CollectiveShape = (u64, Option<u32>);

impl Communicators {
    /// By the profiler's names; collectives without one are of one communicator if they are of the
    /// same ranks.
    pub(super) fn of(ranks: &RankJob, job: &ReplayJob<'_>) -> Self {
        let mut found = Self::default();
        let mut named: HashMap<String, usize> = HashMap::new();
        // Names are numbers in a timeline: each is looked up once.
        let mut known: HashMap<_, usize> = HashMap::new();
        let mut unnamed: HashMap<Vec<u32>, usize> = HashMap::new();
        for collective in &job.collectives {
            let members = collective.members.iter();
            let numbers = members.clone().filter_map(|member| {
                let member = ranks.members.get(member.timeline as usize)?;
                Some(member.rank)
            });
            let numbers: Vec<u32> = numbers.collect();
            let name = members.clone().find_map(|member| {
                let timeline = job.timelines.get(member.timeline as usize)?;
                Some((member.timeline, timeline, timeline.ops[member.op].group?))
            });
            let next = found.all.len();
            let at = match name {
                Some((place, timeline, group)) => {
                    *known.entry((place, group)).or_insert_with(|| {
                        let identity = CommunicatorName::parse(timeline.names.text(group)).identity;
                        *named.entry(identity.to_owned()).or_insert(next)
                    })
                }
                None => *unnamed.entry(numbers.clone()).or_insert(next),
            };
            if at == next {
                found.all.push(JobCommunicator::default());
            }
            found.all[at].ranks.extend(numbers);
            found.all[at].collectives += 1;
            found.of_collective.push(at);
        }
        for (identity, at) in named {
            // The ranks follow.
            let name = identity.split_once(" [").map(|(name, _)| name.to_owned());
            found.all[at].name = Some(name.unwrap_or(identity));
        }
        found
    }

    /// By communicator the sum of a time of each collective.
    pub(super) fn sums(&self, times_ns: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut sums = vec![0; self.all.len()];
        for (at, time_ns) in self.of_collective.iter().zip(times_ns) {
            add_to(&mut sums[*at], time_ns);
        }
        sums
    }

    /// The report, the kind that waited most first. `waits_ns`: of each communicator, measured.
    pub(super) fn report(
        &self,
        waits_ns: &[u64],
        shorter: Option<&ShorterWaits>,
    ) -> Vec<CommunicatorKind> {
        let mut kinds: BTreeMap<CollectiveShape, Vec<usize>> = BTreeMap::new();
        for (at, communicator) in self.all.iter().enumerate() {
            kinds.entry(communicator.shape()).or_default().push(at);
        }
        let wait_ns = |indices: &[usize]| sum(indices.iter().map(|at| waits_ns[*at]));
        let mut kinds: Vec<(Option<CollectiveShape>, Vec<usize>)> =
            kinds.into_iter().map(|(shape, indices)| (Some(shape), indices)).collect();
        kinds.sort_by_key(|(shape, indices)| (Reverse(wait_ns(indices)), *shape));
        if kinds.len() > KINDS {
            let others = kinds.split_off(KINDS - 1);
            kinds.push((None, others.into_iter().flat_map(|(_, indices)| indices).collect()));
        }
        let waits = |indices: &[usize]| CollectiveWaits {
            collectives: sum(indices.iter().map(|at| self.all[*at].collectives)),
            wait_ns: wait_ns(indices),
            for_pauses_ns: shorter.map(|shorter| added(indices, &shorter.all_ns)),
            for_sources_ns: shorter
                .iter()
                .flat_map(|shorter| &shorter.sources_ns)
                .map(|source| added(indices, source))
                .collect(),
        };
        let kind = |(shape, mut indices): (Option<CollectiveShape>, Vec<usize>)| {
            indices.sort_by_key(|at| Reverse(waits_ns[*at]));
            let (size, stride) = shape.unzip();
            CommunicatorKind {
                size,
                stride: stride.flatten(),
                communicators: indices.len() as u64,
                waits: waits(&indices),
                longest: indices
                    .iter()
                    .take(LONGEST)
                    .map(|at| self.all[*at].report(waits(&[*at])))
                    .collect(),
            }
        };
        kinds.into_iter().map(kind).collect()
    }
}

/// The sum of some communicators' times.
fn added(indices: &[usize], times_ns: &[i64]) -> i64 {
    indices.iter().map(|at| times_ns[*at]).fold(0, later)
}

impl JobCommunicator {
    fn shape(&self) -> CollectiveShape {
        let next = self.ranks.iter().skip(1);
        let strides: BTreeSet<u32> =
            self.ranks.iter().zip(next).map(|(one, next)| next - one).collect();
        let stride = if strides.len() == 1 { strides.first().copied() } else { None };
        (self.ranks.len() as u64, stride)
    }

    fn report(&self, waits: CollectiveWaits) -> CommunicatorReport {
        let end = |rank: Option<&u32>| rank.copied().unwrap_or(0);
        CommunicatorReport {
            name: self.name.clone(),
            ranks: self.ranks.len() as u64,
            first_rank: end(self.ranks.first()),
            last_rank: end(self.ranks.last()),
            waits,
        }
    }
}
