//! Where an interpreter allocates objects: `PyObject_Malloc`, or each of its copies where the
//! compiler inlined it.
//!
//! Link-time optimized builds guess that the allocator is pymalloc: `PyObject_Malloc` and each copy
//! load the function pointer of the object domain, compare it with the address of pymalloc and
//! branch. The branch after the comparison runs once per allocation, whatever the allocator is, and
//! the kernel emulates it.

mod aarch64;
mod x86_64;

use super::parse;
use crate::ResolveError;
use crate::code::{FunctionTable, Instruction, decode, near_loads};
use crate::elf::{ElfImage, ImageData, Machine, open};
use crate::placement::{PreservedState, place};
use crate::progress::TypeAddresses;
use gctrace_abi::AllocationSize;
use std::ops::Range;
use std::path::Path;

/// A probe that fires once per allocation on this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationPoint {
    /// File offset of the probed instruction.
    pub file_offset: u64,
    /// Where the size is when it fires.
    pub size: AllocationSize,
    /// Whether the kernel emulates the instruction (on x86-64 0.5 us a hit) rather than
    /// single-stepping it (16 us).
    pub emulated: bool,
}

/// Where a build of CPython allocates objects, and where to probe that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocator {
    /// The probes to place, one for each copy of the allocator that can be probed.
    pub points: Vec<AllocationPoint>,
    /// Number of copies of the allocator that cannot be probed.
    pub unseen: usize,
    /// Link-time addresses of types; 0 for those not exported.
    pub types: TypeAddresses,
}

/// Finds the allocator of a file for a machine; `None` if the file does not export
/// `PyObject_Malloc`.
///
/// # Errors
/// If the file cannot be read, is damaged or is built for another machine.
pub fn allocator(file: &Path, machine: Machine) -> Result<Option<Allocator>, ResolveError> {
    let reads = open(file)?;
    Ok(parse(file, ImageData::File(&reads), machine)?.and_then(|image| find(&image)))
}

fn find(image: &ElfImage<'_>) -> Option<Allocator> {
    let functions = FunctionTable::read(image);
    let exported = image.symbol("PyObject_Malloc")?;
    let range = functions
        .containing(exported.address)
        .unwrap_or(exported.address..exported.address + exported.size);
    let types = types(image);
    let body = decode(image, &range);
    let pointer = guesses(image.machine, &body).first().map(|guess| guess.pointer);
    let copies = pointer.map(|pointer| copies(image, &functions, pointer));
    Some(match copies {
        Some((points, unseen)) if !points.is_empty() => Allocator { points, unseen, types },
        _ => {
            Allocator { points: at_function(image, &range).into_iter().collect(), unseen: 0, types }
        }
    })
}

fn types(image: &ElfImage<'_>) -> TypeAddresses {
    let address = |name| if let Some(symbol) = image.symbol(name) { symbol.address } else { 0 };
    TypeAddresses {
        integer: address("PyLong_Type"),
        range_iterator: address("PyRangeIter_Type"),
        list_iterator: address("PyListIter_Type"),
        tuple_iterator: address("PyTupleIter_Type"),
        enumerate: address("PyEnum_Type"),
    }
}

fn at_function(image: &ElfImage<'_>, range: &Range<u64>) -> Option<AllocationPoint> {
    let placement = place(image, range, PreservedState::FirstArgument)?;
    let [first, ..] = image.machine.argument_registers();
    Some(AllocationPoint {
        file_offset: image.file_offset(placement.address)?,
        size: AllocationSize::Register(first),
        emulated: placement.emulated,
    })
}

/// A load of a function pointer, its comparison, and the branch after it.
struct AllocatorCall {
    /// Address of the pointer.
    pointer: u64,
    /// Index of the branch.
    branch: usize,
}

/// All guesses in a function.
fn guesses(machine: Machine, body: &[Instruction]) -> Vec<AllocatorCall> {
    match machine {
        Machine::X86_64 => x86_64::guesses(body),
        Machine::Aarch64 => aarch64::guesses(body),
    }
}

/// Number of calls through the pointer without a guess.
fn plain_calls(machine: Machine, body: &[Instruction], pointer: u64) -> usize {
    match machine {
        Machine::X86_64 => x86_64::plain_calls(body, pointer),
        Machine::Aarch64 => aarch64::plain_calls(body, pointer),
    }
}

/// All copies of the guess about this pointer, and the number of uses that are not guesses.
fn copies(
    image: &ElfImage<'_>,
    functions: &FunctionTable<'_>,
    pointer: u64,
) -> (Vec<AllocationPoint>, usize) {
    let (mut points, mut unseen) = (Vec::new(), 0);
    for range in near_loads(image, functions, pointer) {
        let body = decode(image, &range);
        for guess in guesses(image.machine, &body) {
            if guess.pointer == pointer {
                points.extend(copy(image, &body, guess.branch));
            }
        }
        unseen += plain_calls(image.machine, &body, pointer);
    }
    points.sort_by_key(|point| point.file_offset);
    points.dedup_by_key(|point| point.file_offset);
    (points, unseen)
}

fn copy(image: &ElfImage<'_>, body: &[Instruction], branch: usize) -> Option<AllocationPoint> {
    let instruction = body.get(branch)?;
    Some(AllocationPoint {
        file_offset: image.file_offset(instruction.address())?,
        size: size_at(image, body, branch),
        emulated: true,
    })
}

/// pymalloc serves up to 512 bytes; it compares `size - 1` with this (obmalloc.c).
const LARGEST_SMALL: u64 = 511;

/// Number of bytes decoded at the target of the branch.
const OTHER_PATH: u64 = 80;

/// The size as pymalloc's copy reads it, or the constant that the other path passes to the
/// allocator.
fn size_at(image: &ElfImage<'_>, body: &[Instruction], branch: usize) -> AllocationSize {
    let Some(one) = body.get(branch) else { return AllocationSize::Unknown };
    let Some(target) = one.branch_target() else { return AllocationSize::Unknown };
    let next = gctrace_units::part(body, branch + 1..);
    let other = decode(image, &(target..target.saturating_add(OTHER_PATH)));
    let tested = |way| match image.machine {
        Machine::X86_64 => x86_64::tested_register(way),
        Machine::Aarch64 => aarch64::tested_register(way),
    };
    let passed = |way| match image.machine {
        Machine::X86_64 => x86_64::passed(way),
        Machine::Aarch64 => aarch64::passed(way),
    };
    if let Some(register) = [next, &other].into_iter().find_map(tested) {
        return AllocationSize::Register(register);
    }
    match [&other, next].into_iter().find_map(passed) {
        Some(constant) => AllocationSize::Constant(constant),
        None => AllocationSize::Unknown,
    }
}
