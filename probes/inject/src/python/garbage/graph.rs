//! A graph of references, its cycles, and the objects that they hold. Pure, and without recursion: garbage can be a
//! list of millions.

use std::cmp::Ordering;
use std::collections::{TryReserveError, VecDeque};

/// Objects searched from in a component for its shortest cycle.
const STARTS: usize = 16;

/// Maximum number of edges followed in a component for that search, in all; in a larger component all edges at least
/// once.
const MOST_EDGES: usize = 4096;

/// A graph by adjacency: the references of object `n` are `targets[starts[n]..starts[n + 1]]`.
pub(super) struct Graph {
    starts: Vec<u32>,
    targets: Vec<u32>,
}

/// The strongly connected components with a cycle.
pub(super) struct Components {
    /// Objects, grouped by component.
    members: Vec<u32>,
    /// Where the group of each component begins, and the end of the last. Referenced components come before the
    /// components that refer to them.
    groups: Vec<u32>,
    /// By object: its component, or [`NONE`].
    of: Vec<u32>,
}

/// No component; not visited.
const NONE: u32 = u32::MAX;

fn filled(value: u32, length: usize) -> Result<Vec<u32>, TryReserveError> {
    let mut all = Vec::new();
    all.try_reserve_exact(length)?;
    all.resize(length, value);
    Ok(all)
}

impl Graph {
    /// Without objects; to be filled in the order of their numbers.
    pub(super) fn new() -> Self {
        Self { starts: vec![0], targets: Vec::new() }
    }

    /// Adds a reference of the object that [`Graph::end_object`] ends next.
    pub(super) fn add(&mut self, target: u32) -> Result<(), TryReserveError> {
        self.targets.try_reserve(1)?;
        self.targets.push(target);
        Ok(())
    }

