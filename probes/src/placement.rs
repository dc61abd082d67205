//! Chooses the instruction of a function on which its probe is placed.
//!
//! The kernel emulates a few instructions at a probe and single-steps all others, which is about
//! thirty times as expensive (0.5 against 16 us a hit, measured on Linux 6.18, x86-64). Functions
//! often have one of the few among their first instructions, for example the `push` after an
//! `endbr64`.

use crate::elf::ElfImage;
use iced_x86::Code;
use iced_x86::Decoder;
use iced_x86::DecoderOptions;
use iced_x86::FlowControl;
use iced_x86::Formatter;
use iced_x86::Instruction;
use iced_x86::InstructionInfoFactory;
use iced_x86::IntelFormatter;
use iced_x86::Mnemonic;
use iced_x86::OpAccess;
use iced_x86::OpKind;
use iced_x86::Register;
use std::ops::Range;

/// Number of instructions searched for a better place.
const LOOK_AHEAD: usize = 16;

/// Maximum number of bytes decoded of a function; the largest in CPython is the interpreter loop
/// with about 50 KiB.
const LONGEST_FUNCTION: u64 = 1 << 18;

/// Which registers must still have their values from the function's first byte when the probe
/// fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreservedState {
    /// The stack pointer: a return probe replaces the return address there.
    Stack,
    /// The argument registers too, which the entry probe reads.
    Arguments,
    /// Only the first argument: for an entry probe without return probe.
    FirstArgument,
}

impl PreservedState {
    fn registers(self) -> &'static [Register] {
        match self {
            Self::Stack => &[Register::RSP],
            Self::FirstArgument => &[Register::RDI],
            Self::Arguments => &[
                Register::RSP,
                Register::RDI,
                Register::RSI,
                Register::RDX,
                Register::RCX,
                Register::R8,
                Register::R9,
            ],
        }
    }
}

/// The chosen instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) address: u64,
    pub(crate) instruction: String,
    pub(crate) emulated: bool,
}

/// Chooses the instruction of the function at `function`; if its end is unknown (empty range), the
/// probe stays at its first byte. `None` if there is no code.
pub(crate) fn place(
    image: &ElfImage<'_>,
    function: &Range<u64>,
    keep: PreservedState,
) -> Option<Placement> {
    image.is_code(function.start).then_some(())?;
    let body = decode(image, function);
    let first = match body.first() {
        Some(first) => *first,
        None => *decode(image, &(function.start..function.start + 15)).first()?,
    };
    let chosen = choose(&body, keep).unwrap_or(first);
    Some(Placement {
        address: chosen.ip(),
        instruction: text(&chosen),
        emulated: is_emulated(&chosen),
    })
}

/// The instruction at an address, for static trace points.
pub(crate) fn place_at(image: &ElfImage<'_>, address: u64) -> Option<Placement> {
    place(image, &(address..address), PreservedState::Stack)
}

/// Decodes all instructions of a range in a linear sweep; stops at an invalid one.
pub(crate) fn decode(image: &ElfImage<'_>, range: &Range<u64>) -> Vec<Instruction> {
    let size = range.end.saturating_sub(range.start).min(LONGEST_FUNCTION);
    let available = |size| image.bytes_at(range.start, size);
    // The last bytes of a segment are fewer than the longest instruction.
    let Some(bytes) = available(size).or_else(|| available(size.min(4))) else {
        return Vec::new();
    };
    Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE)
        .into_iter()
        .take_while(|instruction| !instruction.is_invalid())
        .collect()
}

/// The first emulated instruction that runs exactly once per call of the function.
fn choose(body: &[Instruction], keep: PreservedState) -> Option<Instruction> {
    let mut info = InstructionInfoFactory::new();
    let targets: Vec<u64> = body.iter().filter_map(branch_target).collect();
    let unknown_targets = body.iter().any(|instruction| {
        instruction.flow_control() == FlowControl::IndirectBranch && !is_tail_call(instruction)
    });
    for instruction in body.iter().take(LOOK_AHEAD) {
        if is_emulated(instruction) {
            // A jump table could lead back to it, but never to a `push` of the prologue, which
            // would unbalance the stack.
            let safe = !targets.contains(&instruction.ip())
                && (!unknown_targets || instruction.mnemonic() == Mnemonic::Push);
            return safe.then_some(*instruction);
        }
        let straight = instruction.flow_control() == FlowControl::Next;
        if !straight || changes(&mut info, instruction, keep.registers()) {
            return None;
        }
    }
    None
}

/// An indirect jump through a fixed address, as `return table.function(..)` compiles to: it leaves
/// the function. Jump tables are read with an index, or through a register alone.
fn is_tail_call(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && (instruction.is_ip_rel_memory_operand() || instruction.memory_displacement64() != 0)
}

