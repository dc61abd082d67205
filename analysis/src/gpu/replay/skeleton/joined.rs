//! The skeletons of a job's ranks, joined at their collectives.

use super::{Skeleton, SkeletonMark};
use crate::figure::PauseTotal;
use crate::gpu::replay::network::{
    DelayChange, EdgeIndex, Network, NetworkBuilder, NetworkNodeId, TieOrder,
};
use crate::gpu::replay::steps::{ReplayedStep, StepEvidenceReport};
use crate::gpu::replay::{ReplayCollective, last_and_waited};
use crate::spans::index::Index;
use crate::time::{difference, duration_ns, sum, timestamp};

/// A job that can be replayed, each rank in one of its skeleton's scenarios.
#[derive(Debug)]
pub struct JoinedSkeletons<'a> {
    network: Network,
    ranks: Vec<JoinedRank<'a>>,
    /// One per collective that it was joined at.
    meetings: Vec<JoinedMeeting>,
    /// Zero of the network, on the job's common clock.
    base: i128,
}

#[derive(Debug)]
struct JoinedRank<'a> {
    skeleton: &'a Skeleton,
    first_node: usize,
    first_edge: usize,
}

/// Where ranks meet.
#[derive(Debug, Default)]
struct JoinedMeeting {
    /// The start of the last of them; `None` if no rank of it is known.
    last: Option<NetworkNodeId>,
    /// Starts and ends of the ranks that wait for it.
    waited: Vec<(NetworkNodeId, NetworkNodeId)>,
}

/// Times of one replay. Its functions panic on ranks that are not in the job.
#[derive(Debug)]
pub struct JoinedReplay<'a> {
    joined: &'a JoinedSkeletons<'a>,
    times: Vec<i64>,
}

impl<'a> JoinedSkeletons<'a> {
    /// `offsets_ns`: one per skeleton, added to a time of its timeline to get the job's common
    /// clock. `collectives`: their timelines are places in `skeletons`; members that are no cut of
    /// theirs are left out. Kernels that are in no collective, or did not wait in it, take as long
    /// as measured.
    ///
    /// # Panics
    ///
    /// If there would be more than 2^32 - 1 nodes or edges.
    pub fn join<'b>(
        skeletons: &[&'a Skeleton],
        offsets_ns: &[i64],
        collectives: impl IntoIterator<Item = &'b ReplayCollective>,
    ) -> Self {
        let origins = skeletons.iter().zip(offsets_ns);
        let origins: Vec<i128> = origins
            .map(|(skeleton, offset_ns)| i128::from(skeleton.origin_ns) + i128::from(*offset_ns))
            .collect();
        let base = origins.iter().copied().min().unwrap_or_default();
        let mut builder = NetworkBuilder::default();
        let mut joined: Vec<JoinedRank<'a>> = Vec::new();
        let (mut nodes, mut edges) = (0, 0);
        for (skeleton, origin) in skeletons.iter().zip(&origins) {
            let rank = JoinedRank { skeleton, first_node: nodes, first_edge: edges };
            for time_ns in &skeleton.times_ns {
                let at = i128::from(*time_ns) + origin - base;
                builder.node(saturated(at), TieOrder::CallEnd);
            }
            for edge in &skeleton.edges {
                builder.edge(rank.node(edge.from), rank.node(edge.to), edge.delay_ns);
            }
            nodes += skeleton.times_ns.len();
            edges += skeleton.edges.len();
            joined.push(rank);
        }
        let mut met: Vec<Vec<bool>> =
            skeletons.iter().map(|skeleton| vec![false; skeleton.meets.len()]).collect();
        let mut meetings: Vec<JoinedMeeting> = Vec::new();
        for collective in collectives {
            let members = collective.members.iter().filter_map(|member| {
                let at = member.timeline as usize;
                let skeleton = joined.get(at)?.skeleton;
                let op = |meet: &super::SkeletonMeet| meet.op as usize;
                let meet = skeleton.meets.binary_search_by_key(&member.op.at(), op).ok()?;
                Some((at, meet))
            });
            let members: Vec<(usize, usize)> = members.collect();
            let spans = members.iter().map(|(rank, meet)| {
                let rank = &joined[*rank];
                let meet = &rank.skeleton.meets[*meet];
                (rank.node(meet.start), rank.node(meet.end))
            });
            let spans: Vec<(NetworkNodeId, NetworkNodeId)> = spans.collect();
            if spans.is_empty() {
                meetings.push(JoinedMeeting::default());
                continue;
            }
            let times = spans.iter().map(|(start, end)| (builder.time(*start), builder.time(*end)));
            let (last, waited) = last_and_waited(&times.collect::<Vec<_>>());
            let meeting = builder.node(last, TieOrder::Meeting);
            let mut waiting = Vec::new();
            for (((start, end), (rank, meet)), waited) in spans.into_iter().zip(members).zip(waited)
            {
                builder.edge(start, meeting, 0);
                if waited {
                    met[rank][meet] = true;
                    builder.edge(start, end, 0);
                    builder.fixed(meeting, end);
                    waiting.push((start, end));
                }
            }
            meetings.push(JoinedMeeting { last: Some(meeting), waited: waiting });
        }
        for (rank, met) in joined.iter().zip(met) {
            for (meet, met) in rank.skeleton.meets.iter().zip(met) {
                if !met {
                    builder.fixed(rank.node(meet.start), rank.node(meet.end));
                }
            }
        }
        Self { network: builder.finish(), ranks: joined, meetings, base }
    }

