//! Matches kernels without a sequence number to collectives, once the clocks are known.
//!
//! If the profiler named the communicator, kernels are matched by name and order. For other kernels, it decides
//! whether ends that agree show one communicator, or several that run the same program in step. Ends of several agree
//! within a millisecond, too, until one communicator is delayed. Owns that decision; undecided kernels are not
//! matched.

use super::kernels::{CollectiveKernel, CollectiveKernels};
use super::pairs::{DraftCollective, FEWEST_TENTHS, OffsetMatch, within};
use crate::gpu::timeline::NameIndex;
use crate::time::difference;
use std::collections::BTreeSet;

/// GPU clocks are read with an error of at least this.
const LEAST_NOISE_NS: u64 = 250;
/// A lateness shows a wait if it is this many times the difference of the ends.
const CLEARLY: u64 = 4;
/// From this much evidence on ranks count as of one communicator, as a natural logarithm: a chance of one in 10,000
/// (`e^9.2`) that ranks without waits for each other agree as well.
const ENOUGH: f64 = 9.2;
/// Ends of one communicator usually differ by less: its ranks end together, and clocks of GPUs are
/// read with an error of some microseconds. Ends of groups in step differ as their kernels do.
const MOST_NOISE_NS: u64 = 15_000;
/// At least this many in a hundred kernels, from the time with both recorded, have a partner in a communicator.
/// Groups in step part where one of them is late.
const FEWEST_HUNDREDTHS: usize = 95;
/// Collectives that only one of the two saw whole: at the start and at the end of that time.
const EDGES: usize = 2;
/// Ends that differ by this many times the usual are of other collectives, or badly measured.
const OUTLIER: u64 = 10;
/// Evidence that one outlier takes away ...
const OUTLIER_COSTS: f64 = 20.0;
/// ... and one of this many ends may be one.
const OUTLIERS_ONE_OF: usize = 100;
/// Ends farther apart than this multiple of the difference within a communicator are of another.
const OTHER: u64 = 8;
/// Number of times that undecided communicators are compared again.
const ROUNDS: usize = 3;

/// Collectives of kernels without a sequence number.
#[derive(Debug, Default)]
pub(super) struct MatchedGroups {
    /// Collectives with known members; with one member where no other rank took part.
    pub(super) collectives: Vec<DraftCollective>,
    /// Number of kernels that may be of one collective with others, or not.
    pub(super) ambiguous: u64,
}

/// One rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedRank<'a> {
    /// From its clock to the job's.
    pub(super) offset_ns: i64,
    /// Whether that does not rest on kernels without a sequence number.
    pub(super) is_certain: bool,
    pub(super) kernels: &'a CollectiveKernels,
}

/// Other ranks of the job that some ranks are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherRanks {
    /// It has no others.
    None,
    /// It may have others.
    Unknown,
    /// Other traces may be of them.
    InTraces,
}

/// Kernels of one communicator on the job's clock.
#[derive(Debug, Default)]
struct KernelGroup {
    name: Option<NameIndex>,
    /// Positions of its ranks.
    ranks: BTreeSet<usize>,
    /// By end.
    collectives: Vec<DraftCollective>,
    /// How much the ends of its ranks usually differ; `None` of one rank.
    noise_ns: Option<u64>,
    undecided: bool,
}

/// How kernels of one rank, or of one group, compare with another group's.
enum GroupMatch {
    /// They are of other communicators.
    Other,
    /// Their ends agree, but the ends of groups in step could as well.
    Undecided,
    Same {
        noise_ns: u64,
    },
}

