//! The allocator's copies in aarch64 code: `ldr x2, [x1]; cmp x2, x3; b.ne`, where `x1` and `x3`
//! were made of constants.

use super::{AllocatorCall, LARGEST_SMALL};
use crate::code::aarch64::{A64Instruction as Native, KnownValues, with_known_values};
use crate::code::{Flow, Instruction, RegisterUses, of_aarch64};

/// Maximum number of instructions between the load of the pointer and the branch.
const GUESS_SPAN: usize = 16;

/// Number of instructions on either path searched for the size.
const SIZE_SPAN: usize = 20;

/// A load of a pointer at a known address.
#[derive(Clone, Copy)]
struct PointerLoad {
    /// Index of the instruction after it.
    next: usize,
    register: u8,
    pointer: u64,
    /// After the load.
    known: KnownValues,
}

fn pointer_loads(body: &[Native]) -> Vec<PointerLoad> {
    let mut found = Vec::new();
    with_known_values(body, |index, one, before| {
        let mut known = *before;
        known.follow(one);
        found.extend(one.loads(before).map(|(register, pointer)| PointerLoad {
            next: index + 1,
            register,
            pointer,
            known,
        }));
    });
    found
}

pub(super) fn guesses(body: &[Instruction]) -> Vec<AllocatorCall> {
    let body = of_aarch64(body);
    pointer_loads(&body).into_iter().filter_map(|load| guess(&body, load)).collect()
}

fn guess(body: &[Native], mut load: PointerLoad) -> Option<AllocatorCall> {
    let rest = body.get(load.next..)?;
    let compared = rest.iter().take(GUESS_SPAN).position(|one| {
        let other = match one.compared_registers() {
            Some((first, second)) if first == load.register => Some(second),
            Some((first, second)) if second == load.register => Some(first),
            _ => None,
        };
        let is_guess = matches!(other, Some(other) if load.known.get(other).is_some());
        load.known.follow(one);
        is_guess
    })?;
    let branch = load.next + compared + 1;
    let one = body.get(branch)?;
    if one.flow() != Flow::ConditionalJump {
        return None;
    }
    Some(AllocatorCall { pointer: load.pointer, branch })
}

/// Calls through the loaded pointer, of loads that no guess follows.
pub(super) fn plain_calls(body: &[Instruction], pointer: u64) -> usize {
    let body = of_aarch64(body);
    let is_plain = |load: &PointerLoad| {
        load.pointer == pointer && calls(&body, load) && guess(&body, *load).is_none()
    };
    pointer_loads(&body).into_iter().filter(is_plain).count()
}

fn calls(body: &[Native], load: &PointerLoad) -> bool {
    let rest = gctrace_units::part(body, load.next..);
    rest.iter().take(GUESS_SPAN).any(|one| one.target_register() == Some(load.register))
}

/// The register in `sub r, size, #1; cmp r, #511`, if it was not changed since the branch.
pub(super) fn tested_register(way: &[Instruction]) -> Option<u8> {
    let mut uses = RegisterUses::new();
    let decoded = of_aarch64(way);
    let span = || decoded.iter().enumerate().take(SIZE_SPAN);
    let (at, size) = span().find_map(|(index, one)| {
        let (less, size, constant) = one.addition()?;
        let compares = |one: &Native| one.compared_constant() == Some((less, LARGEST_SMALL));
        let is_tested = span().skip(index + 1).any(|(_, one)| compares(one));
        if constant == -1 && is_tested { Some((index, size)) } else { None }
    })?;
    let kept = way.iter().take(at).all(|one| !uses.of(one).changed.contains(size));
    if kept { Some(size) } else { None }
}

/// The constant moved into the second argument before a call.
pub(super) fn passed(way: &[Instruction]) -> Option<u32> {
    let way = of_aarch64(way);
    let call = way
        .iter()
        .take(SIZE_SPAN)
        .position(|one| matches!(one.flow(), Flow::Call | Flow::IndirectCall))?;
    let mut constants = way.iter().take(call).filter_map(Native::moved_constant);
    let (_, constant) = constants.find(|(register, _)| *register == 1)?;
    Some(constant)
}
