//! Leak suspects: objects that retain a large share of all memory.
//!
//! As Eclipse MAT does, a suspect is the object where its memory comes together. It retains at least the share; none of
//! its dominated objects does, unless several of one type do. In a chain (a linked list) it is the first object.

use super::dominators::Dominators;
use super::names::Place;
use super::reach::Heap;
use super::report::{
    DominatorsAnswer, HeapCount, Held, RetainedRow, RetainedType, Suspect, SuspectHolder,
};
use super::{HeapRoot, NodeIndex};
use gctrace_units::{add_to, sum};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Smallest share of the bytes that makes an object a suspect (the default of Eclipse MAT).
const SHARE: f64 = 0.1;
/// Longest pattern of types and references that makes a chain, and how often it must repeat.
const LONGEST_PERIOD: usize = 6;
const REPEATS: usize = 3;
/// Number of retained types that are named for a suspect.
const MOSTLY: usize = 3;

impl Heap {
    /// The objects that retain most; at most `most` rows besides the suspects.
    #[must_use]
    pub fn retained(&self, dominators: &Dominators, most: usize) -> DominatorsAnswer {
        let alone = |node: &&NodeIndex| dominators.immediate(**node).is_none();
        let mut largest: Vec<NodeIndex> =
            dominators.order().iter().filter(alone).copied().collect();
        let alive_bytes = sum(largest.iter().map(|node| dominators.retained(*node).bytes));
        let bytes = |node: &NodeIndex| (Reverse(dominators.retained(*node).bytes), *node);
        largest.sort_by_key(bytes);
        largest.truncate(most);
        let mut suspects: Vec<Vec<NodeIndex>> = self
            .accumulation_points(dominators, alive_bytes)
            .into_iter()
            .map(|one| vec![one])
            .collect();
        suspects.extend(self.held_outside_alike(dominators, alive_bytes));
        let retained = |nodes: &[NodeIndex]| {
            let each = nodes.iter().map(|node| dominators.retained(*node));
            each.fold(HeapCount::default(), |mut sum, one| {
                sum.add_all(HeapCount { objects: one.objects, bytes: one.bytes });
                sum
            })
        };
        suspects.sort_by_key(|nodes| (Reverse(retained(nodes).bytes), nodes.first().copied()));
        let mostly = self.mostly(dominators, &suspects);
        let suspect = |(nodes, mostly): (&Vec<NodeIndex>, _)| {
            let first = *nodes.first()?;
            let row =
                RetainedRow { retained: retained(nodes), ..self.retained_row(first, dominators) };
            let holder = match nodes.len() {
                1 => self.suspect_holder(first),
                _ => SuspectHolder::Outside,
            };
            Some(Suspect { holder, alike: nodes.len() as u64, row, mostly })
        };
        DominatorsAnswer {
            alive_bytes,
            suspect_share: SHARE,
            suspects: suspects.iter().zip(mostly).filter_map(suspect).collect(),
            largest: largest.into_iter().map(|node| self.retained_row(node, dominators)).collect(),
        }
    }

