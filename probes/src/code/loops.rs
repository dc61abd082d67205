//! Loops in the flow graph of one function.

use super::flow::Flow;
use super::instruction::Instruction;
use std::collections::{BTreeSet, HashMap};

/// Indexes of the instructions that enter the loop around `body[inside]`, in order; empty if there is no such loop. The
/// loop has all instructions that this one reaches and that reach it.
///
/// Padding before the first instruction of a loop enters it only if execution gets there.
pub(crate) fn entries(body: &[Instruction], inside: usize) -> Vec<usize> {
    // A strongly connected component, not a natural loop: compilers jump into loops at their test,
    // and no dominators are needed.
    let (after, before) = edges(body);
    let whole = &closure(&after, inside) & &closure(&before, inside);
    let found: BTreeSet<usize> = whole
        .iter()
        .flat_map(|at| before.get(*at).into_iter().flatten())
        .filter(|at| !whole.contains(at))
        .filter_map(|at| before_padding(body, *at))
        .collect();
    found.into_iter().collect()
}

/// Successors and predecessors of each instruction within the body.
fn edges(body: &[Instruction]) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let places: HashMap<u64, usize> =
        (0..).zip(body).map(|(index, one)| (one.address(), index)).collect();
    let target = |one: &Instruction| places.get(&one.branch_target()?).copied();
    let mut before = vec![Vec::new(); body.len()];
    let after: Vec<Vec<usize>> = (0..)
        .zip(body)
        .map(|(index, one)| {
            let next = (falls_through(one) && index + 1 < body.len()).then_some(index + 1);
            let jump = match one.flow() {
                Flow::Jump | Flow::ConditionalJump => target(one),
                _ => None,
            };
            next.into_iter().chain(jump).collect()
        })
        .collect();
    for (from, to) in after.iter().enumerate() {
        for to in to {
            if let Some(before) = before.get_mut(*to) {
                before.push(from);
            }
        }
    }
    (after, before)
}

fn falls_through(one: &Instruction) -> bool {
    matches!(one.flow(), Flow::Next | Flow::ConditionalJump | Flow::Call | Flow::IndirectCall)
}

/// Instructions reached from `start` over one edge or more.
fn closure(edges: &[Vec<usize>], start: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut work = vec![start];
    while let Some(at) = work.pop() {
        let next = edges.get(at).into_iter().flatten();
        work.extend(next.filter(|at| found.insert(**at)));
    }
    found
}

/// The instruction that is executed before the padding at `at`; `None` if nothing runs into it.
fn before_padding(body: &[Instruction], at: usize) -> Option<usize> {
    let mut at = at;
    while body.get(at)?.is_padding() {
        at = at.checked_sub(1)?;
        if !falls_through(body.get(at)?) {
            return None;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::decode_bytes;
    use crate::elf::Machine;

    /// Offsets of the entries of the loop around the instruction at `inside`.
    fn found(bytes: &[u8], inside: u64) -> Vec<u64> {
        let body = decode_bytes(Machine::X86_64, bytes, 0);
        let at = body.iter().position(|one| one.address() == inside).unwrap();
        let entries = entries(&body, at);
        entries.into_iter().map(|at| body[at].address()).collect()
    }

    #[test]
    fn a_loop_is_entered_by_a_jump_to_its_test() {
        // jmp 6; 2: call rax; nop; nop; 6: test rbx,rbx; jne 2; ret
        let code = b"\xeb\x04\xff\xd0\x90\x90\x48\x85\xdb\x75\xf7\xc3";
        assert_eq!(found(code, 2), [0]);
    }

    #[test]
    fn padding_that_nothing_runs_into_is_no_entry() {
        // jmp 5; 2: nop dword [rax]; 5: call rax; test rbx,rbx; jne 5; ret
        let code = b"\xeb\x03\x0f\x1f\x00\xff\xd0\x48\x85\xdb\x75\xf9\xc3";
        assert_eq!(found(code, 5), [0]);
        // push rax; 1: nop dword [rax]; 4: call rax; test rbx,rbx; jne 4; ret
        let code = b"\x50\x0f\x1f\x00\xff\xd0\x48\x85\xdb\x75\xf9\xc3";
        assert_eq!(found(code, 4), [0]);
    }

    #[test]
    fn straight_code_is_no_loop() {
        // call rax; ret
        assert!(found(b"\xff\xd0\xc3", 0).is_empty());
    }
}