/// Target of a direct jump or call.
pub(crate) fn branch_target(instruction: &Instruction) -> Option<u64> {
    matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
    .then(|| instruction.near_branch_target())
}

fn changes(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    registers: &[Register],
) -> bool {
    info.info(instruction)
        .used_registers()
        .iter()
        .any(|used| writes(used.access()) && registers.contains(&used.register().full_register()))
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Whether every kernel from 5.8 on emulates the instruction (arch/x86/kernel/uprobes.c:
/// `branch_setup_xol_ops` and `push_setup_xol_ops`): one-byte nop, direct jumps and calls, pushes
/// of a register. An operand-size prefix rules it out. The multi-byte nops that 6.18 emulates are
/// single-stepped by older kernels and so not counted.
fn is_emulated(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Nopd => instruction.len() == 1,
        Code::Push_r64 => true,
        Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Call_rel32_64 => true,
        _ => instruction.is_jcc_short_or_near() && instruction.op0_kind() == OpKind::NearBranch64,
    }
}

fn text(instruction: &Instruction) -> String {
    let mut output = String::new();
    IntelFormatter::new().format(instruction, &mut output);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(bytes: &[u8]) -> Option<(u64, String)> {
        chosen_keeping(PreservedState::Arguments, bytes)
    }

    fn chosen_keeping(keep: PreservedState, bytes: &[u8]) -> Option<(u64, String)> {
        let body: Vec<Instruction> = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE)
            .into_iter()
            .collect();
        choose(&body, keep).map(|instruction| (instruction.ip() - 0x1000, text(&instruction)))
    }

    #[test]
    fn endbr_is_walked_over() {
        // endbr64; push rbp; mov rbp,rsp
        let found = chosen(b"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5");
        assert_eq!(found, Some((4, "push rbp".to_owned())));
    }

    #[test]
    fn a_condition_after_a_test_is_taken() {
        // mov rax,[rdi]; test rdi,rdi; je +1; nop; ret
        let found = chosen(b"\x48\x8b\x07\x48\x85\xff\x74\x01\x90\xc3");
        assert_eq!(found.map(|(at, _)| at), Some(6));
    }

    #[test]
    fn changed_arguments_or_stack_end_the_walk() {
        assert_eq!(
            chosen(b"\x48\x83\xec\x28\x55"),
            None,
            "sub rsp,40; push rbp"
        );
        assert_eq!(chosen(b"\x31\xf6\x55"), None, "xor esi,esi; push rbp");
        assert_eq!(chosen(b"\xff\xd0\x55"), None, "call rax; push rbp");
        let kept = chosen_keeping(PreservedState::Stack, b"\x31\xf6\x55").map(|(at, _)| at);
        assert_eq!(kept, Some(2), "arguments that no probe reads may change");
        assert_eq!(
            chosen_keeping(PreservedState::Stack, b"\x48\x83\xec\x28\x55"),
            None
        );
    }

    #[test]
    fn the_target_of_a_loop_is_not_taken() {
        // mov rax,[rdi]; L: nop; jmp L
        assert_eq!(chosen(b"\x48\x8b\x07\x90\xeb\xfd"), None);
        // mov rax,[rdi]; je +0; jmp rax: the je may be a jump table's target
        assert_eq!(chosen(b"\x48\x8b\x07\x74\x00\xff\xe0"), None);
    }

    #[test]
    fn a_tail_call_leads_nowhere_in_the_function() {
        // mov rsi,rdi; test rdi,rdi; js +8; jmp [rip+16] (PyObject_Malloc of 3.11)
        let found = chosen_keeping(
            PreservedState::FirstArgument,
            b"\x48\x89\xfe\x48\x85\xff\x78\x08\xff\x25\x10\x00\x00\x00",
        );
        assert_eq!(found.map(|(at, _)| at), Some(6));
        // the same, then jmp [rax*8+0x1000]
        let table = b"\x48\x85\xff\x78\x08\xff\x24\xc5\x00\x10\x00\x00";
        assert_eq!(chosen_keeping(PreservedState::FirstArgument, table), None);
    }

    #[test]
    fn instructions_single_stepped_by_old_kernels_are_not_emulated() {
        assert_eq!(chosen(b"\x66\x90\xc3"), None, "xchg ax,ax");
        assert_eq!(chosen(b"\x0f\x1f\x44\x00\x00\xc3"), None, "five-byte nop");
        assert_eq!(
            chosen(b"\x0f\x1f\x44\x00\x00\x55").map(|(at, _)| at),
            Some(5)
        );
    }
}