/// Matches the kernels without a sequence number of all ranks.
pub(super) fn find(ranks: &[PlacedRank<'_>], others: OtherRanks) -> MatchedGroups {
    let enough = match others {
        // There is no other communicator that they could be of.
        OtherRanks::None => f64::NEG_INFINITY,
        OtherRanks::Unknown | OtherRanks::InTraces => ENOUGH,
    };
    let mut groups: Vec<KernelGroup> = Vec::new();
    let mut undecided: Vec<(usize, usize)> = Vec::new();
    for (position, rank) in ranks.iter().enumerate() {
        for chain in rank.kernels.by_chain() {
            let kernels = chain.iter().map(|at| &rank.kernels.collective[*at]);
            let group = KernelGroup::of(kernels, position, rank.offset_ns);
            if let Some(group) = group {
                place(group, enough, &mut groups, &mut undecided);
            }
        }
    }
    for _ in 0..ROUNDS {
        if !merge_undecided(enough, &mut groups, &mut undecided) {
            break;
        }
    }
    for (one, other) in undecided {
        if groups[one].undecided && groups[other].undecided {
            continue;
        }
        if let GroupMatch::Undecided = groups[one].verdict(&groups[other], enough).0 {
            groups[one].undecided = true;
            groups[other].undecided = true;
        }
    }
    let mut found = MatchedGroups::default();
    // At a wrong clock, kernels of one collective are taken for kernels of different ones.
    let is_wrong = others == OtherRanks::InTraces || !are_related(ranks, &groups);
    for group in groups {
        if group.undecided || is_wrong && group.name.is_none() {
            let members = group.collectives.iter().map(|one| one.members.len() as u64);
            found.ambiguous += members.sum::<u64>();
        } else {
            found.collectives.extend(group.collectives);
        }
    }
    found
}

/// Adds kernels to the group that they are of, or makes them a group of their own.
fn place(
    chain: KernelGroup,
    enough: f64,
    groups: &mut Vec<KernelGroup>,
    undecided: &mut Vec<(usize, usize)>,
) {
    // The group with the best agreement of ends: other communicators of the same ranks end late whenever this one
    // does.
    let mut best: Option<(u64, usize)> = None;
    let mut maybe: Vec<usize> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        if group.name != chain.name {
            continue;
        }
        if group.name.is_some() {
            best = Some((LEAST_NOISE_NS, at));
            break;
        }
        match group.verdict(&chain, enough).0 {
            GroupMatch::Other => {}
            GroupMatch::Undecided => maybe.push(at),
            GroupMatch::Same { noise_ns } => {
                if best.is_none_or(|(known_ns, _)| noise_ns < known_ns) {
                    best = Some((noise_ns, at));
                }
                maybe.push(at);
            }
        }
    }
    let chosen = match best {
        Some((noise_ns, at)) => {
            groups[at].add(chain, noise_ns);
            at
        }
        None => {
            groups.push(chain);
            groups.len() - 1
        }
    };
    undecided.extend(maybe.into_iter().filter(|at| *at != chosen).map(|at| (at, chosen)));
}

/// Merges groups that turned out to be one. Returns whether any did.
fn merge_undecided(
    enough: f64,
    groups: &mut [KernelGroup],
    undecided: &mut Vec<(usize, usize)>,
) -> bool {
    let mut merged_into: Vec<usize> = (0..groups.len()).collect();
    let mut any = false;
    for (one, other) in undecided.iter_mut() {
        (*one, *other) = (root(&merged_into, *one), root(&merged_into, *other));
        if one == other {
            continue;
        }
        if let GroupMatch::Same { noise_ns } = groups[*one].verdict(&groups[*other], enough).0 {
            let taken = std::mem::take(&mut groups[*other]);
            groups[*one].add(taken, noise_ns);
            merged_into[*other] = *one;
            any = true;
        }
    }
    for (one, other) in undecided.iter_mut() {
        (*one, *other) = (root(&merged_into, *one), root(&merged_into, *other));
    }
    undecided.retain(|(one, other)| one != other);
    undecided.sort_unstable();
    undecided.dedup();
    any
}

