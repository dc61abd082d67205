//! Changes between heaps of one process.
//!
//! Owns the rule for the same object. Address, type and label must be equal, and it cannot have become younger: a
//! generation only rises. One case is left: an object died, and an object of its type got its memory. The collector's
//! lists are in order of age, except that a collection moves objects behind their referrers. So the lists are cut where
//! the fewest objects contradict the cut. An object on the new side is new, whatever its address, with one exception:
//! it still refers to all objects of its counterpart that few others referred to, like a list that has grown.

use super::dominators::Dominators;
use super::reach::Heap;
use super::report::{DiffAnswer, DiffRow, HeapCount, OwnerRow};
use super::{HeapPlace, NodeIndex};
use gctrace_event::{KindId, KindName};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Objects that are in two heaps.
struct Matched {
    /// Whether an object of the newer heap is in the older one.
    old: Vec<bool>,
    /// Whether an object of the older heap is in the newer one.
    stayed: Vec<bool>,
    /// Objects taken for new ones although the older heap has an object that looks the same at their address.
    reused: u64,
}

/// Compares heaps of one process, oldest first: the objects in the last one, but not in the first,
/// and in all between. At most `most` rows per table.
#[must_use]
pub fn diff(heaps: &[Heap], most: usize) -> Option<DiffAnswer> {
    let [first, between @ .., last] = heaps else {
        return None;
    };
    let matched = matched(first, last);
    let mut is_born: Vec<bool> = matched.old.iter().map(|old| !old).collect();
    for middle in between {
        let stayed = self::matched(middle, last).old;
        for (is_born, stayed) in is_born.iter_mut().zip(stayed) {
            *is_born &= stayed;
        }
    }
    let mut answer = DiffAnswer {
        born: HeapCount::default(),
        gone: HeapCount::default(),
        reused_addresses: matched.reused,
        types: types(heaps, &is_born, &matched.stayed),
        owners: owners(last, &is_born, &matched.old, most),
    };
    for row in &answer.types {
        answer.born.add_all(row.born);
        answer.gone.add_all(row.gone);
    }
    answer.types.truncate(most);
    Some(answer)
}

fn matched(older: &Heap, newer: &Heap) -> Matched {
    let addresses: HashMap<u64, NodeIndex> =
        older.indices().map(|node| (older.node(node).address, node)).collect();
    let same = |node: NodeIndex| {
        let before = *addresses.get(&newer.node(node).address)?;
        let is_same = newer.kind(node).type_name == older.kind(before).type_name
            && newer.kind(node).function == older.kind(before).function
            && newer.label(node) == older.label(before)
            && is_possible(older.node(before).place, newer.node(node).place);
        is_same.then_some(before)
    };
    let mut counterparts: Vec<Option<NodeIndex>> = newer.indices().map(same).collect();
    let reused = cut((older, newer), &mut counterparts);
    let mut stayed = vec![false; older.graph().nodes.len()];
    for before in counterparts.iter().flatten() {
        stayed[*before as usize] = true;
    }
    Matched { old: counterparts.iter().map(Option::is_some).collect(), stayed, reused }
}

/// Whether the collector can have moved an object so: to an older generation, or by `gc.freeze()`
/// and `gc.unfreeze()`. Dicts and tuples may lose and regain its attention.
fn is_possible(before: HeapPlace, after: HeapPlace) -> bool {
    match (before, after) {
        (HeapPlace::Generation(before), HeapPlace::Generation(after)) => before <= after,
        _ => true,
    }
}

/// The number of references to each object in the heap.
fn referrers(heap: &Heap) -> Vec<u32> {
    let mut referrers = vec![0_u32; heap.graph().nodes.len()];
    for edge in &heap.graph().edges {
        if let Some(count) = referrers.get_mut(edge.to as usize) {
            *count = count.saturating_add(1);
        }
    }
    referrers
}

/// Whether an object still refers to all of its counterpart's own: objects that few others refer to. Classes and
/// other objects of many show nothing.
fn keeps_its_own(
    (older, newer): (&Heap, &Heap),
    referrers: &[u32],
    (before, node): (NodeIndex, NodeIndex),
) -> bool {
    const FEW: u32 = 3;
    let own = older.references(before).iter().map(|edge| edge.to);
    let own = own.filter(|to| referrers.get(*to as usize).is_some_and(|count| *count <= FEW));
    let mut own = own.map(|to| older.node(to).address).peekable();
    let kept = newer.references(node).iter().map(|edge| newer.node(edge.to).address);
    let kept: HashSet<u64> = if own.peek().is_some() { kept.collect() } else { return false };
    own.all(|address| kept.contains(&address))
}

