//! The allocator's copies in x86-64 code.

use super::{AllocatorCall, LARGEST_SMALL};
use crate::code::{Instruction as AnyInstruction, of_x86_64};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

pub(super) fn guesses(body: &[AnyInstruction]) -> Vec<AllocatorCall> {
    let body = of_x86_64(body);
    (0..body.len()).filter_map(|at| guess(&body, at)).collect()
}

pub(super) fn plain_calls(body: &[AnyInstruction], pointer: u64) -> usize {
    of_x86_64(body).iter().filter(|one| calls(one, pointer)).count()
}

/// Maximum number of instructions between the load of the pointer and the branch.
const GUESS_SPAN: usize = 10;

/// The guess with its load at this index.
fn guess(body: &[Instruction], at: usize) -> Option<AllocatorCall> {
    let load = body.get(at)?;
    if load.mnemonic() != Mnemonic::Mov
        || load.op0_kind() != OpKind::Register
        || !load.is_ip_rel_memory_operand()
    {
        return None;
    }
    let pointer = load.ip_rel_memory_address();
    let register = load.op0_register();
    let rest = body.get(at + 1..)?.iter().take(GUESS_SPAN);
    let compared = rest.clone().position(|one| compares(one, register))?;
    let branch = rest
        .skip(compared + 1)
        .position(Instruction::is_jcc_short_or_near)
        .filter(|distance| *distance == 0)?;
    Some(AllocatorCall { pointer, branch: at + 1 + compared + 1 + branch })
}

/// Whether an instruction compares the register with an address: a constant, or one in a register.
fn compares(instruction: &Instruction, register: Register) -> bool {
    if instruction.mnemonic() != Mnemonic::Cmp {
        return false;
    }
    let constant = matches!(instruction.op1_kind(), OpKind::Immediate32to64 | OpKind::Immediate32);
    let registers = instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && (instruction.op0_register() == register || instruction.op1_register() == register);
    registers || (constant && instruction.op0_register() == register)
}

/// A call or jump through the pointer, without a guess.
fn calls(instruction: &Instruction, pointer: u64) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp)
        && instruction.is_ip_rel_memory_operand()
        && instruction.ip_rel_memory_address() == pointer
}

/// Number of instructions on either path searched for the size.
const SIZE_SPAN: usize = 14;

/// The register in `lea r, [size - 1]; cmp r, 511`, if it was not changed since the branch.
pub(super) fn tested_register(way: &[AnyInstruction]) -> Option<u8> {
    let way = of_x86_64(way);
    let mut info = InstructionInfoFactory::new();
    let at = way.iter().take(SIZE_SPAN).position(|one| {
        one.mnemonic() == Mnemonic::Lea && one.memory_displacement64() == u64::MAX
    })?;
    let register = way.get(at)?.memory_base().full_register();
    let is_tested = way.iter().skip(at + 1).take(3).any(|one| {
        one.mnemonic() == Mnemonic::Cmp
            && one.try_immediate(1).is_ok_and(|value| value == LARGEST_SMALL)
    });
    let kept = way.iter().take(at).all(|one| {
        !info.info(one).used_registers().iter().any(|used| {
            used.register().full_register() == register
                && matches!(
                    used.access(),
                    OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite
                )
        })
    });
    if is_tested && kept && register.is_gpr64() { Some(register.number() as u8) } else { None }
}

/// The constant moved into the second argument before a call.
pub(super) fn passed(way: &[AnyInstruction]) -> Option<u32> {
    let way = of_x86_64(way);
    let call = way.iter().take(SIZE_SPAN).position(|one| one.mnemonic() == Mnemonic::Call)?;
    way.iter()
        .take(call)
        .find(|one| one.mnemonic() == Mnemonic::Mov && one.op0_register() == Register::ESI)
        .filter(|one| one.op1_kind() == OpKind::Immediate32)
        .map(Instruction::immediate32)
}
