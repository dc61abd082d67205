//! One decoded instruction, whatever the machine: what the algorithms here ask of it.

use super::flow::{Flow, RegisterUse, Registers};
use super::{aarch64, x86_64};
use crate::elf::{ElfImage, Machine};
use std::ops::Range;

/// Maximum number of bytes decoded of a function; the largest in CPython is the interpreter loop
/// with about 50 KiB.
const LONGEST_FUNCTION: u64 = 1 << 18;

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instruction {
    X86_64(iced_x86::Instruction),
    Aarch64(aarch64::A64Instruction),
}

impl Instruction {
    /// Its address.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Self::X86_64(one) => one.ip(),
            Self::Aarch64(one) => one.address,
        }
    }

    /// Where execution continues.
    pub(crate) fn flow(&self) -> Flow {
        match self {
            Self::X86_64(one) => x86_64::flow(one),
            Self::Aarch64(one) => one.flow(),
        }
    }

    /// Target of a direct jump or call.
    pub(crate) fn branch_target(&self) -> Option<u64> {
        match self {
            Self::X86_64(one) => x86_64::branch_target(one),
            Self::Aarch64(one) => one.branch_target(),
        }
    }

    /// Whether every supported kernel emulates it at a probe, rather than single-stepping it.
    pub(crate) fn is_emulated(&self) -> bool {
        match self {
            Self::X86_64(one) => x86_64::is_emulated(one),
            Self::Aarch64(one) => one.is_emulated(),
        }
    }

    /// Whether it pushes a register in a prologue. No jump leads to such a push: that would unbalance the stack.
    pub(crate) fn is_push(&self) -> bool {
        matches!(self, Self::X86_64(one) if one.mnemonic() == iced_x86::Mnemonic::Push)
    }

    /// Whether it jumps to an unknown place in the same function, as jump tables do.
    pub(crate) fn jumps_within(&self) -> bool {
        match self {
            Self::X86_64(one) => x86_64::jumps_within(one),
            Self::Aarch64(one) => one.flow() == Flow::IndirectJump,
        }
    }

    /// The register that it loads with the 64 bits at this offset of a structure; another register points to the
    /// structure.
    pub(crate) fn loads_field(&self, offset: u32) -> Option<u8> {
        match self {
            Self::X86_64(one) => x86_64::loads_field(one, offset),
            Self::Aarch64(one) => one.loads_field(offset),
        }
    }

    /// Whether it calls the function that a structure has at this offset.
    pub(crate) fn calls_field(&self, offset: u32) -> bool {
        matches!(self, Self::X86_64(one) if x86_64::calls_field(one, offset))
    }

    /// The register with the address of the called function.
    pub(crate) fn called_register(&self) -> Option<u8> {
        match self {
            Self::X86_64(one) => x86_64::called_register(one),
            Self::Aarch64(one) => one.target_register(),
        }
    }

    /// Whether it only fills space before the next instruction.
    pub(crate) fn is_padding(&self) -> bool {
        match self {
            Self::X86_64(one) => x86_64::is_padding(one),
            Self::Aarch64(one) => one.is_padding(),
        }
    }

    /// The instruction in the syntax that disassemblers use, for people to read.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::X86_64(one) => x86_64::text(one),
            Self::Aarch64(one) => one.text(),
        }
    }
}

/// Examines registers; holds what that needs between instructions.
pub(crate) struct RegisterUses {
    x86_64: iced_x86::InstructionInfoFactory,
}

impl RegisterUses {
    /// With nothing examined yet.
    pub(crate) fn new() -> Self {
        Self { x86_64: iced_x86::InstructionInfoFactory::new() }
    }

    /// The instruction's use of registers.
    pub(crate) fn of(&mut self, instruction: &Instruction) -> RegisterUse {
        match instruction {
            Instruction::X86_64(one) => x86_64::register_use(&mut self.x86_64, one),
            Instruction::Aarch64(one) => one.register_use(),
        }
    }
}

/// Decodes all instructions of a range in a linear sweep; stops at an invalid one.
pub(crate) fn decode(image: &ElfImage<'_>, range: &Range<u64>) -> Vec<Instruction> {
    let size = range.end.saturating_sub(range.start).min(LONGEST_FUNCTION);
    let available = |size| image.bytes_at(range.start, size);
    // The last bytes of a segment are fewer than the longest instruction.
    let Some(bytes) = available(size).or_else(|| available(size.min(4))) else {
        return Vec::new();
    };
    decode_bytes(image.machine, bytes, range.start)
}

/// Decodes bytes at an address.
pub(crate) fn decode_bytes(machine: Machine, bytes: &[u8], address: u64) -> Vec<Instruction> {
    match machine {
        Machine::X86_64 => x86_64::decode(bytes, address).map(Instruction::X86_64).collect(),
        Machine::Aarch64 => aarch64::decode(bytes, address).map(Instruction::Aarch64).collect(),
    }
}

/// `N` of a function that only adds `N` to its first argument and jumps: it passes on a member of
/// the structure in its argument.
pub(crate) fn moved_argument(machine: Machine, body: &[Instruction]) -> Option<u64> {
    match machine {
        Machine::X86_64 => x86_64::moved_argument(&of_x86_64(body)),
        Machine::Aarch64 => aarch64::moved_argument(&of_aarch64(body)),
    }
}

/// The instructions of x86-64 among them: all or none.
pub(crate) fn of_x86_64(body: &[Instruction]) -> Vec<iced_x86::Instruction> {
    let native = |one: &Instruction| match one {
        Instruction::X86_64(one) => Some(*one),
        Instruction::Aarch64(_) => None,
    };
    body.iter().filter_map(native).collect()
}

/// The instructions of aarch64 among them: all or none.
pub(crate) fn of_aarch64(body: &[Instruction]) -> Vec<aarch64::A64Instruction> {
    let native = |one: &Instruction| match one {
        Instruction::Aarch64(one) => Some(*one),
        Instruction::X86_64(_) => None,
    };
    body.iter().filter_map(native).collect()
}

impl Machine {
    /// Numbers of the registers that pass the first six arguments, in order.
    pub(crate) fn argument_registers(self) -> [u8; 6] {
        match self {
            // rdi, rsi, rdx, rcx, r8, r9
            Self::X86_64 => [7, 6, 2, 1, 8, 9],
            Self::Aarch64 => [0, 1, 2, 3, 4, 5],
        }
    }

    /// Numbers of the registers that lead to the return address: a return probe needs them unchanged.
    pub(crate) fn return_registers(self) -> Registers {
        match self {
            Self::X86_64 => Registers::of([x86_64::STACK_POINTER]),
            Self::Aarch64 => Registers::of([aarch64::STACK_POINTER, aarch64::LINK_REGISTER]),
        }
    }

    /// The register with the return address; empty where it is on the stack.
    pub(crate) fn link_register(self) -> Registers {
        match self {
            Self::X86_64 => Registers::default(),
            Self::Aarch64 => Registers::of([aarch64::LINK_REGISTER]),
        }
    }

    /// Number in DWARF of the stack pointer, and the distance in bytes from it to the frame of a
    /// function just called.
    pub(crate) fn called_frame(self) -> (gimli::Register, i64) {
        match self {
            // The return address was pushed.
            Self::X86_64 => (gimli::X86_64::RSP, 8),
            Self::Aarch64 => (gimli::AArch64::SP, 0),
        }
    }

    /// Length in bytes of the longest instruction.
    pub(crate) fn longest_instruction(self) -> u64 {
        match self {
            Self::X86_64 => 15,
            Self::Aarch64 => 4,
        }
    }
}
