//! Assembles whole functions from their parts, and resolves their callers.

use super::flow::Flow;
use super::instruction::decode;
use super::{FunctionTable, references};
use crate::elf::ElfImage;
use std::collections::BTreeSet;
use std::ops::Range;

/// Maximum number of parts examined: a damaged file could have any number, and each costs a pass
/// over the code.
const MAX_PARTS: usize = 64;

/// Functions of a file and the references between them.
pub(crate) struct CodeGraph<'image, 'data> {
    image: &'image ElfImage<'data>,
    functions: FunctionTable<'data>,
}

impl<'image, 'data> CodeGraph<'image, 'data> {
    /// Parses the unwind tables.
    pub(crate) fn new(image: &'image ElfImage<'data>) -> Self {
        Self { image, functions: FunctionTable::read(image) }
    }

    /// Number of function ranges.
    pub(crate) fn len(&self) -> usize {
        self.functions.len()
    }

    /// The range that contains the address.
    pub(crate) fn containing(&self, address: u64) -> Option<Range<u64>> {
        self.functions.containing(address)
    }

    /// Functions with a part that loads the address.
    pub(crate) fn functions_that_load(&self, target: u64) -> Vec<Range<u64>> {
        let parts = references::loads(self.image, &self.functions, target);
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut work = parts;
        while let Some(part) = work.pop() {
            if seen.len() == MAX_PARTS || !seen.insert(part.start) {
                continue;
            }
            match self.owners(&part) {
                Some(owners) => work.extend(owners),
                None => found.push(part),
            }
        }
        found.sort_by_key(|range| range.start);
        found
    }

    /// The function that jumps into a cold part; `None` for a whole function. A part that no direct
    /// call targets is cold if the stack at its start is not as in a function just called, or if
    /// another function jumps into its interior. A plain jump to its start proves nothing: tail
    /// calls look the same.
    fn owners(&self, part: &Range<u64>) -> Option<Vec<Range<u64>>> {
        // gcc moves code that it expects to run rarely to a part of its own, with an unwind entry
        // of its own (-freorder-blocks-and-partition): the table alone does not distinguish them.
        // https://gcc.gnu.org/onlinedocs/gcc/Optimize-Options.html
        let branches = references::branches(self.image, &self.functions, part);
        let called = branches.iter().any(|branch| branch.is_call && branch.target == part.start);
        let entered = branches.iter().any(|branch| !branch.is_call && branch.target != part.start);
        let as_called = self.functions.starts_as_called(part.start);
        if called || (as_called && !entered) {
            return None;
        }
        let jumps = branches.into_iter().filter(|branch| !branch.is_call);
        Some(jumps.map(|branch| branch.within).collect())
    }

    /// Starts of the functions that the function at `start` calls directly or jumps to, in
    /// instruction order, with repetitions.
    pub(crate) fn callees_in_order(&self, start: u64) -> Vec<u64> {
        let Some(range) = self.containing(start) else {
            return Vec::new();
        };
        let mut callees = Vec::new();
        for one in decode(self.image, &range) {
            if one.flow() != Flow::Next
                && let Some(target) = one.branch_target()
                && !range.contains(&target)
                && matches!(self.containing(target), Some(of) if of.start == target)
            {
                callees.push(target);
            }
        }
        callees
    }

    /// Functions reachable from `start` by up to `depth` direct calls or jumps.
    pub(crate) fn reachable(&self, start: u64, depth: usize) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut front = vec![start];
        for _ in 0..depth {
            let next: Vec<u64> = front
                .iter()
                .flat_map(|function| self.callees_in_order(*function))
                .filter(|callee| found.insert(*callee))
                .collect();
            front = next;
        }
        found
    }
}
