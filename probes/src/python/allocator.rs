//! Where an interpreter allocates objects: `PyObject_Malloc`, or each of its copies where the
//! compiler inlined it.
//!
//! Link-time optimized builds guess that the allocator is pymalloc: `PyObject_Malloc` and each copy
//! load the function pointer of the object domain, compare it with the address of pymalloc and
//! branch. The branch after the comparison runs once per allocation, whatever the allocator is, and
//! the kernel emulates it.

use super::parse;
use crate::ResolveError;
use crate::code::FunctionTable;
use crate::elf::ElfImage;
use crate::elf::ImageData;
use crate::elf::open;
use crate::placement::PreservedState;
use crate::placement::decode;
use crate::placement::place;
use crate::progress::TypeAddresses;
use iced_x86::Instruction;
use iced_x86::InstructionInfoFactory;
use iced_x86::Mnemonic;
use iced_x86::OpAccess;
use iced_x86::OpKind;
use iced_x86::Register;
use std::ops::Range;
use std::path::Path;

/// Where the size of an allocation is when its probe fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationSize {
    /// In a register, by its number in x86-64 encodings: 0 is `rax`, 6 `rsi`, 7 `rdi`, 15 `r15`.
    Register(u8),
    /// Always this many bytes.
    Constant(u32),
    /// Unknown at that instruction.
    Unknown,
}

/// A probe that fires once per allocation on this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationPoint {
    /// File offset of the probed instruction.
    pub file_offset: u64,
    /// Where the size is when it fires.
    pub size: AllocationSize,
    /// Whether the kernel emulates the instruction (0.5 us a hit) rather than single-stepping it
    /// (16 us).
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

/// Finds the allocator of a file; `None` if the file does not export `PyObject_Malloc`.
///
/// # Errors
/// If the file cannot be read or is damaged.
pub fn allocator(file: &Path) -> Result<Option<Allocator>, ResolveError> {
    let reads = open(file)?;
    Ok(parse(file, ImageData::File(&reads))?.and_then(|image| find(&image)))
}

fn find(image: &ElfImage<'_>) -> Option<Allocator> {
    let functions = FunctionTable::read(image);
    let exported = image.symbol("PyObject_Malloc")?;
    let range = functions
        .containing(exported.address)
        .unwrap_or(exported.address..exported.address + exported.size);
    let types = types(image);
    let body = decode(image, &range);
    let copies = pointer_of_guess(&body).map(|pointer| copies(image, &functions, pointer));
    Some(match copies {
        Some((points, unseen)) if !points.is_empty() => Allocator {
            points,
            unseen,
            types,
        },
        _ => Allocator {
            points: at_function(image, &range).into_iter().collect(),
            unseen: 0,
            types,
        },
    })
}

fn types(image: &ElfImage<'_>) -> TypeAddresses {
    let address = |name| image.symbol(name).map_or(0, |symbol| symbol.address);
    TypeAddresses {
        integer: address("PyLong_Type"),
        range_iterator: address("PyRangeIter_Type"),
        list_iterator: address("PyListIter_Type"),
        tuple_iterator: address("PyTupleIter_Type"),
        enumerate: address("PyEnum_Type"),
    }
}

/// Number of `rdi` in encodings.
const RDI: u8 = 7;

fn at_function(image: &ElfImage<'_>, range: &Range<u64>) -> Option<AllocationPoint> {
    let placement = place(image, range, PreservedState::FirstArgument)?;
    Some(AllocationPoint {
        file_offset: image.file_offset(placement.address)?,
        size: AllocationSize::Register(RDI),
        emulated: placement.emulated,
    })
}

/// Maximum number of instructions between the load of the pointer and the branch.
const GUESS_SPAN: usize = 10;

/// Address of the pointer that the function loads and compares with a constant.
fn pointer_of_guess(body: &[Instruction]) -> Option<u64> {
    (0..body.len()).find_map(|at| guess(body, at).map(|guess| guess.pointer))
}

/// A load of a function pointer, its comparison, and the branch after it.
struct AllocatorCall {
    pointer: u64,
    branch: usize,
}

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
    Some(AllocatorCall {
        pointer,
        branch: at + 1 + compared + 1 + branch,
    })
}

/// Whether an instruction compares the register with an address: a constant, or one in a register.
fn compares(instruction: &Instruction, register: Register) -> bool {
    if instruction.mnemonic() != Mnemonic::Cmp {
        return false;
    }
    let constant = matches!(
        instruction.op1_kind(),
        OpKind::Immediate32to64 | OpKind::Immediate32
    );
    let registers = instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && (instruction.op0_register() == register || instruction.op1_register() == register);
    registers || (constant && instruction.op0_register() == register)
}

