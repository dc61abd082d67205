//! Turns of loops: what a thread does between two waits for input at the same place.

use super::TimeInterval;
use super::messages::packed;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// The C library's functions in which loops wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(u8)]
pub enum WaitCall {
    /// `epoll_wait`.
    EpollWait = 1,
    /// `epoll_pwait`.
    EpollPwait = 2,
    /// `poll`.
    Poll = 3,
    /// `ppoll`.
    Ppoll = 4,
    /// `select`.
    Select = 5,
    /// `pselect`.
    Pselect = 6,
}

impl WaitCall {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::EpollWait, Self::EpollPwait, Self::Poll, Self::Ppoll, Self::Select, Self::Pselect];

    /// The function's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EpollWait => "epoll_wait",
            Self::EpollPwait => "epoll_pwait",
            Self::Poll => "poll",
            Self::Ppoll => "ppoll",
            Self::Select => "select",
            Self::Pselect => "pselect",
        }
    }
}

packed! {
    /// A loop: a thread that waits for input again and again at the same place.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RingLoop {
        /// Kernel id of the thread, as the process sees it.
        pub tid: u32,
        /// Where it waits.
        pub call: WaitCall,
        /// The call's first argument, the number of descriptors or one of them; of `poll` the first descriptor.
        pub argument: u32,
    }

    /// The turns of a loop that ended in an interval.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RingTurns {
        /// The loop.
        pub place: RingLoop,
        /// The interval.
        pub interval: TimeInterval,
        /// Their number.
        pub turns: u64,
        /// The sum of their lengths, in ns.
        pub total_ns: u64,
        /// The longest turn of the loop so far, in ns.
        pub longest_ns: u64,
        /// Waits that took so long that the thread left the CPU.
        pub waits: u64,
        /// The sum of these waits, in ns.
        pub waited_ns: u64,
        /// The longest time between two of these waits so far, in ns.
        pub longest_busy_ns: u64,
        /// By length.
        pub lengths: Vec<RingLengthCount>,
    }

    /// Turns of about the same length.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingLengthCount {
        /// The length, as `gctrace_units::length_bucket` numbers lengths.
        pub bucket: u16,
        /// Their number.
        pub turns: u32,
    }

    /// A turn that was long, compared to the others of its loop, or contains a millisecond of collections.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RingTurn {
        /// The loop.
        pub place: RingLoop,
        /// From the return of the wait to the next wait or look.
        pub interval: TimeInterval,
        /// Time in collections of this thread, in ns.
        pub in_pauses_ns: u64,
        /// CPU time of the thread outside of collections, in ns; `None` if it was not read.
        pub cpu_ns: Option<u64>,
    }
}