    /// A replay with each rank in the scenario that `scenario` returns for its place: [`Self::MEASURED`],
    /// [`Self::WITHOUT_PAUSES`], or a change of its skeleton.
    ///
    /// # Panics
    ///
    /// If the skeleton of a rank does not have the scenario.
    pub fn replay(&self, scenario: impl Fn(usize) -> usize) -> JoinedReplay<'_> {
        let mut deltas: Vec<DelayChange> = Vec::new();
        for (at, rank) in self.ranks.iter().enumerate() {
            let column = rank.skeleton.scenarios[scenario(at)] as usize;
            let changed = rank.skeleton.columns[column].iter();
            deltas.extend(changed.map(|changed| DelayChange {
                edge: EdgeIndex::new(rank.first_edge + changed.edge as usize),
                by_ns: changed.by_ns,
            }));
        }
        let mut run = self.network.run();
        run.change(&deltas, None);
        JoinedReplay { joined: self, times: run.into_times() }
    }

    /// The scenario of the measured run.
    pub const MEASURED: usize = 0;
    /// The scenario without any pause of the rank.
    pub const WITHOUT_PAUSES: usize = 1;
    /// The scenario of the first change that the skeletons were made with; the other changes'
    /// follow.
    pub const FIRST_CHANGE: usize = 2;

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// The pauses of a rank.
    pub(crate) fn pauses(&self, rank: usize) -> PauseTotal {
        let skeleton = self.ranks[rank].skeleton;
        PauseTotal { count: skeleton.pauses, time_ns: skeleton.paused_ns }
    }

    /// Number of all steps of a rank.
    pub(crate) fn steps(&self, rank: usize) -> u64 {
        let stepping = &self.ranks[rank].skeleton.stepping;
        if let Some(stepping) = &stepping { stepping.count } else { 0 }
    }

    /// Number of nodes, of the skeletons and of their meetings.
    pub fn timestamps(&self) -> usize {
        self.network.len()
    }

    /// First measured time of anything on the common clock, in ns.
    pub fn start_ns(&self) -> u64 {
        timestamp(self.base)
    }
}

fn saturated(at: i128) -> i64 {
    i64::try_from(at).unwrap_or(if at < 0 { i64::MIN } else { i64::MAX })
}

impl JoinedRank<'_> {
    fn node(&self, node: u32) -> NetworkNodeId {
        Index::new(self.first_node + node as usize)
    }
}

impl JoinedReplay<'_> {
    /// The last end of any operation or call of a rank, on the common clock in ns; 0 if it has none.
    /// Calls of threads that only poll are ignored.
    pub fn end_ns(&self, rank: usize) -> u64 {
        let end = self.joined.ranks[rank].skeleton.end;
        if let Some(end) = end { self.on_clock(self.time(rank, end)) } else { 0 }
    }

    /// Start and end of each step of the rank's thread with most steps, on the common clock in ns.
    pub fn steps_ns(&self, rank: usize) -> impl Iterator<Item = (u64, u64)> {
        let steps = self.joined.ranks[rank].skeleton.steps.iter();
        steps.map(move |step| (self.mark(rank, step.start), self.mark(rank, step.end)))
    }

    /// Time from the start of the first step of a rank until everything launched in its steps has
    /// finished, in ns: if the host runs ahead, a step ends long before its work. `None` without
    /// steps.
    pub fn stepping_ns(&self, rank: usize) -> Option<u64> {
        let stepping = self.joined.ranks[rank].skeleton.stepping?;
        let returned_ns = self.mark(rank, stepping.end);
        let finished = stepping.finished.map(|node| self.on_clock(self.time(rank, node)));
        let start_ns = self.mark(rank, stepping.start);
        let end_ns = returned_ns.max(finished.unwrap_or(returned_ns));
        Some(duration_ns(start_ns, end_ns))
    }

    /// For each collective that the skeletons were joined at, the time that its members waited in it
    /// for the last one, added, in ns.
    pub(crate) fn waits_ns(&self) -> impl Iterator<Item = u64> {
        let time = |node| self.joined.network.time_in(&self.times, node);
        self.joined.meetings.iter().map(move |meeting| {
            let waits = meeting.last.into_iter().flat_map(|last| {
                let waited = meeting.waited.iter();
                waited.map(move |(start, end)| (time(last).min(time(*end)), time(*start)))
            });
            sum(waits.map(|(until, start)| u64::try_from(difference(until, start)).unwrap_or(0)))
        })
    }

    /// The evidence of a rank's steps, in a replay without any pause; `None` with fewer than five.
    pub(crate) fn step_evidence(&self, rank: usize) -> Option<StepEvidenceReport> {
        let steps = self.joined.ranks[rank].skeleton.steps.iter();
        let replayed = steps.map(|step| ReplayedStep {
            paused: step.paused,
            without_ns: duration_ns(self.mark(rank, step.start), self.mark(rank, step.end)),
        });
        StepEvidenceReport::of(replayed.collect())
    }

    fn mark(&self, rank: usize, mark: SkeletonMark) -> u64 {
        let no_later = if let Some(of) = mark.no_later { self.time(rank, of) } else { i64::MAX };
        self.on_clock(self.time(rank, mark.node).min(no_later))
    }

    fn time(&self, rank: usize, node: u32) -> i64 {
        let node = self.joined.ranks[rank].node(node);
        self.joined.network.time_in(&self.times, node)
    }

    fn on_clock(&self, time_ns: i64) -> u64 {
        timestamp(i128::from(time_ns) + self.joined.base)
    }
}
