//! Loops, and turns of theirs.

use crate::decode::off_cpu::reason;
use crate::event::LoopKey;
use crate::wire::{LoopKeyWire, LoopState, TurnWire, WaitReason};
use gctrace_event::{LoopPlace, THREAD_CALL, Turn, Turns, WORK_CALL};
use gctrace_units::LAST_BUCKET;

/// `SPENT_IN_PAUSES` of `bpf/event.h`: the times before are waits by reason.
const IN_PAUSES: usize = WaitReason::WAIT_REASONS.0 as usize;

/// `CALL_THREAD` of `bpf/event.h`.
const CALL_THREAD: i64 = -2;

// The programs count in as many buckets.
const _: fn(&LoopState) -> &[u32; LAST_BUCKET as usize + 1] = |state| &state.lengths;

/// `None` of a turn that ends before it starts.
pub(crate) fn turn(wire: &TurnWire) -> Option<Turn> {
    let (waits, in_pauses) = wire.spent_ns.split_at_checked(IN_PAUSES)?;
    let waits = (0..).zip(waits).filter(|(_, spent_ns)| **spent_ns > 0);
    if wire.start_ns > wire.end_ns {
        return None;
    }
    Some(Turn {
        pid: wire.place.pid,
        tid: wire.place.tid,
        start_ns: wire.start_ns,
        end_ns: wire.end_ns,
        place: place(&wire.place),
        in_pauses_ns: in_pauses.iter().sum(),
        waits: waits.map(|(number, spent_ns)| (reason(number), *spent_ns)).collect(),
        cpu_ns: None,
    })
}

/// All turns of a loop so far. The interval is left for the caller.
pub(crate) fn turns(key: &LoopKeyWire, state: &LoopState) -> Turns {
    let lengths = (0..).zip(state.lengths).filter(|(_, count)| *count > 0);
    Turns {
        pid: key.pid,
        tid: key.tid,
        place: place(key),
        turns: state.turns,
        total_ns: state.turns_ns,
        longest_ns: state.longest_ns,
        waits: state.waits,
        waited_ns: state.waited_ns,
        longest_busy_ns: state.longest_busy_ns,
        lengths: lengths.map(|(bucket, count)| (bucket, count.into())).collect(),
        ..Turns::default()
    }
}

pub(crate) fn key(wire: &LoopKeyWire) -> LoopKey {
    LoopKey { pid: wire.pid, tid: wire.tid, system_call: wire.system_call, place: place(wire) }
}

fn place(key: &LoopKeyWire) -> LoopPlace {
    LoopPlace { call: name(key.system_call.into()), argument: key.first_argument }
}

/// The name of a system call in which threads wait for input.
fn name(number: i64) -> String {
    let known = match number {
        libc::SYS_epoll_pwait => "epoll_pwait",
        libc::SYS_epoll_pwait2 => "epoll_pwait2",
        libc::SYS_ppoll => "ppoll",
        libc::SYS_pselect6 => "pselect6",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => "epoll_wait",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => "poll",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => "select",
        libc::SYS_futex => WORK_CALL,
        CALL_THREAD => THREAD_CALL,
        libc::SYS_read => "read",
        libc::SYS_readv => "readv",
        libc::SYS_recvfrom => "recvfrom",
        libc::SYS_recvmsg => "recvmsg",
        libc::SYS_recvmmsg => "recvmmsg",
        libc::SYS_accept => "accept",
        libc::SYS_accept4 => "accept4",
        libc::SYS_write => "write",
        libc::SYS_writev => "writev",
        libc::SYS_sendto => "sendto",
        libc::SYS_sendmsg => "sendmsg",
        libc::SYS_connect => "connect",
        _ => return format!("system call {number}"),
    };
    known.to_owned()
}
