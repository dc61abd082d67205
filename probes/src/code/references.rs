//! References to an address, found by their bytes, without decoding all code.
//!
//! An instruction-pointer-relative reference stores `target - end of the displacement`, so one pass
//! over the code that adds position and value finds all of them; decoding only the function around
//! a hit weeds out false positives.

use super::FunctionTable;
use crate::elf::ElfImage;
use crate::placement::branch_target;
use crate::placement::decode;
use iced_x86::FlowControl;
use iced_x86::Instruction;
use iced_x86::OpKind;
use std::ops::Range;

/// An instruction that references an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeReference {
    /// The function, or cold part of one, that contains the instruction.
    pub(crate) within: Range<u64>,
    pub(crate) target: u64,
    pub(crate) is_call: bool,
}

/// Functions that load the address `target` into a register.
pub(crate) fn loads(
    image: &ElfImage<'_>,
    functions: &FunctionTable<'_>,
    target: u64,
) -> Vec<Range<u64>> {
    let mut hits = displacements(image, &(target..target + 1));
    if !image.relocatable {
        hits.extend(immediates(image, target));
    }
    let mut found = containing(functions, hits);
    found.retain(|range| {
        decode(image, range)
            .iter()
            .any(|one| loads_address(one, target))
    });
    found
}

/// Direct jumps and calls to a target in `targets`, except those from inside it.
pub(crate) fn branches(
    image: &ElfImage<'_>,
    functions: &FunctionTable<'_>,
    targets: &Range<u64>,
) -> Vec<CodeReference> {
    let mut found = Vec::new();
    for within in containing(functions, displacements(image, targets)) {
        if within.start == targets.start {
            continue;
        }
        for instruction in decode(image, &within) {
            let target = branch_target(&instruction).filter(|target| targets.contains(target));
            let Some(target) = target else { continue };
            found.push(CodeReference {
                within: within.clone(),
                target,
                is_call: instruction.flow_control() == FlowControl::Call,
            });
        }
    }
    found
}

fn loads_address(instruction: &Instruction, target: u64) -> bool {
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

fn containing(functions: &FunctionTable<'_>, addresses: Vec<u64>) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = addresses
        .into_iter()
        .filter_map(|address| functions.containing(address))
        .collect();
    found.sort_by_key(|range| range.start);
    found.dedup();
    found
}

/// Addresses of all four-byte sequences that, read as the displacement at the end of an
/// instruction, lead into `targets`.
fn displacements(image: &ElfImage<'_>, targets: &Range<u64>) -> Vec<u64> {
    let size = targets.end.saturating_sub(targets.start);
    let mut found = Vec::new();
    for (address, bytes) in image.code() {
        // Relative to the start of the part everything fits in 32 bits, which makes the pass fast.
        let first = targets.start.wrapping_sub(address).wrapping_sub(4);
        for (position, window) in bytes.windows(4).enumerate() {
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

/// Addresses of all four-byte sequences equal to `target`, as non-relocatable code loads it.
fn immediates(image: &ElfImage<'_>, target: u64) -> Vec<u64> {
    let Ok(value) = u32::try_from(target) else {
        return Vec::new();
    };
    image
        .code()
        .flat_map(|(address, bytes)| {
            memchr::memmem::find_iter(bytes, &value.to_le_bytes())
                .map(move |position| address.wrapping_add(position as u64))
                .collect::<Vec<_>>()
        })
        .collect()
}