/// All copies of the guess about this pointer, and the number of uses that are not guesses.
fn copies(
    image: &ElfImage<'_>,
    functions: &FunctionTable<'_>,
    pointer: u64,
) -> (Vec<AllocationPoint>, usize) {
    let mut ranges: Vec<Range<u64>> = references(image, pointer)
        .filter_map(|address| functions.containing(address))
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    let (mut points, mut unseen) = (Vec::new(), 0);
    for range in ranges {
        let body = decode(image, &range);
        for at in 0..body.len() {
            match guess(&body, at) {
                Some(guess) if guess.pointer == pointer => {
                    points.extend(copy(image, &body, guess.branch));
                }
                _ => unseen += usize::from(body.get(at).is_some_and(|one| calls(one, pointer))),
            }
        }
    }
    points.sort_by_key(|point| point.file_offset);
    points.dedup_by_key(|point| point.file_offset);
    (points, unseen)
}

/// Addresses where a displacement relative to the next instruction leads to the target.
fn references(image: &ElfImage<'_>, target: u64) -> impl Iterator<Item = u64> {
    image.code().flat_map(move |(start, bytes)| {
        (start..)
            .zip(bytes.windows(4))
            .filter_map(move |(address, bytes)| {
                let displacement = i32::from_le_bytes(bytes.try_into().ok()?);
                let next = address + 4;
                (next.wrapping_add_signed(displacement.into()) == target).then_some(address)
            })
    })
}

/// A call or jump through the pointer, without a guess.
fn calls(instruction: &Instruction, pointer: u64) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp)
        && instruction.is_ip_rel_memory_operand()
        && instruction.ip_rel_memory_address() == pointer
}

fn copy(image: &ElfImage<'_>, body: &[Instruction], branch: usize) -> Option<AllocationPoint> {
    let instruction = body.get(branch)?;
    Some(AllocationPoint {
        file_offset: image.file_offset(instruction.ip())?,
        size: size_at(image, body, branch),
        emulated: true,
    })
}

/// pymalloc serves up to 512 bytes; it compares `size - 1` with this (obmalloc.c).
const LARGEST_SMALL: u64 = 511;

/// Number of instructions on either path searched for the size.
const SIZE_SPAN: usize = 14;

/// The size as pymalloc's copy reads it, or the constant that the other path passes to the
/// allocator.
fn size_at(image: &ElfImage<'_>, body: &[Instruction], branch: usize) -> AllocationSize {
    let Some(instruction) = body.get(branch) else {
        return AllocationSize::Unknown;
    };
    let next = body.get(branch + 1..).unwrap_or_default().to_vec();
    let target = instruction.near_branch_target();
    let other = decode(image, &(target..target + 80));
    [&next, &other]
        .into_iter()
        .find_map(|way| tested_register(way))
        .map(AllocationSize::Register)
        .or_else(|| {
            let constant = [&other, &next].into_iter().find_map(|way| passed(way))?;
            Some(AllocationSize::Constant(constant))
        })
        .unwrap_or(AllocationSize::Unknown)
}

/// The register in `lea r, [size - 1]; cmp r, 511`, if it was not changed since the branch.
fn tested_register(way: &[Instruction]) -> Option<u8> {
    let mut info = InstructionInfoFactory::new();
    let at = way.iter().take(SIZE_SPAN).position(|one| {
        one.mnemonic() == Mnemonic::Lea && one.memory_displacement64() == u64::MAX
    })?;
    let register = way.get(at)?.memory_base().full_register();
    let is_tested = way.iter().skip(at + 1).take(3).any(|one| {
        one.mnemonic() == Mnemonic::Cmp
            && one
                .try_immediate(1)
                .is_ok_and(|value| value == LARGEST_SMALL)
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
    (is_tested && kept && register.is_gpr64()).then(|| register.number() as u8)
}

/// The constant moved into the second argument before a call.
fn passed(way: &[Instruction]) -> Option<u32> {
    let call = way
        .iter()
        .take(SIZE_SPAN)
        .position(|one| one.mnemonic() == Mnemonic::Call)?;
    way.iter()
        .take(call)
        .find(|one| one.mnemonic() == Mnemonic::Mov && one.op0_register() == Register::ESI)
        .filter(|one| one.op1_kind() == OpKind::Immediate32)
        .map(Instruction::immediate32)
}
