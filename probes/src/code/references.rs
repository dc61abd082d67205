//! References to an address: one fast pass over all code finds where they may be, and decoding only
//! the functions around these places weeds out false positives.

use super::flow::Flow;
use super::instruction::{Instruction, decode, of_aarch64};
use super::{FunctionTable, aarch64, x86_64};
use crate::elf::{ElfImage, Machine};
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
    let mut found = near_loads(image, functions, target);
    found.retain(|range| loads_address(image.machine, &decode(image, range), target));
    found
}

/// Functions that may load the address, or the data at it.
pub(crate) fn near_loads(
    image: &ElfImage<'_>,
    functions: &FunctionTable<'_>,
    target: u64,
) -> Vec<Range<u64>> {
    let places = match image.machine {
        Machine::X86_64 => x86_64::near_loads(image, target),
        Machine::Aarch64 => aarch64::near_loads(image, target),
    };
    containing(functions, places)
}

/// Direct jumps and calls to a target in `targets`, except those from inside it.
pub(crate) fn branches(
    image: &ElfImage<'_>,
    functions: &FunctionTable<'_>,
    targets: &Range<u64>,
) -> Vec<CodeReference> {
    let places = match image.machine {
        Machine::X86_64 => x86_64::displacements(image, targets),
        Machine::Aarch64 => aarch64::branches(image, targets),
    };
    let mut found = Vec::new();
    for within in containing(functions, places) {
        if within.start == targets.start {
            continue;
        }
        for instruction in decode(image, &within) {
            let Some(target) = instruction.branch_target() else { continue };
            if !targets.contains(&target) {
                continue;
            }
            found.push(CodeReference {
                within: within.clone(),
                target,
                is_call: instruction.flow() == Flow::Call,
            });
        }
    }
    found
}

fn loads_address(machine: Machine, body: &[Instruction], target: u64) -> bool {
    match machine {
        Machine::X86_64 => body
            .iter()
            .any(|one| matches!(one, Instruction::X86_64(one) if x86_64::loads(one, target))),
        Machine::Aarch64 => aarch64::forms(&of_aarch64(body), target),
    }
}

fn containing(functions: &FunctionTable<'_>, addresses: Vec<u64>) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> =
        addresses.into_iter().filter_map(|address| functions.containing(address)).collect();
    found.sort_by_key(|range| range.start);
    found.dedup();
    found
}
