//! From addresses to nodes.

use crate::NodeIndex;
use crate::take::FastMap;

/// Addresses per stretch, and their distance: CPython's allocators align to 16 bytes.
const PER_STRETCH: usize = 1 << 12;
const ALIGNMENT: u64 = 16;
const STRETCH_BYTES: u64 = PER_STRETCH as u64 * ALIGNMENT;
const WORDS: usize = PER_STRETCH / 64;

/// The node of each object, by its address.
#[derive(Debug, Default)]
pub(super) struct AddressIndex {
    stretches: Vec<Stretch>,
    positions: FastMap<u64, u32>,
    /// Objects at other addresses: none, unless a layout is wrong.
    others: FastMap<u64, NodeIndex>,
    lowest: u64,
    highest: u64,
}

/// Nodes of neighboring addresses.
#[derive(Debug)]
struct Stretch {
    /// A bit for each address that has a node, and the number of those before each word.
    is_node: [u64; WORDS],
    before: [u16; WORDS],
    /// By address.
    nodes: Vec<NodeIndex>,
}

impl Stretch {
    /// Where the node of an address is among `nodes`, or would be; and whether it is there.
    fn find(&self, slot: usize) -> (usize, bool) {
        let (word, bit) = (slot / 64, slot % 64);
        let bits = self.is_node[word] >> bit;
        let above = self.is_node[word].count_ones() - bits.count_ones();
        (usize::from(self.before[word]) + above as usize, bits & 1 == 1)
    }

    fn insert(&mut self, slot: usize, node: NodeIndex) {
        let (at, is_there) = self.find(slot);
        if is_there {
            self.nodes[at] = node;
            return;
        }
        self.nodes.insert(at, node);
        self.is_node[slot / 64] |= 1 << (slot % 64);
        for before in &mut self.before[slot / 64 + 1..] {
            *before += 1;
        }
    }
}

impl AddressIndex {
    pub(super) fn get(&self, address: u64) -> Option<NodeIndex> {
        if address < self.lowest || address > self.highest {
            return None;
        }
        if !address.is_multiple_of(ALIGNMENT) {
            return self.others.get(&address).copied();
        }
        let position = *self.positions.get(&(address / STRETCH_BYTES))?;
        let stretch = self.stretches.get(position as usize)?;
        let (at, is_there) = stretch.find((address % STRETCH_BYTES / ALIGNMENT) as usize);
        stretch.nodes.get(at).copied().filter(|_| is_there)
    }

    pub(super) fn insert(&mut self, address: u64, node: NodeIndex) {
        self.lowest = match self.highest {
            0 => address,
            _ => self.lowest.min(address),
        };
        self.highest = self.highest.max(address);
        if !address.is_multiple_of(ALIGNMENT) {
            self.others.insert(address, node);
            return;
        }
        let stretches = &mut self.stretches;
        let position = *self.positions.entry(address / STRETCH_BYTES).or_insert_with(|| {
            stretches.push(Stretch { is_node: [0; WORDS], before: [0; WORDS], nodes: Vec::new() });
            stretches.len() as u32 - 1
        });
        if let Some(stretch) = stretches.get_mut(position as usize) {
            stretch.insert((address % STRETCH_BYTES / ALIGNMENT) as usize, node);
        }
    }
}
