//! Matches kernels that send to kernels that receive, once the clocks are known.
//!
//! NCCL runs sends and receives between two ranks of a communicator in order, so that only the
//! first pair is to be found: profiles of two ranks may start at different ones. Sequence numbers
//! do not identify them: PyTorch counts the sends and receives of each rank by itself.

use super::groups::PlacedRank;
use super::kernels::{TransferChannel, TransferKernel};
use super::pairs::SLACK_NS;
use crate::time::later;
use std::collections::BTreeMap;

/// How far the first pair is searched from the pair with the closest ends.
const REACH: i64 = 32;
/// The pairs of an assignment must end closer together than any other assignment's by this factor,
const CLEARLY: u64 = 2;
/// and at least this many tenths of the kernels of the side with fewer must be in pairs.
const FEWEST_TENTHS: usize = 5;

/// One rank's kernels of a channel, on the job's clock.
#[derive(Debug, Default)]
struct ChannelSide {
    /// Position of the rank.
    position: usize,
    /// By start.
    kernels: Vec<TransferKernel>,
}

/// The senders and the receivers of a channel. There is one of each unless ranks of several
/// communicators have equal numbers.
#[derive(Debug, Default)]
struct Channel {
    senders: Vec<ChannelSide>,
    receivers: Vec<ChannelSide>,
}

/// A sending kernel and the kernel that receives from it, each with the position of its rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferPair {
    pub(super) send: (usize, TransferKernel),
    pub(super) receive: (usize, TransferKernel),
}

/// Pairs the kernels of all ranks, each with its clock offset.
pub(super) fn find(ranks: &[PlacedRank<'_>]) -> Vec<TransferPair> {
    let mut channels: BTreeMap<TransferChannel, Channel> = BTreeMap::new();
    for (position, rank) in ranks.iter().enumerate() {
        for kernel in &rank.kernels.transfers {
            let Some(channel) = kernel.channel else {
                continue;
            };
            let channel = channels.entry(channel).or_default();
            let sides = if kernel.sends { &mut channel.senders } else { &mut channel.receivers };
            if sides.last().is_none_or(|side| side.position != position) {
                sides.push(ChannelSide { position, kernels: Vec::new() });
            }
            if let Some(side) = sides.last_mut() {
                side.kernels.push(TransferKernel {
                    start_ns: later(kernel.start_ns, rank.offset_ns),
                    end_ns: later(kernel.end_ns, rank.offset_ns),
                    ..*kernel
                });
            }
        }
    }
    let mut pairs = Vec::new();
    for channel in channels.values() {
        if let ([send], [receive]) = (channel.senders.as_slice(), channel.receivers.as_slice()) {
            pairs.extend(pair(send, receive));
        }
    }
    pairs
}

/// The pairs of a channel; none where several assignments fit.
fn pair(send: &ChannelSide, receive: &ChannelSide) -> Vec<TransferPair> {
    let Some(middle) = middle(send, receive) else {
        return Vec::new();
    };
    let shifts = (middle - REACH..=middle + REACH)
        .filter_map(|shift| Some((apart_ns(send, receive, shift)?, shift)));
    let mut shifts: Vec<(u64, i64)> = shifts.collect();
    shifts.sort_unstable();
    let best = match shifts.as_slice() {
        [only] => *only,
        [best, next, ..] if next.0 > best.0 * CLEARLY + SLACK_NS.unsigned_abs() => *best,
        _ => return Vec::new(),
    };
    let pairs = assigned(send, receive, best.1).map(|(sent, received)| TransferPair {
        send: (send.position, *sent),
        receive: (receive.position, *received),
    });
    pairs.collect()
}

/// Distance in places to the send with its end closest to the middle receive's end.
fn middle(send: &ChannelSide, receive: &ChannelSide) -> Option<i64> {
    let at = receive.kernels.len() / 2;
    let end_ns = receive.kernels.get(at)?.end_ns;
    let sends = (0i64..).zip(&send.kernels);
    let (closest, _) = sends.min_by_key(|(_, sent)| sent.end_ns.abs_diff(end_ns))?;
    Some(closest - i64::try_from(at).ok()?)
}

/// Each receive with the send that many places later.
fn assigned<'a>(
    send: &'a ChannelSide,
    receive: &'a ChannelSide,
    shift: i64,
) -> impl Iterator<Item = (&'a TransferKernel, &'a TransferKernel)> {
    let at = |shift: i64| usize::try_from(shift).unwrap_or_default();
    let sends = send.kernels.iter().skip(at(shift));
    let receives = receive.kernels.iter().skip(at(-shift));
    sends.zip(receives)
}

/// Median distance of the ends of an assignment; `None` if it is impossible or has too few pairs: a
/// receive ends after its send has started, and not before it ends.
fn apart_ns(send: &ChannelSide, receive: &ChannelSide, shift: i64) -> Option<u64> {
    let mut apart: Vec<u64> = Vec::new();
    for (sent, received) in assigned(send, receive, shift) {
        if later(received.end_ns, SLACK_NS) < sent.end_ns {
            return None;
        }
        apart.push(received.end_ns.abs_diff(sent.end_ns));
    }
    let fewer = send.kernels.len().min(receive.kernels.len());
    if apart.len() * 10 < fewer * FEWEST_TENTHS {
        return None;
    }
    gctrace_stats::median_low(&mut apart)
}
