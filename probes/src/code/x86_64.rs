//! x86-64: instructions as iced-x86 decodes them.

use super::flow::{Flow, RegisterUse, Registers};
use crate::elf::ElfImage;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// Number of `rsp` in encodings.
pub(super) const STACK_POINTER: u8 = 4;

pub(super) fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Instruction> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE)
        .into_iter()
        .take_while(|instruction| !instruction.is_invalid())
}

pub(super) fn flow(instruction: &Instruction) -> Flow {
    match instruction.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump,
        FlowControl::ConditionalBranch => Flow::ConditionalJump,
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::Call => Flow::Call,
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Return => Flow::Return,
        FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => {
            Flow::Other
        }
    }
}

pub(super) fn branch_target(instruction: &Instruction) -> Option<u64> {
    if !matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    ) {
        return None;
    }
    Some(instruction.near_branch_target())
}

/// An indirect jump through a fixed address, as `return table.function(..)` compiles to, leaves the
/// function. Jump tables are read with an index, or through a register alone.
pub(super) fn jumps_within(instruction: &Instruction) -> bool {
    let is_tail_call = instruction.op0_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && (instruction.is_ip_rel_memory_operand() || instruction.memory_displacement64() != 0);
    instruction.flow_control() == FlowControl::IndirectBranch && !is_tail_call
}

/// Whether every kernel from 5.8 on emulates the instruction (arch/x86/kernel/uprobes.c:
/// `branch_setup_xol_ops` and `push_setup_xol_ops`): one-byte nop, direct jumps and calls, pushes
/// of a register. An operand-size prefix rules it out. The multi-byte nops that 6.18 emulates are
/// single-stepped by older kernels and so not counted.
pub(super) fn is_emulated(instruction: &Instruction) -> bool {
    // https://github.com/torvalds/linux/blob/v6.12/arch/x86/kernel/uprobes.c
    match instruction.code() {
        Code::Nopd => instruction.len() == 1,
        Code::Push_r64 => true,
        Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Call_rel32_64 => true,
        _ => instruction.is_jcc_short_or_near() && instruction.op0_kind() == OpKind::NearBranch64,
    }
}

/// The register that is loaded with the 64 bits at `[register + offset]`, outside the stack.
pub(super) fn loads_field(instruction: &Instruction, offset: u32) -> Option<u8> {
    let loads = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_gpr64()
        && has_field(instruction, offset);
    if loads { Some(instruction.op0_register().number() as u8) } else { None }
}

/// `call [register + offset]`.
pub(super) fn calls_field(instruction: &Instruction, offset: u32) -> bool {
    instruction.flow_control() == FlowControl::IndirectCall && has_field(instruction, offset)
}

fn has_field(instruction: &Instruction, offset: u32) -> bool {
    let base = instruction.memory_base();
    (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory)
        && instruction.memory_displacement64() == u64::from(offset)
        && base.is_gpr64()
        && base != Register::RSP
        && instruction.memory_index() == Register::None
}

/// `r` of `call r`.
pub(super) fn called_register(instruction: &Instruction) -> Option<u8> {
    let register = instruction.op0_register();
    let is_call = instruction.flow_control() == FlowControl::IndirectCall;
    let by_register = instruction.op0_kind() == OpKind::Register && register.is_gpr64();
    if is_call && by_register { Some(register.number() as u8) } else { None }
}

/// No-operations of all lengths; `xchg ax,ax` is one.
pub(super) fn is_padding(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Nop
        || instruction.mnemonic() == Mnemonic::Int3
        || (instruction.mnemonic() == Mnemonic::Xchg
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register())
}

pub(super) fn text(instruction: &Instruction) -> String {
    let mut output = String::new();
    IntelFormatter::new().format(instruction, &mut output);
    output
}

pub(super) fn register_use(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> RegisterUse {
    let mut found = RegisterUse::default();
    for used in info.info(instruction).used_registers() {
        let register = used.register().full_register();
        if !register.is_gpr64() {
            continue;
        }
        let Registers(bit) = Registers::of([register.number() as u8]);
        let (reads, writes) = match used.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            OpAccess::CondWrite => (false, true),
            OpAccess::Write => {
                found.replaced.0 |= bit;
                (false, true)
            }
            OpAccess::None | OpAccess::NoMemAccess => (false, false),
        };
        found.read.0 |= if reads { bit } else { 0 };
        found.changed.0 |= if writes { bit } else { 0 };
    }
    found
}

/// Addresses of all four-byte sequences that, read as the displacement at the end of an
/// instruction, lead into `targets`. An instruction-pointer-relative reference stores
/// `target - end of the displacement`, so one pass over the code finds all of them.
pub(super) fn displacements(image: &ElfImage<'_>, targets: &Range<u64>) -> Vec<u64> {
    let size = targets.end.saturating_sub(targets.start);
    let mut found = Vec::new();
    for (address, bytes) in image.code() {
        // Relative to the start of the part everything fits in 32 bits: this makes the pass fast.
        let first = targets.start.wrapping_sub(address).wrapping_sub(4);
        for (position, window) in bytes.windows(4).enumerate() {
            // An immediate would come after the displacement and move the end that it is relative
            // to: such instructions are missed, but jumps, calls and loads into registers have none.
            let &[a, b, c, d] = window else { continue };
            let displacement = i64::from(i32::from_le_bytes([a, b, c, d]));
            let reached = (position as u64).wrapping_add_signed(displacement);
            if reached.wrapping_sub(first) < size {
                found.push(address.wrapping_add(position as u64));
            }
        }
    }
    found
}

/// Addresses of code that may load `target` into a register.
pub(super) fn near_loads(image: &ElfImage<'_>, target: u64) -> Vec<u64> {
    let mut found = displacements(image, &(target..target.saturating_add(1)));
    if !image.relocatable {
        found.extend(immediates(image, target));
    }
    found
}

/// Addresses of all four-byte sequences equal to `target`, as non-relocatable code loads it.
fn immediates(image: &ElfImage<'_>, target: u64) -> Vec<u64> {
    let Ok(value) = u32::try_from(target) else { return Vec::new() };
    image
        .code()
        .flat_map(|(address, bytes)| {
            memchr::memmem::find_iter(bytes, &value.to_le_bytes())
                .map(move |position| address.wrapping_add(position as u64))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether the instruction loads the address `target`.
pub(super) fn loads(instruction: &Instruction, target: u64) -> bool {
    let relative =
        instruction.is_ip_rel_memory_operand() && instruction.ip_rel_memory_address() == target;
    let immediate = (0..instruction.op_count()).any(|operand| {
        matches!(
            instruction.op_kind(operand),
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
        ) && instruction.immediate(operand) == target
    });
    relative || immediate
}

/// `N` of a function that is `add rdi, N; jmp ...`.
pub(super) fn moved_argument(body: &[Instruction]) -> Option<u64> {
    let [add, jump, ..] = body else { return None };
    let moves = add.mnemonic() == Mnemonic::Add
        && add.op0_register() == Register::RDI
        && matches!(add.op1_kind(), OpKind::Immediate32to64 | OpKind::Immediate8to64);
    if moves && jump.mnemonic() == Mnemonic::Jmp { Some(add.immediate(1)) } else { None }
}