    /// All references of an object are added.
    pub(super) fn end_object(&mut self) -> Result<(), TryReserveError> {
        self.starts.try_reserve(1)?;
        self.starts.push(self.targets.len() as u32);
        Ok(())
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn range(&self, object: u32) -> std::ops::Range<usize> {
        self.starts[object as usize] as usize..self.starts[object as usize + 1] as usize
    }

    /// The references of an object.
    pub(super) fn references(&self, object: u32) -> &[u32] {
        &self.targets[self.range(object)]
    }

    /// The components with a cycle, by Tarjan's algorithm (SIAM Journal on Computing 1, 1972) with
    /// its stack in memory.
    pub(super) fn components(&self) -> Result<Components, TryReserveError> {
        let length = self.len();
        let mut found =
            Components { members: Vec::new(), groups: vec![0], of: filled(NONE, length)? };
        let mut order = filled(NONE, length)?;
        let mut lowest = filled(0, length)?;
        let mut is_open = Vec::new();
        is_open.try_reserve_exact(length)?;
        is_open.resize(length, false);
        let (mut open, mut path) = (Vec::<u32>::new(), Vec::<(u32, u32)>::new());
        let mut visited = 0;
        for root in 0..length as u32 {
            if order[root as usize] != NONE {
                continue;
            }
            path.push((root, self.starts[root as usize]));
            while let Some((object, next)) = path.last_mut() {
                let at = *object as usize;
                if order[at] == NONE {
                    order[at] = visited;
                    lowest[at] = visited;
                    visited += 1;
                    open.try_reserve(1)?;
                    open.push(*object);
                    is_open[at] = true;
                }
                if *next < self.starts[at + 1] {
                    let target = self.targets[*next as usize];
                    *next += 1;
                    if order[target as usize] == NONE {
                        path.try_reserve(1)?;
                        path.push((target, self.starts[target as usize]));
                    } else if is_open[target as usize] {
                        lowest[at] = lowest[at].min(order[target as usize]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    let parent = *parent as usize;
                    lowest[parent] = lowest[parent].min(lowest[at]);
                }
                if lowest[at] == order[at] {
                    let first = open.iter().rposition(|open| *open as usize == at);
                    let members = open.split_off(first.unwrap_or(0));
                    for member in &members {
                        is_open[*member as usize] = false;
                    }
                    let is_cycle =
                        members.len() > 1 || self.references(at as u32).contains(&(at as u32));
                    if is_cycle {
                        found.add(&members)?;
                    }
                }
            }
        }
        Ok(found)
    }

    /// The objects of a shortest cycle in a component, as far as a bounded search finds it. Among equal ones, the cycle
    /// with the smallest `kinds`, compared from the smallest on.
    pub(super) fn shortest_cycle(
        &self,
        components: &Components,
        component: u32,
        kinds: impl Fn(u32) -> u32,
        search: &mut Search,
    ) -> Result<Vec<u32>, TryReserveError> {
        search.prepare(self.len())?;
        let members = components.members(component);
        let mut best = Vec::new();
        let mut edges = 0;
        for start in members.iter().take(STARTS) {
            if edges > MOST_EDGES {
                break;
            }
            // Through this one there is one already; only one of itself alone would be shorter.
            let refers_to_itself = || self.references(*start).contains(start);
            if best.len() <= 2 && best.contains(start) && !refers_to_itself() {
                continue;
            }
            let longest = if best.is_empty() { usize::MAX } else { best.len() };
            let Some(cycle) = search.through(self, components, *start, longest, &mut edges)? else {
                continue;
            };
            let cycle = rotated(cycle, &kinds);
            let is_shorter = best.is_empty() || cycle.len() < best.len();
            let kinds = |cycle: &[u32]| cycle.iter().map(|cycle| kinds(*cycle)).collect::<Vec<_>>();
            if is_shorter || cycle.len() == best.len() && kinds(&cycle) < kinds(&best) {
                best = cycle;
            }
        }
        Ok(best)
    }

    /// By object: the component that holds it, either its own or the first component that leads to it; or [`NONE`].
    pub(super) fn holders(&self, components: &Components) -> Result<Vec<u32>, TryReserveError> {
        let mut holders = filled(NONE, self.len())?;
        holders.copy_from_slice(&components.of);
        let mut next = Vec::new();
        // Referring components first.
        for component in (0..components.len() as u32).rev() {
            next.extend_from_slice(components.members(component));
            while let Some(object) = next.pop() {
                for target in self.references(object) {
                    if holders[*target as usize] == NONE {
                        holders[*target as usize] = component;
                        next.try_reserve(1)?;
                        next.push(*target);
                    }
                }
            }
        }
        Ok(holders)
    }
}

/// The cycle, begun where its kinds are the smallest: two candidates are compared until one loses,
/// and all that it could have begun with it.
fn rotated(mut cycle: Vec<u32>, kinds: impl Fn(u32) -> u32) -> Vec<u32> {
    let length = cycle.len();
    let kind = |at: usize| if let Some(cycle) = cycle.get(at % length) { kinds(*cycle) } else { 0 };
    let (mut first, mut other, mut equal) = (0, 1, 0);
    while first < length && other < length && equal < length {
        match kind(first + equal).cmp(&kind(other + equal)) {
            Ordering::Equal => equal += 1,
            worse => {
                match worse {
                    Ordering::Greater => first += equal + 1,
                    _ => other += equal + 1,
                }
                other += usize::from(first == other);
                equal = 0;
            }
        }
    }
    cycle.rotate_left(first.min(other) % length.max(1));
    cycle
}

impl Components {
    fn add(&mut self, members: &[u32]) -> Result<(), TryReserveError> {
        let number = self.len() as u32;
        self.members.try_reserve(members.len())?;
        self.members.extend_from_slice(members);
        for member in members {
            self.of[*member as usize] = number;
        }
        self.groups.try_reserve(1)?;
        self.groups.push(self.members.len() as u32);
        Ok(())
    }

    /// Number of components.
    pub(super) fn len(&self) -> usize {
        self.groups.len() - 1
    }

    /// The objects of a component.
    pub(super) fn members(&self, component: u32) -> &[u32] {
        let at = component as usize;
        &self.members[self.groups[at] as usize..self.groups[at + 1] as usize]
    }
}

/// Memory for searches, used again by the next.
#[derive(Default)]
pub(super) struct Search {
    /// By object: the object that it was reached from.
    from: Vec<u32>,
    seen: Vec<u32>,
    number: u32,
    next: VecDeque<(u32, u32)>,
}

impl Search {
    fn prepare(&mut self, length: usize) -> Result<(), TryReserveError> {
        if self.from.len() != length {
            self.from = filled(0, length)?;
            self.seen = filled(0, length)?;
            self.number = 0;
        }
        Ok(())
    }

    /// A shortest cycle through an object, within its component; `None` if it is longer than that.
    fn through(
        &mut self,
        graph: &Graph,
        components: &Components,
        start: u32,
        longest: usize,
        edges: &mut usize,
    ) -> Result<Option<Vec<u32>>, TryReserveError> {
        self.number += 1;
        self.next.clear();
        self.next.push_back((start, 1));
        let component = components.of[start as usize];
        while let Some((object, length)) = self.next.pop_front() {
            if length as usize > longest {
                return Ok(None);
            }
            for target in graph.references(object) {
                *edges += 1;
                let at = *target as usize;
                if *target == start {
                    let mut cycle = vec![object];
                    while let Some(last) = cycle.last().filter(|last| **last != start) {
                        let before = self.from[*last as usize];
                        cycle.try_reserve(1)?;
                        cycle.push(before);
                    }
                    cycle.reverse();
                    return Ok(Some(cycle));
                }
                if components.of[at] == component && self.seen[at] != self.number {
                    self.seen[at] = self.number;
                    self.from[at] = object;
                    self.next.try_reserve(1)?;
                    self.next.push_back((*target, length + 1));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn graph(references: &[Vec<u32>]) -> Graph {
        let mut graph = Graph::new();
        for reference in references {
            reference.iter().for_each(|target| graph.add(*target).unwrap());
            graph.end_object().unwrap();
        }
        graph
    }

    fn shortest(graph: &Graph, kinds: impl Fn(u32) -> u32) -> Vec<Vec<u32>> {
        let components = graph.components().unwrap();
        let mut search = Search::default();
        (0..components.len() as u32)
            .map(|component| {
                graph.shortest_cycle(&components, component, &kinds, &mut search).unwrap()
            })
            .collect()
    }

    #[test]
    fn cycles_and_what_they_hold() {
        // 0 <-> 1 -> 2 -> 3 <-> 4, 5 -> 5 -> 2, 6 alone.
        let all = graph(&[vec![1], vec![0, 2], vec![3], vec![4], vec![3], vec![5, 2], vec![]]);
        let components = all.components().unwrap();
        assert_eq!(components.len(), 3);
        let holders = all.holders(&components).unwrap();
        assert_eq!(holders[0], holders[1]);
        assert_eq!(holders[3], holders[4]);
        assert!(holders[2] == holders[0] || holders[2] == holders[5]);
        assert_eq!(holders[6], NONE);
        let mut cycles = shortest(&all, |object| object);
        cycles.sort();
        assert_eq!(cycles, [vec![0, 1], vec![3, 4], vec![5]]);
    }

    #[test]
    fn the_shortest_of_several_begins_at_the_smallest_kind() {
        // 0 -> 1 -> 2 -> 3 -> 0, and 2 -> 1.
        let all = graph(&[vec![1], vec![2], vec![3, 1], vec![0]]);
        assert_eq!(shortest(&all, |object| 9 - object), [vec![2, 1]]);
    }

    proptest! {
        #[test]
        fn the_least_rotation(kinds in vec(0..3_u32, 1..12)) {
            let numbers = (0..kinds.len() as u32).collect();
            let turned = rotated(numbers, |object| kinds[object as usize]);
            let turned: Vec<u32> = turned.iter().map(|object| kinds[*object as usize]).collect();
            let all = (0..kinds.len()).map(|at| {
                let mut one = kinds.clone();
                one.rotate_left(at);
                one
            });
            prop_assert_eq!(Some(turned), all.min());
        }
    }

    #[test]
    fn long_lists_need_no_stack() {
        const LENGTH: u32 = 300_000;
        let ring: Vec<_> = (0..LENGTH).map(|index| vec![(index + 1) % LENGTH]).collect();
        assert_eq!(shortest(&graph(&ring), |_| 1)[0].len(), LENGTH as usize);
        let list: Vec<_> = (0..LENGTH)
            .map(|index| vec![(index + 1).min(LENGTH - 1), index.saturating_sub(1)])
            .collect();
        let cycles = shortest(&graph(&list), |_| 1);
        assert_eq!(cycles.len(), 1);
        assert_eq!(cycles[0].len(), 1, "the last refers to itself");
    }

    proptest! {
        #[test]
        fn components_are_what_reaches_itself(
            references in vec(vec(0..12_u32, 0..4), 12),
        ) {
            let all = graph(&references);
            let components = all.components().unwrap();
            let mut reaches = [[false; 12]; 12];
            for (object, targets) in references.iter().enumerate() {
                targets.iter().for_each(|target| reaches[object][*target as usize] = true);
            }
            for by in 0..12 {
                for from in 0..12 {
                    for to in 0..12 {
                        reaches[from][to] |= reaches[from][by] && reaches[by][to];
                    }
                }
            }
            for (one, from) in reaches.iter().enumerate() {
                prop_assert_eq!(components.of[one] != NONE, from[one]);
                for (other, to) in reaches.iter().enumerate() {
                    let together = one != other && from[other] && to[one];
                    let same = components.of[one] != NONE && components.of[one] == components.of[other];
                    prop_assert_eq!(together, same && one != other);
                }
            }
            let holders = all.holders(&components).unwrap();
            for object in 0..12 {
                let held = (0..12).any(|by| reaches[by][by] && (by == object || reaches[by][object]));
                prop_assert_eq!(holders[object] != NONE, held);
            }
            for cycle in shortest(&all, |object| object) {
                for (at, object) in cycle.iter().enumerate() {
                    let next = cycle[(at + 1) % cycle.len()];
                    prop_assert!(all.references(*object).contains(&next));
                }
            }
        }
    }
}
