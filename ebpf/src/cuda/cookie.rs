//! Packs what the BPF program needs to know about a function into its probe's cookie. Pure.

use super::skeleton::types::{call_flag, call_kind, grid_place};
use gctrace_abi::{BytesArgument, CallKind, GridArgument, StreamArgument};

/// Shifts of `bpf/event.h`: `CALL_KIND_SHIFT` to `CALL_FLAGS_SHIFT`.
const KIND_SHIFT: u32 = 16;
const STREAM_SHIFT: u32 = 24;
const BYTES_SHIFT: u32 = 32;
const GRID_SHIFT: u32 = 40;
const FLAGS_SHIFT: u32 = 48;

// `enum call_kind` and `enum grid_place` have the values of `CallKind` and `GridArgument`.
const _: () = {
    assert!(call_kind::CALL_KINDS.0 as usize == CallKind::ALL.len());
    assert!(call_kind::CALL_LAUNCH.0 == CallKind::Launch as u32);
    assert!(call_kind::CALL_SYNCHRONIZE.0 == CallKind::Synchronize as u32);
    assert!(call_kind::CALL_COPY.0 == CallKind::Copy as u32);
    assert!(call_kind::CALL_SET.0 == CallKind::Set as u32);
    assert!(call_kind::CALL_ALLOCATE.0 == CallKind::Allocate as u32);
    assert!(call_kind::CALL_FREE.0 == CallKind::Free as u32);
    assert!(call_kind::CALL_EVENT.0 == CallKind::Event as u32);
    assert!(call_kind::CALL_COLLECTIVE.0 == CallKind::Collective as u32);
    assert!(call_kind::CALL_STEP.0 == CallKind::Step as u32);
    assert!(call_kind::CALL_MEMORY.0 == CallKind::Memory as u32);
    assert!(grid_place::GRID_NONE.0 == GridArgument::None as u32);
    assert!(grid_place::GRID_ARGUMENTS.0 == GridArgument::Arguments as u32);
    assert!(grid_place::GRID_DIM3.0 == GridArgument::Dim3 as u32);
    assert!(grid_place::GRID_CONFIGURATION.0 == GridArgument::Configuration as u32);
};

/// The number of the argument, or `STREAM_IN_CONFIGURATION` of `bpf/event.h`.
fn stream_code(stream: StreamArgument) -> u8 {
    match stream {
        StreamArgument::None => 0,
        StreamArgument::Argument(number) => number & 31,
        StreamArgument::Configuration => 0x20,
    }
}

/// `BYTES_SHIFT_SHIFT`, `BYTES_NCCL`, `BYTES_ROWS` of `bpf/event.h`.
fn bytes_code(bytes: BytesArgument) -> u8 {
    match bytes {
        BytesArgument::None => 0,
        BytesArgument::Argument(number) => number & 7,
        BytesArgument::Elements(number, shift) => (number & 7) | (shift & 3) << 3,
        BytesArgument::Nccl(number) => (number & 7) | 0x20,
        BytesArgument::Rows(number) => (number & 7) | 0x40,
    }
}

/// A function to probe: where it is in its file, and where its arguments are passed.
#[derive(Clone, Debug)]
pub struct CallProbe {
    /// The caller's id for it, returned in [`super::CudaCallEvent::function`].
    pub function: u16,
    /// Kind of call; its hits are counted by kind ([`super::CudaPrograms::counts`]).
    pub kind: CallKind,
    /// File offset of an instruction where the stack pointer and the arguments are still as at the call.
    pub entry: u64,
    /// Whether the return is probed too, by replacing the return address. Not for functions with C++ exceptions
    /// unwinding through them: there such an address would abort the program.
    pub on_return: bool,
    /// File offsets of its return instructions, if these are probed instead.
    pub returns: Vec<u64>,
    /// Whether it is probed at the entry only and calls other probed functions.
    pub encloses: bool,
    /// Where the stream is passed, for [`super::CudaCallEvent::stream`].
    pub stream: StreamArgument,
    /// Where the number of bytes is passed.
    pub bytes: BytesArgument,
    /// Where the grid of a launch is passed, for [`super::CudaCallEvent::grid`].
    pub grid: GridArgument,
}

impl CallProbe {
    pub(super) fn cookie(&self) -> u64 {
        let both = self.on_return || !self.returns.is_empty();
        let mut flags = 0;
        if both {
            flags |= call_flag::CALL_BOTH_ENDS.0;
        }
        if self.encloses {
            flags |= call_flag::CALL_ENCLOSES.0;
        }
        u64::from(self.function)
            | (self.kind as u64) << KIND_SHIFT
            | u64::from(stream_code(self.stream)) << STREAM_SHIFT
            | u64::from(bytes_code(self.bytes)) << BYTES_SHIFT
            | (self.grid as u64) << GRID_SHIFT
            | u64::from(flags) << FLAGS_SHIFT
    }

    /// Cookie of the probes at its return instructions.
    pub(super) fn cookie_at_return(&self) -> u64 {
        self.cookie() | u64::from(call_flag::CALL_AT_RET.0) << FLAGS_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_contain_every_part() {
        let probe = CallProbe {
            function: 0x1234,
            kind: CallKind::Collective,
            entry: 0,
            on_return: true,
            returns: Vec::new(),
            encloses: false,
            stream: StreamArgument::Argument(7),
            bytes: BytesArgument::Nccl(3),
            grid: GridArgument::Dim3,
        };
        assert_eq!(probe.cookie(), 0x0001_0223_0707_1234);
        assert_eq!(probe.cookie_at_return(), 0x0005_0223_0707_1234);
    }
}
