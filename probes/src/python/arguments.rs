//! Finds the argument registers of a collector function that can be trusted.
//!
//! Compilers drop unused or constant arguments of functions that are not exported, and shift the
//! rest; gcc marks such clones by a suffix, clang does not, and stripped files have no names. But a
//! function reads each of its arguments before it writes that register. So the registers read first
//! show how many arguments are left, and only a full set is trusted.

use super::facts::InterpreterFacts;
use crate::code::{Flow, Instruction, RegisterUses, Registers, decode};
use crate::elf::{ElfImage, Machine};
use gctrace_abi::{ArgumentRegister, CollectorArguments};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The trusted arguments of the collector function in `range`.
pub(crate) fn of(
    image: &ElfImage<'_>,
    range: &Range<u64>,
    facts: &InterpreterFacts,
) -> CollectorArguments {
    let read = read_first(image.machine, &decode(image, range));
    trusted(facts.version.minor, &read)
}

/// Signatures: 3.8 `collect(state, generation, collected, uncollectable, nofail)`; 3.9 - 3.12 the
/// same with the thread state first; 3.13 and later `(tstate, generation, reason)`.
fn trusted(minor: u8, read: &BTreeSet<ArgumentRegister>) -> CollectorArguments {
    let count = if minor >= 13 { 3 } else { 5 };
    let full: BTreeSet<ArgumentRegister> =
        ArgumentRegister::ALL.iter().copied().take(count).collect();
    let has_tstate = minor >= 9 && read.contains(&ArgumentRegister::Rdi);
    let tstate = if has_tstate { Some(ArgumentRegister::Rdi) } else { None };
    // After a dropped argument all others are passed in earlier registers than the signature shows
    // (gcc's -fipa-sra and -fipa-cp): a register then contains another argument.
    // https://gcc.gnu.org/onlinedocs/gcc/Optimize-Options.html
    if *read != full {
        return CollectorArguments { tstate, ..CollectorArguments::default() };
    }
    CollectorArguments {
        tstate,
        generation: Some(ArgumentRegister::Rsi),
        reason: if minor >= 13 { Some(ArgumentRegister::Rdx) } else { None },
        no_fail: if minor < 13 { Some(ArgumentRegister::R8) } else { None },
        fixed_generation: None,
    }
}

/// Argument registers that some path from the first instruction reads before it writes them.
fn read_first(machine: Machine, body: &[Instruction]) -> BTreeSet<ArgumentRegister> {
    let numbers = machine.argument_registers();
    let all = Registers::of(numbers);
    let places: HashMap<u64, usize> =
        body.iter().enumerate().map(|(index, one)| (one.address(), index)).collect();
    let mut uses = RegisterUses::new();
    let mut read = Registers::default();
    // For each instruction, the registers written on every path seen so far.
    let mut written_before: HashMap<usize, Registers> = HashMap::new();
    let mut work = vec![(0usize, Registers::default())];
    while let Some((index, mut written)) = work.pop() {
        let Some(instruction) = body.get(index) else { continue };
        if let Some(before) = written_before.get(&index) {
            if before.without(written) == Registers::default() {
                continue;
            }
            written = before.and(written);
        }
        written_before.insert(index, written);
        let used = uses.of(instruction);
        read = read.with(used.read.without(written));
        written = written.with(used.replaced.and(all));
        // A callee may change all of them.
        if written == all || matches!(instruction.flow(), Flow::Call | Flow::IndirectCall) {
            continue;
        }
        work.extend(successors(instruction, index, &places).map(|next| (next, written)));
    }
    let registers = ArgumentRegister::ALL.iter().copied().zip(numbers);
    registers.filter(|(_, number)| read.contains(*number)).map(|(register, _)| register).collect()
}

fn successors(
    instruction: &Instruction,
    index: usize,
    places: &HashMap<u64, usize>,
) -> impl Iterator<Item = usize> {
    let flow = instruction.flow();
    let jumps = matches!(flow, Flow::Jump | Flow::ConditionalJump);
    let falls = matches!(flow, Flow::Next | Flow::ConditionalJump);
    let target = if jumps { instruction.branch_target() } else { None };
    let target = target.and_then(|target| places.get(&target).copied());
    let next = if falls { Some(index + 1) } else { None };
    target.into_iter().chain(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::decode_bytes;

    fn read(bytes: &[u8]) -> Vec<ArgumentRegister> {
        let body = decode_bytes(Machine::X86_64, bytes, 0);
        read_first(Machine::X86_64, &body).into_iter().collect()
    }

    #[test]
    fn only_what_is_read_before_it_is_written_is_an_argument() {
        // mov rbx,rdi; xor esi,esi; mov eax,esi; mov ecx,edx; ret
        let found = read(b"\x48\x89\xfb\x31\xf6\x89\xf0\x89\xd1\xc3");
        assert_eq!(found, [ArgumentRegister::Rdi, ArgumentRegister::Rdx]);
    }

    #[test]
    fn every_path_counts() {
        // test edi,edi; je +2; xor esi,esi; mov eax,esi; ret
        let found = read(b"\x85\xff\x74\x02\x31\xf6\x89\xf0\xc3");
        assert_eq!(found, [ArgumentRegister::Rdi, ArgumentRegister::Rsi]);
        // call +0; mov eax,esi: the value the callee left there
        assert_eq!(read(b"\xe8\x00\x00\x00\x00\x89\xf0\xc3"), []);
    }

    #[test]
    fn aarch64_passes_arguments_in_its_first_registers() {
        let read = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            read_first(Machine::Aarch64, &decode_bytes(Machine::Aarch64, &bytes, 0))
        };
        // stp x29,x30,[sp,#-16]!; mov x19,x0; mov w1,#0; add x3,x1,x2; str x4,[x3]; ret
        let found =
            read(&[0xa9bf_7bfd, 0xaa00_03f3, 0x5280_0001, 0x8b02_0023, 0xf900_0064, 0xd65f_03c0]);
        let registers = [ArgumentRegister::Rdi, ArgumentRegister::Rdx, ArgumentRegister::R8];
        assert_eq!(found, BTreeSet::from(registers));
        // movk x0,#1: the rest of x0 is read; ldadd x1,x2,[x3]: x2 is only written; ret
        let found = read(&[0xf280_0020, 0xf821_0062, 0xd65f_03c0]);
        let registers = [ArgumentRegister::Rdi, ArgumentRegister::Rsi, ArgumentRegister::Rcx];
        assert_eq!(found, BTreeSet::from(registers));
        // ldp x0,x1,[x2]; cbz x0,+8; mov x3,x4; ret
        let found = read(&[0xa940_0440, 0xb400_0040, 0xaa04_03e3, 0xd65f_03c0]);
        let registers = [ArgumentRegister::Rdx, ArgumentRegister::R8];
        assert_eq!(found, BTreeSet::from(registers));
    }

    #[test]
    fn clones_are_not_trusted() {
        let short = BTreeSet::from([ArgumentRegister::Rdi, ArgumentRegister::Rsi]);
        let found = trusted(13, &short);
        assert_eq!((found.tstate, found.generation), (Some(ArgumentRegister::Rdi), None));
        let full =
            BTreeSet::from([ArgumentRegister::Rdi, ArgumentRegister::Rsi, ArgumentRegister::Rdx]);
        assert_eq!(trusted(13, &full).reason, Some(ArgumentRegister::Rdx));
        assert_eq!(trusted(12, &full).generation, None);
        assert_eq!(trusted(8, &short).tstate, None);
    }
}
