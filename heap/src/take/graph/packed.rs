//! Objects in about 20 bytes each.

use crate::take::FastMap;
use crate::{HeapNode, HeapPlace, NodeIndex, TextIndex};
use gctrace_event::KindId;

/// A number of each object, or none: most are small, and take two bytes.
#[derive(Debug, Default)]
pub(crate) struct Column {
    small: Vec<u16>,
    /// Where `small` has [`Column::OTHER`].
    others: FastMap<NodeIndex, u64>,
}

impl Column {
    const OTHER: u16 = u16::MAX;

    /// Adds the next object's number.
    pub(crate) fn push(&mut self, number: Option<u64>) {
        let node = self.small.len() as NodeIndex;
        self.small.push(Self::OTHER);
        self.set(node, number);
    }

    /// The number of an object.
    pub(crate) fn get(&self, node: NodeIndex) -> Option<u64> {
        match self.small.get(node as usize)? {
            &Self::OTHER => self.others.get(&node).copied(),
            small => Some((*small).into()),
        }
    }

    /// Changes the number of an object to a new one, but not to none.
    fn set(&mut self, node: NodeIndex, number: Option<u64>) {
        let (Some(small), Some(number)) = (self.small.get_mut(node as usize), number) else {
            return;
        };
        *small = u16::try_from(number).unwrap_or(Self::OTHER);
        if *small == Self::OTHER {
            self.others.insert(node, number);
        }
    }
}

/// The objects, and how many references to each were found.
#[derive(Debug, Default)]
pub(crate) struct PackedNodes {
    pub(super) addresses: Vec<u64>,
    places: Vec<HeapPlace>,
    kinds: Column,
    references: Column,
    bytes: Column,
    found: Column,
    labels: FastMap<NodeIndex, TextIndex>,
}

impl PackedNodes {
    pub(crate) fn len(&self) -> NodeIndex {
        self.addresses.len() as NodeIndex
    }

    pub(crate) fn address(&self, node: NodeIndex) -> Option<u64> {
        self.addresses.get(node as usize).copied()
    }

    /// Adds an object, of a kind and a size that are still unknown.
    pub(super) fn push(&mut self, address: u64, references: Option<u32>, place: HeapPlace) {
        self.addresses.push(address);
        self.places.push(place);
        self.kinds.push(None);
        self.references.push(references.map(u64::from));
        self.bytes.push(None);
        self.found.push(Some(0));
    }

    pub(crate) fn describe(&mut self, node: NodeIndex, kind: KindId, bytes: Option<u64>) {
        self.kinds.set(node, Some(kind.into()));
        self.bytes.set(node, bytes);
    }

    /// Labels an object, unless it has a label.
    pub(crate) fn label(&mut self, node: NodeIndex, label: TextIndex) {
        self.labels.entry(node).or_insert(label);
    }

    /// Changes how many references to an object were found.
    pub(super) fn count(&mut self, node: NodeIndex, more: i64) {
        let found = self.found.get(node).and_then(|found| found.checked_add_signed(more));
        self.found.set(node, found);
    }

    /// How many more references an object has than were found.
    pub(super) fn unexplained(&self, node: NodeIndex) -> Option<i64> {
        Some(self.references.get(node)? as i64 - self.found.get(node)? as i64)
    }

    /// The objects as they are in a heap.
    pub(super) fn unpacked(&self) -> impl ExactSizeIterator<Item = HeapNode> + '_ {
        let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
        self.addresses.iter().zip(&self.places).enumerate().map(move |(node, (address, place))| {
            let node = node as NodeIndex;
            HeapNode {
                address: *address,
                kind: small(self.kinds.get(node)).unwrap_or_default(),
                label: self.labels.get(&node).copied(),
                references: small(self.references.get(node)),
                bytes: self.bytes.get(node),
                place: *place,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Column;

    #[test]
    fn numbers_of_any_size_are_kept() {
        let mut column = Column::default();
        let numbers = [Some(0), None, Some(65_534), Some(65_535), Some(65_536), Some(u64::MAX)];
        numbers.into_iter().for_each(|number| column.push(number));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|node| column.get(node)), numbers);
        column.set(5, Some(1));
        column.set(1, Some(70_000));
        column.set(9, Some(1));
        assert_eq!([5, 1, 9].map(|node| column.get(node)), [Some(1), Some(70_000), None]);
    }
}
