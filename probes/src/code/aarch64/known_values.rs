//! Addresses that instructions form in registers.

use super::{A64Instruction, STACK_POINTER};
use crate::code::flow::{Flow, Registers};
use std::collections::HashMap;

/// Registers with values that follow from the instructions alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownValues([Option<u64>; 32]);

/// Registers that a callee need not restore: `x0` to `x18`, and the link register.
const CHANGED_BY_CALLS: Registers = Registers(0x4007_ffff);

impl KnownValues {
    /// These, with `other`'s value for each register that has no known one here.
    fn or(&self, other: &Self) -> Self {
        let mut joined = *self;
        for (one, other) in joined.0.iter_mut().zip(other.0) {
            *one = one.or(other);
        }
        joined
    }

    /// Follows an instruction; the address that it completes in a register.
    pub(crate) fn follow(&mut self, one: &A64Instruction) -> Option<u64> {
        if let Some((register, constant)) = one.moved_constant() {
            self.set(register, Some(constant.into()));
            return None;
        }
        if let Some(value) = one.loaded_place().or_else(|| self.sum(one)) {
            // Register 31 is the zero register for one and `sp` for the other: of no interest.
            self.set(one.register(0), Some(value));
            return if one.is_page() { None } else { Some(value) };
        }
        if one.is(0xffe0_ffe0, 0xaa00_03e0) {
            let copied = self.get(one.register(16)); // mov
            self.set(one.register(0), copied);
            return None;
        }
        let mut changed = one.register_use().changed;
        if matches!(one.flow(), Flow::Call | Flow::IndirectCall) {
            changed.0 |= CHANGED_BY_CALLS.0;
        }
        for number in 0..32 {
            if changed.contains(number) {
                self.set(number, None);
            }
        }
        None
    }

    /// Result of an addition.
    fn sum(&self, one: &A64Instruction) -> Option<u64> {
        if let Some((_, source, constant)) = one.addition() {
            return Some(self.get(source)?.wrapping_add_signed(constant));
        }
        if !one.is(0xffe0_fc00, 0x8b00_0000) {
            return None;
        } // add of two registers
        let (left, right) = (self.get(one.register(5))?, self.get(one.register(16))?);
        Some(left.wrapping_add(right))
    }

    /// The value of a register, if known.
    pub(crate) fn get(&self, register: u8) -> Option<u64> {
        self.0.get(usize::from(register)).copied().flatten()
    }

    fn set(&mut self, register: u8, value: Option<u64>) {
        if let Some(known) = self.0.get_mut(usize::from(register)) {
            *known = if register != STACK_POINTER { value } else { None };
        }
    }
}

/// Maximum number of times that an instruction is followed, on average.
const MAX_VISITS: usize = 8;

/// The known values where paths meet in a function. Compilers form an address once for several
/// uses, far from some of them.
///
/// A value that one path brings is kept if another brings none: calls that never return seem to
/// lead to whatever comes after them.
struct PathValues<'body> {
    body: &'body [A64Instruction],
    /// Whether a jump leads to the instruction, or it comes after one.
    starts: Vec<bool>,
    arriving: HashMap<usize, KnownValues>,
    work: Vec<usize>,
    visits_left: usize,
}

impl<'body> PathValues<'body> {
    fn new(body: &'body [A64Instruction]) -> Self {
        let mut found = Self {
            body,
            starts: vec![false; body.len() + 1],
            arriving: HashMap::new(),
            work: Vec::new(),
            visits_left: body.len().saturating_mul(MAX_VISITS),
        };
        let after = (1..).zip(body).filter(|(_, one)| !falls(one.flow()));
        let targets = body.iter().filter_map(|one| found.target(one));
        let places: Vec<usize> = after.map(|(next, _)| next).chain(targets).chain([0]).collect();
        for place in places {
            if let Some(start) = found.starts.get_mut(place) {
                *start = true;
            }
        }
        found
    }

    /// Index of the instruction that a direct jump leads to.
    fn target(&self, one: &A64Instruction) -> Option<usize> {
        if !matches!(one.flow(), Flow::Jump | Flow::ConditionalJump) {
            return None;
        }
        let distance = one.branch_target()?.checked_sub(self.body.first()?.address)?;
        let index = usize::try_from(distance / 4).ok()?;
        if index < self.body.len() { Some(index) } else { None }
    }