/// Whether collectives relate every rank to every other, so that their clocks are right.
fn are_related(ranks: &[PlacedRank<'_>], groups: &[KernelGroup]) -> bool {
    let mut related_to: Vec<usize> = (0..ranks.len()).collect();
    let certain: BTreeSet<usize> =
        (0..ranks.len()).filter(|position| ranks[*position].is_certain).collect();
    for together in groups.iter().map(|group| &group.ranks).chain([&certain]) {
        let Some(first) = together.first() else { continue };
        for other in together {
            let (first, other) = (root(&related_to, *first), root(&related_to, *other));
            related_to[first.max(other)] = first.min(other);
        }
    }
    (0..ranks.len()).all(|position| root(&related_to, position) == 0)
}

fn root(merged_into: &[usize], mut at: usize) -> usize {
    while merged_into[at] != at {
        at = merged_into[at];
    }
    at
}

impl KernelGroup {
    /// The kernels of one rank, `None` without any.
    fn of<'a>(
        kernels: impl Iterator<Item = &'a CollectiveKernel>,
        position: usize,
        offset_ns: i64,
    ) -> Option<Self> {
        let mut name = None;
        let collectives = kernels.map(|kernel| {
            name = kernel.group;
            DraftCollective::begin(kernel, position, offset_ns)
        });
        let collectives: Vec<DraftCollective> = collectives.collect();
        if collectives.is_empty() {
            return None;
        }
        Some(Self {
            name,
            ranks: BTreeSet::from([position]),
            collectives,
            noise_ns: None,
            undecided: false,
        })
    }

    /// The pairs of collectives that can be one: index here, index there.
    fn pairs(&self, other: &Self) -> Option<Vec<(usize, usize)>> {
        let kernels: Vec<CollectiveKernel> =
            other.collectives.iter().map(DraftCollective::kernel).collect();
        let beside = OffsetMatch { meetings: &self.collectives, kernels: &kernels, offset_ns: 0 };
        let all: Vec<usize> = (0..self.collectives.len()).collect();
        let others: Vec<usize> = (0..kernels.len()).collect();
        let mut pairs = beside.pairs(&all, &others);
        let agree = self.name.is_some()
            || self.ranks.is_disjoint(&other.ranks) && beside.agree(&all, &others, &pairs);
        pairs.retain(|(one, other)| self.collectives[*one].overlaps(&kernels[*other], 0));
        let enough = pairs.len() * 10 >= all.len().min(others.len()) * FEWEST_TENTHS;
        if agree && (enough || self.name.is_some()) { Some(pairs) } else { None }
    }

    /// Whether both are of one communicator.
    ///
    /// Ranks of one communicator wait for each other: whichever is late, and by how much, they end together. So their
    /// ends must agree far better than the start times of their last rank vary, and better than their starts differ.
    /// `enough`: the evidence required, as a natural logarithm.
    fn verdict(&self, other: &Self, enough: f64) -> (GroupMatch, Vec<(usize, usize)>) {
        let Some(pairs) = self.pairs(other) else { return (GroupMatch::Other, Vec::new()) };
        let (mut apart, mut arrivals, mut lasts) = (Vec::new(), Vec::new(), Vec::new());
        for neighbors in pairs.windows(2) {
            let ends = |(one, there): (usize, usize)| {
                (self.collectives[one].end_ns, other.collectives[there].end_ns)
            };
            let (before, after) = (ends(neighbors[0]), ends(neighbors[1]));
            let (one, there) = neighbors[1];
            let (one, there) = (&self.collectives[one], &other.collectives[there]);
            let lengths = (difference(after.0, before.0), difference(after.1, before.1));
            let arrival =
                (difference(one.start_ns, before.0), difference(there.start_ns, before.1));
            apart.push(lengths.0.abs_diff(lengths.1));
            arrivals.push(difference(arrival.0, arrival.1));
            lasts.push(arrival.0.max(arrival.1));
        }
        let Some(usual_ns) = gctrace_stats::median_low(&mut apart.clone()) else {
            return (GroupMatch::Undecided, pairs);
        };
        // The median of absolute values, to the mean of an exponential distribution.
        let noise_ns = (usual_ns * 144 / 100).max(LEAST_NOISE_NS);
        let from_usual = |values: &[i64]| {
            let center = gctrace_stats::median_low(&mut values.to_vec()).unwrap_or_default();
            let off = values.iter().map(move |value| value.abs_diff(center));
            off.collect::<Vec<u64>>()
        };
        let (mut evidence, mut outliers) = (0.0, 0);
        let unusual = from_usual(&arrivals).into_iter().zip(from_usual(&lasts));
        for (apart_ns, (arrival_ns, last_ns)) in apart.iter().zip(unusual) {
            if *apart_ns > noise_ns * OUTLIER {
                outliers += 1;
                evidence -= OUTLIER_COSTS;
                continue;
            }
            let late_ns = arrival_ns.min(last_ns);
            let clear_ns = CLEARLY * noise_ns.max(*apart_ns);
            if late_ns > clear_ns {
                evidence += (late_ns as f64 / clear_ns as f64).ln();
            }
        }
        let within = [self.noise_ns, other.noise_ns].into_iter().flatten().max();
        let is_same = usual_ns <= MOST_NOISE_NS
            && self.is_complete(other, pairs.len())
            && outliers * OUTLIERS_ONE_OF <= apart.len();
        let verdict = if is_same && evidence >= enough {
            GroupMatch::Same { noise_ns }
        } else if matches!(within, Some(within_ns) if usual_ns > OTHER * within_ns) {
            GroupMatch::Other
        } else {
            GroupMatch::Undecided
        };
        (verdict, pairs)
    }

    /// Whether nearly all that ended while both were recorded is in pairs.
    fn is_complete(&self, other: &Self, pairs: usize) -> bool {
        let ends = |group: &Self| {
            let ends = group.collectives.iter().map(|one| one.end_ns);
            ends.collect::<Vec<i64>>()
        };
        let (ends_here, others) = (ends(self), ends(other));
        // All ranks of a communicator take part in each collective: at a wrong clock the few of one
        // communicator may agree with some of the many of another.
        let (here, there) = (within(&ends_here, &others), within(&others, &ends_here));
        let both = here.min(there).max(here.max(there).saturating_sub(EDGES));
        pairs * 100 >= both * FEWEST_HUNDREDTHS
    }

    /// Adds kernels of the same communicator.
    fn add(&mut self, other: Self, noise_ns: u64) {
        let pairs = self.pairs(&other).unwrap_or_default();
        let mut partner = vec![None; other.collectives.len()];
        for (one, there) in pairs {
            partner[there] = Some(one);
        }
        for (collective, partner) in other.collectives.into_iter().zip(partner) {
            match partner {
                Some(one) => self.collectives[one].merge(collective),
                None => self.collectives.push(collective),
            }
        }
        self.collectives.sort_by_key(|collective| collective.end_ns);
        self.ranks.extend(other.ranks);
        self.noise_ns = self.noise_ns.max(other.noise_ns).max(Some(noise_ns));
    }
}
