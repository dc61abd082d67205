//! Why objects are alive: what holds them, grouped by paths that are alike.

use super::NodeIndex;
use super::reach::{Heap, Reached};
use super::report::{HeapCount, Held, WhyAnswer, WhyGroup};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

/// Steps of a path that are compared with the next one: a step like one of these is a further
/// object of the same chain, as in a linked list, and does not make another path.
const PERIOD: usize = 4;

impl Heap {
    /// The object at an address.
    #[must_use]
    pub fn at_address(&self, address: u64) -> Option<NodeIndex> {
        self.indices().find(|node| self.node(*node).address == address)
    }

    /// The objects of a type, named as the heap does or by its last part. If there are none: the objects that belong to
    /// code of this name.
    #[must_use]
    pub fn of_type(&self, name: &str) -> Vec<NodeIndex> {
        let is_last = |whole: &str| {
            let before = whole.strip_suffix(name);
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        let named = |node: &NodeIndex| is_last(&self.kind(*node).type_name);
        let found: Vec<NodeIndex> = self.indices().filter(named).collect();
        if !found.is_empty() {
            return found;
        }
        let of_code = |node: &NodeIndex| self.kind(*node).function.as_deref().is_some_and(is_last);
        self.indices().filter(of_code).collect()
    }

    /// Groups objects by holder; at most `most` groups.
    #[must_use]
    pub fn why(&self, target: &str, nodes: &[NodeIndex], most: usize) -> WhyAnswer {
        let alike = match nodes {
            // Not worth a look at the others.
            [node] => HashMap::from([(*node, (self.held(*node), 0))]),
            _ => self.alike(nodes),
        };
        let mut groups: HashMap<(Held, u64), (NodeIndex, HeapCount)> = HashMap::new();
        let mut found = HeapCount::default();
        for node in nodes {
            let key = alike.get(node).copied().unwrap_or((Held::Nothing, 0));
            let bytes = self.node(*node).bytes;
            found.add(bytes);
            let group = groups.entry(key);
            let (_, count) = group.or_insert_with(|| (*node, HeapCount::default()));
            count.add(bytes);
        }
        let mut groups: Vec<(Held, NodeIndex, HeapCount)> =
            groups.into_iter().map(|((held, _), (node, count))| (held, node, count)).collect();
        groups.sort_by_key(|(_, node, count)| (std::cmp::Reverse(count.objects), *node));
        let rest = groups.split_off(groups.len().min(most));
        let mut others = HeapCount::default();
        for (_, _, count) in &rest {
            others.add_all(*count);
        }
        let group = |(held, node, count)| WhyGroup {
            held,
            count,
            place: (held != Held::Nothing).then(|| self.place(node)),
            example: match held {
                Held::Nothing => self.cycle(node),
                Held::Root | Held::Outside => self.path(node),
            },
        };
        WhyAnswer {
            target: target.to_owned(),
            found,
            groups: groups.into_iter().map(group).collect(),
            others,
            other_groups: rest.len() as u64,
        }
    }

    /// Kind of an object's holder.
    #[must_use]
    pub fn held(&self, node: NodeIndex) -> Held {
        let mut at = node;
        while let Some(edge) = self.holder(at) {
            at = edge.from;
        }
        match self.reached(at) {
            Reached::Root(_) => Held::Root,
            Reached::Outside | Reached::By(_) => Held::Outside,
            Reached::Not => Held::Nothing,
        }
    }

    /// How objects are held, with a number that is equal for paths that are alike; nothing for
    /// garbage.
    fn alike(&self, wanted: &[NodeIndex]) -> HashMap<NodeIndex, (Held, u64)> {
        let nodes = self.graph().nodes.len();
        let mut paths = vec![(Held::Nothing, 0); nodes];
        let mut steps = vec![0; nodes];
        for node in self.order().iter().copied() {
            let at = node as usize;
            let Some(edge) = self.holder(node) else {
                let start = hash(&(self.root_name(node), self.node(node).kind));
                paths[at] = (self.held(node), start);
                continue;
            };
            let step = hash(&(self.position_free_name(node), self.node(node).kind));
            steps[at] = step;
            let holders = std::iter::successors(Some(edge.from), |node| {
                self.holder(*node).map(|edge| edge.from)
            });
            let is_chain = holders.take(PERIOD).any(|node| steps[node as usize] == step);
            let (held, path) = paths[edge.from as usize];
            paths[at] = if is_chain { (held, path) } else { (held, hash(&(path, step))) };
        }
        wanted.iter().map(|node| (*node, paths[*node as usize])).collect()
    }

    /// The name of the reference that holds an object, without its position in a container: `[]`
    /// instead of `[3]` and, unless it is a variable, of `['key']`.
    fn position_free_name(&self, node: NodeIndex) -> Option<String> {
        let edge = self.holder(node)?;
        let name = self.edge_name(edge)?;
        let is_of_namespace = || {
            let container = self.holder(edge.from);
            let name = container.and_then(|edge| self.edge_name(edge));
            name.is_some_and(|name| name == ".__dict__")
        };
        let is_position = name.starts_with('[') && !is_of_namespace();
        Some(if is_position { "[]".to_owned() } else { name.into_owned() })
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