    /// Objects of one kind, each held by something outside the heap, as C code holds callbacks. Together they retain
    /// the share; alone each may retain little.
    fn held_outside_alike(&self, dominators: &Dominators, alive_bytes: u64) -> Vec<Vec<NodeIndex>> {
        let mut kinds: HashMap<u32, (u64, Vec<NodeIndex>)> = HashMap::new();
        let order = dominators.order().iter().copied();
        for node in order.filter(|node| dominators.immediate(*node).is_none()) {
            // Built-in types say nothing: C code holds many of the interpreter's own.
            let kind = self.kind(node);
            let is_telling = kind.function.is_some() || kind.type_name.contains('.');
            if is_telling && self.holder(node).is_none() && self.held(node) == Held::Outside {
                let (bytes, nodes) = kinds.entry(self.node(node).kind).or_default();
                add_to(bytes, dominators.retained(node).bytes);
                nodes.push(node);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a share of bytes")]
        let is_large = |bytes: u64| bytes as f64 >= SHARE * alive_bytes as f64;
        let kinds =
            kinds.into_values().filter(|(bytes, nodes)| nodes.len() > 1 && is_large(*bytes));
        kinds.map(|(_, nodes)| nodes).collect()
    }

    fn retained_row(&self, node: NodeIndex, dominators: &Dominators) -> RetainedRow {
        let retained = dominators.retained(node);
        RetainedRow {
            place: self.place(node),
            object: self.object(node),
            retained: HeapCount { objects: retained.objects, bytes: retained.bytes },
        }
    }

    fn accumulation_points(&self, dominators: &Dominators, alive_bytes: u64) -> Vec<NodeIndex> {
        #[expect(clippy::cast_precision_loss, reason = "a share of bytes")]
        let is_large = |node: NodeIndex| {
            let bytes = dominators.retained(node).bytes;
            bytes > 0 && bytes as f64 >= SHARE * alive_bytes as f64
        };
        let order = dominators.order().iter().copied();
        let large = order.filter(|node| is_large(*node));
        // Large objects by dominator and type.
        let mut below: HashMap<NodeIndex, HashMap<&str, u32>> = HashMap::new();
        for node in large.clone() {
            if let Some(dominator) = dominators.immediate(node) {
                let kinds = below.entry(dominator).or_default();
                *kinds.entry(self.kind(node).type_name.as_str()).or_default() += 1;
            }
        }
        // Several of one type are parts of their dominator.
        let is_part = |node: NodeIndex| {
            let siblings = dominators.immediate(node).and_then(|node| below.get(&node));
            let alike = siblings.and_then(|kinds| kinds.get(self.kind(node).type_name.as_str()));
            alike.is_some_and(|count| *count > 1)
        };
        let has_only_parts = |node: &NodeIndex| {
            let kinds = below.get(node);
            kinds.is_none_or(|kinds| kinds.values().all(|count| *count > 1))
        };
        let lowest = large.filter(|node| has_only_parts(node) && !is_part(*node));
        let start = |node| self.start_of_chain(node, dominators);
        let mut points: Vec<NodeIndex> = lowest.map(start).collect();
        points.sort_unstable();
        points.dedup();
        points
    }

    /// The first object of the chain that dominates a node, if objects and references before it
    /// repeat; otherwise the node.
    fn start_of_chain(&self, node: NodeIndex, dominators: &Dominators) -> NodeIndex {
        let above = |node: &NodeIndex| dominators.immediate(*node);
        let nodes: Vec<NodeIndex> = std::iter::successors(Some(node), above).collect();
        let step = |at: usize| {
            let node = *nodes.get(at)?;
            Some((self.node(node).kind, self.holder(node).and_then(|edge| self.edge_name(edge))))
        };
        for period in 1..=LONGEST_PERIOD {
            let repeats = |at: &usize| step(*at).is_some() && step(*at) == step(*at + period);
            let repeated = (0..nodes.len()).take_while(repeats).count();
            if repeated < period * REPEATS {
                continue;
            }
            // Where the pattern no longer repeats, an object of the same kind that is held by
            // another reference is the head of the chain.
            let kind = |at: usize| nodes.get(at).map(|node| self.node(*node).kind);
            let last = repeated + period - 1;
            let head = if kind(last + 1).is_some() && kind(last + 1) == kind(last + 1 - period) {
                last + 1
            } else {
                last
            };
            return nodes.get(head).copied().unwrap_or(node);
        }
        node
    }

    /// Retained objects of each suspect by type, most bytes first.
    fn mostly(
        &self,
        dominators: &Dominators,
        suspects: &[Vec<NodeIndex>],
    ) -> Vec<Vec<RetainedType>> {
        // Node -> position of the suspect that dominates it, plus 1.
        let mut of = vec![0_u8; self.graph().nodes.len()];
        for (number, nodes) in (1..=u8::MAX).zip(suspects) {
            for node in nodes {
                of[*node as usize] = number;
            }
        }
        let mut counts: Vec<HashMap<&str, HeapCount>> = vec![HashMap::new(); suspects.len()];
        for node in dominators.order().iter().copied() {
            if of[node as usize] == 0 {
                let dominator = dominators.immediate(node);
                of[node as usize] = dominator.map_or(0, |dominator| of[dominator as usize]);
            }
            let number = usize::from(of[node as usize]);
            if let Some(counts) = number.checked_sub(1).and_then(|index| counts.get_mut(index)) {
                let of_type = counts.entry(self.kind(node).type_name.as_str()).or_default();
                of_type.add(self.node(node).bytes);
            }
        }
        let rows = |counts: HashMap<&str, HeapCount>| {
            let mut types: Vec<RetainedType> = counts
                .into_iter()
                .map(|(name, count)| RetainedType { type_name: name.to_owned(), count })
                .collect();
            types.sort_by(|a, b| {
                let bytes = b.count.bytes.cmp(&a.count.bytes);
                bytes.then_with(|| a.type_name.cmp(&b.type_name))
            });
            types.truncate(MOSTLY);
            types
        };
        counts.into_iter().map(rows).collect()
    }

    /// The holder of an object, judged by the names on its path.
    fn suspect_holder(&self, node: NodeIndex) -> SuspectHolder {
        let chain = self.chain(node);
        let types = || chain.iter().map(|node| self.kind(*node).type_name.as_str());
        let mut place = self.place_of(node);
        // An object with a name of its own is held by something else.
        let is_named = place.names.is_empty();
        if let Some(edge) = self.holder(node).filter(|_| is_named) {
            place = self.place_of(edge.from);
        }
        let Place { anchor, names, .. } = place;
        let has = |part: &str| names.iter().any(|name| name.contains(part));
        let anchor = anchor.map(|anchor| self.kind(anchor).type_name.as_str());
        if has(".__defaults__") || has(".__kwdefaults__") {
            SuspectHolder::DefaultArgument
        } else if types().any(|name| name == "functools._lru_cache_wrapper") {
            SuspectHolder::LruCache
        } else if has(".handlers")
            && (has("loggerDict") || types().any(|name| name == "logging.Logger"))
        {
            SuspectHolder::Handler
        } else if has("loggerDict") {
            SuspectHolder::Loggers
        } else if types().any(|name| name.ends_with("finalize._Info")) || has("'_registry'") {
            SuspectHolder::Finalizer
        } else if has("._ready") || has("'_scheduled'") {
            SuspectHolder::EventLoop
        } else if types().any(|name| name.ends_with("WeakKeyDictionary")) {
            SuspectHolder::WeakKeys
        } else if has("hook") || has("callback") {
            SuspectHolder::Hooks
        } else if types().any(|name| name == "traceback") {
            SuspectHolder::Traceback
        } else if has(".__closure__") {
            SuspectHolder::Closure
        } else {
            match anchor {
                Some("module") => SuspectHolder::ModuleAttribute,
                Some("frame" | "generator" | "coroutine" | "async_generator") => {
                    SuspectHolder::Frame
                }
                None if self.chain_root_is_frame(&chain) => SuspectHolder::Frame,
                Some("function") | None => SuspectHolder::Other,
                // Other objects with a name of their own are classes, of any metaclass.
                Some(_) => SuspectHolder::ClassAttribute,
            }
        }
    }

    fn chain_root_is_frame(&self, chain: &[NodeIndex]) -> bool {
        let root = chain.first().and_then(|first| self.root_name(*first));
        root.is_some_and(|root| root.starts_with(HeapRoot::FRAME))
    }
}

#[cfg(test)]
mod tests;
