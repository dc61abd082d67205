//! Packs what the BPF program needs to know about a function into its probe's cookie. Pure.

use super::CallKind;
use super::skeleton::types::call_flag;
use super::skeleton::types::grid_place;

/// Shifts of `bpf/event.h`: `CALL_KIND_SHIFT` to `CALL_FLAGS_SHIFT`.
const KIND_SHIFT: u32 = 16;
const STREAM_SHIFT: u32 = 24;
const BYTES_SHIFT: u32 = 32;
const GRID_SHIFT: u32 = 40;
const FLAGS_SHIFT: u32 = 48;

/// Where the stream is passed. Arguments are counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamLocation {
    /// The function takes no stream.
    #[default]
    None,
    /// In a register: the first to sixth argument.
    Argument(u8),
    /// This many 8-byte words above the stack pointer at the first instruction.
    Stack(u8),
    /// In the launch configuration that the first argument points to.
    Configuration,
}

impl StreamLocation {
    /// `STREAM_ON_STACK`, `STREAM_IN_CONFIGURATION`.
    fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Argument(number) => number & 7,
            Self::Stack(word) => 0x10 | (word & 15),
            Self::Configuration => 0x20,
        }
    }
}

/// Where the number of bytes is passed. Arguments are counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BytesLocation {
    /// The function takes no size.
    #[default]
    None,
    /// The value of an argument.
    Argument(u8),
    /// An argument times a power of two up to 8.
    Elements {
        /// Number of the argument.
        argument: u8,
        /// Base-2 logarithm of the factor.
        shift: u8,
    },
    /// An argument times the size of the `ncclDataType_t` in the next.
    NcclElements(u8),
    /// An argument times the next.
    Rows(u8),
}

impl BytesLocation {
    /// `BYTES_SHIFT_SHIFT`, `BYTES_NCCL`, `BYTES_ROWS`.
    fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Argument(number) => number & 7,
            Self::Elements { argument, shift } => (argument & 7) | (shift & 3) << 3,
            Self::NcclElements(number) => (number & 7) | 0x20,
            Self::Rows(number) => (number & 7) | 0x40,
        }
    }
}

/// Where the grid of a launch is passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GridLocation {
    /// The function takes no grid.
    #[default]
    None,
    /// The second to fourth arguments.
    Arguments,
    /// A `dim3` by value in the second and third.
    Dim3,
    /// In the launch configuration that the first argument points to.
    Configuration,
}

impl GridLocation {
    fn code(self) -> u32 {
        match self {
            Self::None => grid_place::GRID_NONE.0,
            Self::Arguments => grid_place::GRID_ARGUMENTS.0,
            Self::Dim3 => grid_place::GRID_DIM3.0,
            Self::Configuration => grid_place::GRID_CONFIGURATION.0,
        }
    }
}

/// A function to probe: where it is in its file, and where its arguments are passed.
#[derive(Clone, Debug)]
pub struct CallProbe {
    /// The caller's id for it, returned in [`super::CudaCallEvent::function`].
    pub function: u16,
    /// Kind of call, under which its hits are counted ([`super::CudaPrograms::counts`]).
    pub kind: CallKind,
    /// File offset of an instruction at which the stack pointer and the arguments are still those
    /// of the call.
    pub entry: u64,
    /// Whether the return is probed too, by replacing the return address: not for functions through
    /// which C++ exceptions unwind, where such an address would abort the program.
    pub on_return: bool,
    /// File offsets of its return instructions, if these are probed instead.
    pub returns: Vec<u64>,
    /// Whether it is probed at the entry only and calls other probed functions.
    pub encloses: bool,
    /// Where the stream is passed, for [`super::CudaCallEvent::stream`].
    pub stream: StreamLocation,
    /// Where the number of bytes is passed.
    pub bytes: BytesLocation,
    /// Where the grid of a launch is passed, for [`super::CudaCallEvent::grid`].
    pub grid: GridLocation,
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
            | u64::from(self.kind.0) << KIND_SHIFT
            | u64::from(self.stream.code()) << STREAM_SHIFT
            | u64::from(self.bytes.code()) << BYTES_SHIFT
            | u64::from(self.grid.code()) << GRID_SHIFT
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
            kind: CallKind::CALL_COLLECTIVE,
            entry: 0,
            on_return: true,
            returns: Vec::new(),
            encloses: false,
            stream: StreamLocation::Stack(1),
            bytes: BytesLocation::NcclElements(3),
            grid: GridLocation::Dim3,
        };
        assert_eq!(probe.cookie(), 0x0001_0223_1107_1234);
        assert_eq!(probe.cookie_at_return(), 0x0005_0223_1107_1234);
    }
}
