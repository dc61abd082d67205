//! Which argument registers of a collector function can be trusted.
//!
//! Compilers drop unused or constant arguments of functions that are not exported, and shift the
//! rest; gcc marks such clones by a suffix, clang does not, and stripped files have no names. But a
//! function reads each of its arguments before it writes that register. So the registers read first
//! show how many arguments are left, and only a full set is trusted.

use super::facts::InterpreterFacts;
use crate::elf::ElfImage;
use crate::placement;
use crate::placement::branch_target;
use gctrace_abi::ArgumentRegister;
use gctrace_abi::CollectorArguments;
use iced_x86::FlowControl;
use iced_x86::Instruction;
use iced_x86::InstructionInfoFactory;
use iced_x86::OpAccess;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::ops::Range;

/// The trusted arguments of the collector function in `range`.
pub(crate) fn of(
    image: &ElfImage<'_>,
    range: &Range<u64>,
    facts: &InterpreterFacts,
) -> CollectorArguments {
    trusted(
        facts.version.minor,
        &read_first(&placement::decode(image, range)),
    )
}

/// Signatures: 3.8 `collect(state, generation, collected, uncollectable, nofail)`; 3.9 - 3.12 the
/// same with the thread state first; 3.13 and later `(tstate, generation, reason)`.
fn trusted(minor: u8, read: &BTreeSet<ArgumentRegister>) -> CollectorArguments {
    let count = if minor >= 13 { 3 } else { 5 };
    let full: BTreeSet<ArgumentRegister> = ArgumentRegister::ALL.into_iter().take(count).collect();
    let tstate =
        (minor >= 9 && read.contains(&ArgumentRegister::Rdi)).then_some(ArgumentRegister::Rdi);
    if *read != full {
        return CollectorArguments {
            tstate,
            ..CollectorArguments::default()
        };
    }
    CollectorArguments {
        tstate,
        generation: Some(ArgumentRegister::Rsi),
        reason: (minor >= 13).then_some(ArgumentRegister::Rdx),
        no_fail: (minor < 13).then_some(ArgumentRegister::R8),
        fixed_generation: None,
    }
}

/// Argument registers that some path from the first instruction reads before it writes them.
fn read_first(body: &[Instruction]) -> BTreeSet<ArgumentRegister> {
    let places: HashMap<u64, usize> = body
        .iter()
        .enumerate()
        .map(|(index, one)| (one.ip(), index))
        .collect();
    let mut info = InstructionInfoFactory::new();
    let mut read = BTreeSet::new();
    // For each instruction, the registers written on every path seen so far.
    let mut written_before: HashMap<usize, BTreeSet<ArgumentRegister>> = HashMap::new();
    let mut work = vec![(0usize, BTreeSet::new())];
    while let Some((index, mut written)) = work.pop() {
        let Some(instruction) = body.get(index) else {
            continue;
        };
        if let Some(before) = written_before.get(&index) {
            if before.is_subset(&written) {
                continue;
            }
            written = before.intersection(&written).copied().collect();
        }
        written_before.insert(index, written.clone());
        step(&mut info, instruction, &mut written, &mut read);
        if written.len() == ArgumentRegister::ALL.len() {
            continue;
        }
        work.extend(successors(instruction, index, &places).map(|next| (next, written.clone())));
    }
    read
}

fn step(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    written: &mut BTreeSet<ArgumentRegister>,
    read: &mut BTreeSet<ArgumentRegister>,
) {
    let used = info.info(instruction);
    let arguments = used
        .used_registers()
        .iter()
        .filter_map(|used| Some((argument(used.register())?, used.access())));
    for (register, access) in arguments.clone() {
        if reads(access) && !written.contains(&register) {
            read.insert(register);
        }
    }
    written.extend(
        arguments
            .filter(|(_, access)| *access == OpAccess::Write)
            .map(|(r, _)| r),
    );
    if matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    ) {
        // The callee may change all of them.
        written.extend(ArgumentRegister::ALL);
    }
}

fn reads(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

fn argument(register: iced_x86::Register) -> Option<ArgumentRegister> {
    match register.full_register() {
        iced_x86::Register::RDI => Some(ArgumentRegister::Rdi),
        iced_x86::Register::RSI => Some(ArgumentRegister::Rsi),
        iced_x86::Register::RDX => Some(ArgumentRegister::Rdx),
        iced_x86::Register::RCX => Some(ArgumentRegister::Rcx),
        iced_x86::Register::R8 => Some(ArgumentRegister::R8),
        iced_x86::Register::R9 => Some(ArgumentRegister::R9),
        _ => None,
    }
}

fn successors(
    instruction: &Instruction,
    index: usize,
    places: &HashMap<u64, usize>,
) -> impl Iterator<Item = usize> {
    let flow = instruction.flow_control();
    let jumps = matches!(
        flow,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    let falls = matches!(
        flow,
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::IndirectCall
    );
    let target = branch_target(instruction).filter(|_| jumps);
    let target = target.and_then(|target| places.get(&target).copied());
    target.into_iter().chain(falls.then_some(index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::Decoder;
    use iced_x86::DecoderOptions;

    fn read(bytes: &[u8]) -> Vec<ArgumentRegister> {
        let body: Vec<Instruction> = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE)
            .into_iter()
            .collect();
        read_first(&body).into_iter().collect()
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
    fn clones_are_not_trusted() {
        let short = BTreeSet::from([ArgumentRegister::Rdi, ArgumentRegister::Rsi]);
        let found = trusted(13, &short);
        assert_eq!(
            (found.tstate, found.generation),
            (Some(ArgumentRegister::Rdi), None)
        );
        let full = BTreeSet::from([
            ArgumentRegister::Rdi,
            ArgumentRegister::Rsi,
            ArgumentRegister::Rdx,
        ]);
        assert_eq!(trusted(13, &full).reason, Some(ArgumentRegister::Rdx));
        assert_eq!(trusted(12, &full).generation, None);
        assert_eq!(trusted(8, &short).tstate, None);
    }
}
