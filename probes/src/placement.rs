//! Chooses the instruction of a function for its probe.
//!
//! The kernel emulates a few instructions at a probe and single-steps all others. Single-stepping costs about thirty
//! times as much on x86-64 (0.5 against 16 us a hit, measured on Linux 6.18) and twice as much on aarch64. Functions
//! often have one of the few among their first instructions, for example the `push` after an `endbr64`.

use crate::code::{Flow, Instruction, RegisterUses, Registers, decode};
use crate::elf::{ElfImage, Machine};
use std::ops::Range;

/// Number of instructions searched for a better place.
const LOOK_AHEAD: usize = 16;

/// Registers that must have the same values when the probe fires as at the function's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreservedState {
    /// Registers that lead to the return address, for a return probe to replace it: on the stack, or in the link
    /// register until the function saves it.
    Stack,
    /// The argument registers too: the entry probe reads them.
    Arguments,
    /// Only the first argument: for an entry probe without return probe.
    FirstArgument,
}

/// Registers that must not be touched before the probe.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Must not be changed.
    values: Registers,
    /// Must not be read either: values saved before a return probe fires are not replaced by it.
    unread: Registers,
}

impl PreservedState {
    fn registers(self, machine: Machine) -> Kept {
        let arguments = machine.argument_registers();
        let returns = machine.return_registers();
        let (values, unread) = match self {
            Self::Stack => (returns, machine.link_register()),
            Self::FirstArgument => {
                (Registers::of(arguments.into_iter().take(1)), Registers::default())
            }
            Self::Arguments => (returns.with(Registers::of(arguments)), machine.link_register()),
        };
        Kept { values, unread }
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
    if !image.is_code(function.start) {
        return None;
    }
    let body = decode(image, function);
    let first = match body.first() {
        Some(first) => *first,
        None => {
            let end = function.start.saturating_add(image.machine.longest_instruction());
            *decode(image, &(function.start..end)).first()?
        }
    };
    let chosen = choose(&body, keep.registers(image.machine)).unwrap_or(first);
    Some(Placement {
        address: chosen.address(),
        instruction: chosen.text(),
        emulated: chosen.is_emulated(),
    })
}

/// The instruction at an address, for static trace points.
pub(crate) fn place_at(image: &ElfImage<'_>, address: u64) -> Option<Placement> {
    place(image, &(address..address), PreservedState::Stack)
}

/// The first emulated instruction that runs exactly once per call of the function.
fn choose(body: &[Instruction], keep: Kept) -> Option<Instruction> {
    let mut uses = RegisterUses::new();
    let targets: Vec<u64> = body.iter().filter_map(Instruction::branch_target).collect();
    let unknown_targets = body.iter().any(Instruction::jumps_within);
    for instruction in body.iter().take(LOOK_AHEAD) {
        if instruction.is_emulated() {
            // A jump table could lead back to it, but never to a `push` of the prologue: that would unbalance the
            // stack.
            let safe = !targets.contains(&instruction.address())
                && (!unknown_targets || instruction.is_push());
            return if safe { Some(*instruction) } else { None };
        }
        let used = uses.of(instruction);
        if instruction.flow() != Flow::Next
            || used.changed.overlaps(keep.values)
            || used.read.overlaps(keep.unread)
        {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::decode_bytes;

    fn chosen(bytes: &[u8]) -> Option<(u64, String)> {
        chosen_keeping(PreservedState::Arguments, bytes)
    }

    fn chosen_keeping(keep: PreservedState, bytes: &[u8]) -> Option<(u64, String)> {
        chosen_on(Machine::X86_64, keep, bytes)
    }

    fn chosen_on(machine: Machine, keep: PreservedState, bytes: &[u8]) -> Option<(u64, String)> {
        let body = decode_bytes(machine, bytes, 0x1000);
        choose(&body, keep.registers(machine))
            .map(|instruction| (instruction.address() - 0x1000, instruction.text()))
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
        assert_eq!(chosen(b"\x48\x83\xec\x28\x55"), None, "sub rsp,40; push rbp");
        assert_eq!(chosen(b"\x31\xf6\x55"), None, "xor esi,esi; push rbp");
        assert_eq!(chosen(b"\xff\xd0\x55"), None, "call rax; push rbp");
        let kept = chosen_keeping(PreservedState::Stack, b"\x31\xf6\x55").map(|(at, _)| at);
        assert_eq!(kept, Some(2), "arguments that no probe reads may change");
        assert_eq!(chosen_keeping(PreservedState::Stack, b"\x48\x83\xec\x28\x55"), None);
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
        assert_eq!(chosen(b"\x0f\x1f\x44\x00\x00\x55").map(|(at, _)| at), Some(5));
    }

    fn chosen_on_aarch64(keep: PreservedState, words: &[u32]) -> Option<(u64, String)> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        chosen_on(Machine::Aarch64, keep, &bytes)
    }

    #[test]
    fn return_probes_of_aarch64_come_before_the_return_address_is_saved() {
        // bti c; tbnz x0,#63,+8
        let found = chosen_on_aarch64(PreservedState::Arguments, &[0xd503_245f, 0xb7f8_0040]);
        assert_eq!(found.map(|(at, _)| at), Some(4));
        // adrp x3,0; stp x29,x30,[sp,#-16]!
        let found = chosen_on_aarch64(PreservedState::Arguments, &[0x9000_0003, 0xa9bf_7bfd]);
        assert_eq!(found, Some((0, "adrp x3, $+0x0".to_owned())));
        for (saved, text) in [
            (0xd503_233f, "paciasp"),
            (0xa9bf_7bfd, "stp x29,x30,[sp,#-16]!"),
            (0xd101_03ff, "sub sp,sp,#64"),
            (0xf900_0fde, "str x30,[x30,#24]"),
            (0xaa1e_03e9, "mov x9,x30"),
            (0xd63f_03c0, "blr x30"),
        ] {
            let words = [saved, 0x9000_0003];
            let found = chosen_on_aarch64(PreservedState::Stack, &words);
            assert_ne!(found.map(|(at, _)| at), Some(4), "{text}");
        }
        // mov x19,x0 does not matter, mov x0,x19 does.
        let keeps = [0xaa00_03f3, 0x9000_0003];
        let changes = [0xaa13_03e0, 0x9000_0003];
        let of = |words| chosen_on_aarch64(PreservedState::FirstArgument, words);
        assert_eq!(of(&keeps).map(|(at, _)| at), Some(4));
        assert_eq!(of(&changes), None);
    }
}
