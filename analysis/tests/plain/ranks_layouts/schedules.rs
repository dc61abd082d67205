//! What the ranks of a job do: tensor-, data-, expert- and pipeline-parallel groups.

use super::{Act, Layout, US, random};

/// The ranks in groups of neighbors, and all of them as the last group.
pub(crate) fn neighbors(ranks: u32, size: u32) -> Vec<Vec<u32>> {
    let all: Vec<u32> = (0..ranks).collect();
    let mut groups: Vec<Vec<u32>> = all.chunks(size as usize).map(<[u32]>::to_vec).collect();
    groups.push(all);
    groups
}

/// What each rank of these groups does, with ends read to 2 us.
fn layout(groups: Vec<Vec<u32>>, acts: impl Iterator<Item = Vec<Act>>, seed: u64) -> Layout {
    Layout { acts: acts.collect(), groups, noise_ns: 2 * US, seed, ..Layout::default() }
}

/// Steps of collectives of neighbors and one of all; computing takes a mean time and up to a share
/// of it more, the same on all ranks where that is 0.
pub(crate) fn in_step(
    ranks: u32,
    size: u32,
    steps: u64,
    mean_ns: u64,
    more_ns: u64,
    seed: u64,
) -> Layout {
    let groups = neighbors(ranks, size);
    let all = groups.len() - 1;
    let acts = (0..u64::from(ranks)).map(|rank| {
        let steps = (0..steps).flat_map(|step| {
            let few = (0..6).flat_map(move |bucket| {
                let more_ns = random(seed, [rank, step, bucket], more_ns + 1);
                let group = rank as usize / size as usize;
                let last = if bucket < 5 { group } else { all };
                [Act::Compute(mean_ns + bucket * 10 * US + more_ns), Act::Together(last)]
            });
            few.chain([Act::Step])
        });
        steps.collect()
    });
    layout(groups, acts, seed)
}

/// Expert-parallel groups across the data-parallel ones, with loads that differ from step to step.
pub(crate) fn expert_parallel(seed: u64) -> Layout {
    let (ranks, size) = (8u32, 4u32);
    let mut groups: Vec<Vec<u32>> = neighbors(ranks, size);
    let all_ranks = groups.len() - 1;
    let across = groups.len();
    groups.extend((0..size).map(|at| vec![at, at + size]));
    let acts = (0..ranks).map(|rank| {
        let steps = (0..15u64).flat_map(|step| {
            let load = |what, mean| {
                let place = [u64::from(rank), step, what];
                Act::Compute(mean + random(seed, place, 2 * mean))
            };
            let group = (rank / size) as usize;
            [
                load(1, 150 * US),
                Act::Together(group),
                load(2, 400 * US),
                Act::Together(group),
                load(3, 100 * US),
                Act::Together(across + (rank % size) as usize),
                load(4, 50 * US),
                Act::Together(all_ranks),
                Act::Step,
            ]
        });
        steps.collect()
    });
    layout(groups, acts, seed)
}

/// The order of virtual stages of one rank, as in Megatron-LM's interleaved 1F1B schedule
/// (Narayanan et al. 2021, section 2.2).
pub(crate) fn interleaved(
    stages: u32,
    chunks: u32,
    batches: u32,
    copies: u32,
    seed: u64,
) -> Layout {
    let ranks = stages * copies;
    let mut groups: Vec<Vec<u32>> =
        (0..stages).map(|stage| (0..copies).map(|copy| copy * stages + stage).collect()).collect();
    groups.push((0..ranks).collect());
    let total = batches * chunks;
    let acts = (0..ranks).map(|rank| {
        let (stage, first) = (rank % stages, rank / stages * stages);
        let warmup = ((stages - stage - 1) * 2 + (chunks - 1) * stages).min(total);
        let before = first + (stage + stages - 1) % stages;
        let after = first + (stage + 1) % stages;
        let mut acts = Vec::new();
        for step in 0..4u64 {
            let mut one = |number: u32, forward: bool| {
                let chunk = number % (stages * chunks) / stages;
                let chunk = if forward { chunk } else { chunks - 1 - chunk };
                let start = stage == 0 && chunk == 0;
                let end = stage == stages - 1 && chunk == chunks - 1;
                let (from, to, has_from, has_to) = if forward {
                    (before, after, !start, !end)
                } else {
                    (after, before, !end, !start)
                };
                if has_from {
                    acts.push(Act::Receive(from));
                }
                let mean = if forward { 300 * US } else { 600 * US };
                let place = [u64::from(rank), step, u64::from(number) * 2 + u64::from(forward)];
                acts.push(Act::Compute(mean + random(seed, place, mean / 10)));
                if has_to {
                    acts.push(Act::Send(to));
                }
            };
            (0..warmup).for_each(|number| one(number, true));
            for number in warmup..total {
                one(number, true);
                one(number - warmup, false);
            }
            (total - warmup..total).for_each(|number| one(number, false));
            acts.extend([
                Act::Together(stage as usize),
                Act::Compute(100 * US),
                Act::Together(stages as usize),
                Act::Step,
            ]);
        }
        acts
    });
    layout(groups, acts, seed)
}