    fn is_start(&self, index: usize) -> bool {
        self.starts.get(index).copied().unwrap_or(false)
    }

    /// Follows all paths from the first instruction, then all paths reached only by jump tables, starting with the
    /// values known above them. Calls `visit` with each instruction and the values known before it.
    fn follow(mut self, mut visit: impl FnMut(usize, &A64Instruction, &KnownValues)) {
        let mut known = KnownValues::default();
        for (index, one) in self.body.iter().enumerate() {
            if self.is_start(index) {
                if !self.arriving.contains_key(&index) {
                    self.reach(index, known);
                    while let Some(next) = self.work.pop() {
                        self.follow_block(next);
                    }
                }
                known = self.arriving.get(&index).copied().unwrap_or_default();
            }
            visit(index, one, &known);
            known.follow(one);
        }
    }

    /// Notes the values known where a path arrives.
    fn reach(&mut self, index: usize, known: KnownValues) {
        // A value that is known stays as it is, so that each arrival only adds registers, and the
        // work ends.
        let before = self.arriving.get(&index);
        let joined = if let Some(before) = before { before.or(&known) } else { known };
        if before != Some(&joined) {
            self.arriving.insert(index, joined);
            self.work.push(index);
        }
    }

    fn follow_block(&mut self, start: usize) {
        let mut known = self.arriving.get(&start).copied().unwrap_or_default();
        for (index, one) in self.body.iter().enumerate().skip(start) {
            if index != start && self.is_start(index) {
                self.reach(index, known);
                return;
            }
            let Some(left) = self.visits_left.checked_sub(1) else { return };
            self.visits_left = left;
            known.follow(one);
            if let Some(target) = self.target(one) {
                self.reach(target, known);
            }
            if !falls(one.flow()) {
                return;
            }
        }
    }
}

fn falls(flow: Flow) -> bool {
    matches!(flow, Flow::Next | Flow::ConditionalJump | Flow::Call | Flow::IndirectCall)
}

/// Calls `visit` with each instruction's index, the instruction, and the values known before it.
pub(crate) fn with_known_values(
    body: &[A64Instruction],
    visit: impl FnMut(usize, &A64Instruction, &KnownValues),
) {
    PathValues::new(body).follow(visit);
}

/// Whether one of the instructions completes the address `target` in a register.
pub(in crate::code) fn forms(body: &[A64Instruction], target: u64) -> bool {
    let mut found = false;
    with_known_values(body, |_, one, known| {
        found |= { *known }.follow(one) == Some(target);
    });
    found
}

/// `N` of a function that only adds `N` to its first argument and jumps.
pub(in crate::code) fn moved_argument(body: &[A64Instruction]) -> Option<u64> {
    let mut known = KnownValues::default();
    known.set(0, Some(0));
    for one in body.iter().take(4) {
        match one.flow() {
            Flow::Jump => return known.get(0).filter(|moved| *moved != 0),
            Flow::Next => known.follow(one),
            _ => return None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::forms;
    use crate::code::aarch64::{A64Instruction, decode};

    fn formed(words: &[u32], target: u64) -> bool {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let body: Vec<A64Instruction> = decode(&bytes, 0x10_0000).collect();
        forms(&body, target)
    }

    #[test]
    fn addresses_are_formed_by_two_instructions() {
        // adrp x0,0x101000; add x0,x0,#0x234
        let pair = [0xb000_0000, 0x9108_d000];
        assert!(formed(&pair, 0x10_1234));
        assert!(!formed(&pair, 0x10_1000));
        // adr x0,+8
        assert!(formed(&[0x1000_0040], 0x10_0008));
        // with bl +0 in between: x0 is the callee's
        assert!(!formed(&[pair[0], 0x9400_0000, pair[1]], 0x10_1234));
        // with mov x1,x0 in between, and the addition to x1
        assert!(formed(&[pair[0], 0xaa00_03e1, 0x9108_d021], 0x10_1234));
        // with ldr x0,[x0] in between
        assert!(!formed(&[pair[0], 0xf940_0000, pair[1]], 0x10_1234));
    }

    #[test]
    fn an_address_is_known_where_a_jump_leads() {
        // adrp x0; b +12; mov x0,x5; ret; add x0,x0,#0x234
        let words = [0xb000_0000, 0x1400_0003, 0xaa05_03e0, 0xd65f_03c0, 0x9108_d000];
        assert!(formed(&words, 0x10_1234));
    }
}