/// Forgets the counterparts of objects on the new side of the lists. Returns how many.
fn cut((older, newer): (&Heap, &Heap), counterparts: &mut [Option<NodeIndex>]) -> u64 {
    let is_in_order =
        |node: &NodeIndex| matches!(newer.node(*node).place, HeapPlace::Generation(_));
    let ordered: Vec<NodeIndex> = newer.indices().filter(is_in_order).collect();
    // Matched objects before the cut minus new ones, at its best.
    let (mut score, mut best, mut cut) = (0_i64, 0_i64, 0);
    for (position, node) in (1..).zip(&ordered) {
        score += match counterparts.get(*node as usize) {
            Some(Some(_)) => 1,
            _ => -1,
        };
        if score >= best {
            (best, cut) = (score, position);
        }
    }
    let (referrers, mut reused) = (referrers(older), 0);
    for node in gctrace_units::part(&ordered, cut..) {
        let Some(counterpart) = counterparts.get_mut(*node as usize) else { continue };
        let is_new =
            |before: &mut NodeIndex| !keeps_its_own((older, newer), &referrers, (*before, *node));
        reused += u64::from(counterpart.take_if(is_new).is_some());
    }
    reused
}

fn types(heaps: &[Heap], is_born: &[bool], stayed: &[bool]) -> Vec<DiffRow> {
    let mut rows: HashMap<&str, DiffRow> = HashMap::new();
    for (position, heap) in heaps.iter().enumerate() {
        for node in heap.indices() {
            let type_name = heap.kind(node).type_name.as_str();
            let row = rows.entry(type_name).or_insert_with(|| DiffRow {
                type_name: type_name.to_owned(),
                heaps: vec![HeapCount::default(); heaps.len()],
                ..DiffRow::default()
            });
            let bytes = heap.node(node).bytes;
            row.heaps[position].add(bytes);
            if position + 1 == heaps.len() && is_born[node as usize] {
                row.born.add(bytes);
            }
            if position == 0 && !stayed[node as usize] {
                row.gone.add(bytes);
            }
        }
    }
    let mut rows: Vec<DiffRow> = rows.into_values().collect();
    rows.sort_by(|a, b| {
        let key = |row: &DiffRow| (Reverse(row.born.bytes), Reverse(row.born.objects));
        key(a).cmp(&key(b)).then_with(|| a.type_name.cmp(&b.type_name))
    });
    rows
}

/// New objects with one owner: in all, and of each kind how many and one of them.
type OwnedObjects = (HeapCount, HashMap<KindId, (u64, NodeIndex)>);

/// New objects by the nearest object that dominates them and is not new.
fn owners(last: &Heap, is_born: &[bool], old: &[bool], most: usize) -> Vec<OwnerRow> {
    let dominators = Dominators::new(last);
    // Node -> its nearest dominator that is old, plus 1.
    let mut owner = vec![0; is_born.len()];
    let mut owned: HashMap<u32, OwnedObjects> = HashMap::new();
    for node in dominators.order().iter().copied() {
        let dominator = dominators.immediate(node);
        owner[node as usize] = dominator.map_or(0, |dominator| {
            if old[dominator as usize] { dominator + 1 } else { owner[dominator as usize] }
        });
        if is_born[node as usize] {
            let (count, kinds) = owned.entry(owner[node as usize]).or_default();
            count.add(last.node(node).bytes);
            kinds.entry(last.node(node).kind).or_insert((0, node)).0 += 1;
        }
    }
    let mut owned: Vec<_> = owned.into_iter().collect();
    owned.sort_by_key(|(owner, (count, _))| (Reverse(count.bytes), Reverse(count.objects), *owner));
    owned.truncate(most);
    let row = |(owner, (born, kinds)): (u32, OwnedObjects)| {
        // With equal counts, a node with a line.
        let mostly = kinds.into_values().max_by_key(|(count, node)| {
            (*count, last.kind(*node).function.is_some(), Reverse(*node))
        });
        let owner = owner.checked_sub(1);
        OwnerRow {
            place: owner.map_or_else(|| "several".to_owned(), |owner| last.place(owner)),
            owner: owner.map(|owner| last.object(owner)),
            born,
            mostly: mostly.map(|(_, node)| kind_in_words(last.kind(node))).unwrap_or_default(),
        }
    };
    owned.into_iter().map(row).collect()
}

/// A type, of code with its line, or else its name: `function serve.py:12`.
fn kind_in_words(kind: &KindName) -> String {
    let place = kind.file.as_deref().map(|file| {
        let file = file.rsplit('/').next().unwrap_or(file);
        kind.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
    });
    let place = place.or_else(|| kind.function.clone());
    place.map_or_else(|| kind.type_name.clone(), |place| format!("{} {place}", kind.type_name))
}

#[cfg(test)]
mod tests;
