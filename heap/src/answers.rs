//! A heap as a whole, and its objects by type.

use super::reach::{Heap, Reached};
use super::report::{HeapAnswer, HeapCount, HeapFacts, HeapReport, ShowAnswer, TypeRow};
use super::{HeapPlace, NodeIndex};
use std::cmp::Reverse;
use std::collections::HashMap;

impl HeapReport {
    /// The answer to a question about heaps, given with their files.
    #[must_use]
    pub fn new<'a>(
        heaps: impl IntoIterator<Item = (&'a str, &'a Heap)>,
        answer: HeapAnswer,
    ) -> Self {
        Self {
            schema: Self::SCHEMA,
            heaps: heaps.into_iter().map(|(file, heap)| heap.facts(file)).collect(),
            answer,
        }
    }
}

impl Heap {
    /// The heap as a whole.
    #[must_use]
    pub fn facts(&self, file: &str) -> HeapFacts {
        let nodes = &self.graph().nodes;
        let count =
            |is: &dyn Fn(NodeIndex) -> bool| self.indices().filter(|node| is(*node)).count() as u64;
        let mut all = HeapCount::default();
        let mut garbage = HeapCount::default();
        for node in self.indices() {
            all.add(self.node(node).bytes);
            if self.is_garbage(node) {
                garbage.add(self.node(node).bytes);
            }
        }
        HeapFacts {
            file: file.to_owned(),
            header: self.graph().header.clone(),
            objects: all.objects,
            tracked: nodes.iter().filter(|node| node.place != HeapPlace::Untracked).count() as u64,
            frozen: nodes.iter().filter(|node| node.place == HeapPlace::Frozen).count() as u64,
            references: self.graph().edges.len() as u64,
            bytes: all.bytes,
            objects_of_unknown_bytes: nodes.iter().filter(|node| node.bytes.is_none()).count()
                as u64,
            garbage,
            held_outside: count(&|node| self.reached(node) == Reached::Outside),
            contradictions: self.contradictions(),
        }
    }

    /// Objects by type; at most `most` types.
    #[must_use]
    pub fn show(&self, most: usize) -> ShowAnswer {
        let mut rows: HashMap<&str, TypeRow> = HashMap::new();
        for node in self.indices() {
            let type_name = self.kind(node).type_name.as_str();
            let row = rows.entry(type_name).or_insert_with(|| TypeRow {
                type_name: type_name.to_owned(),
                ..TypeRow::default()
            });
            let object = self.node(node);
            row.all.add(object.bytes);
            if self.is_garbage(node) {
                row.garbage.add(object.bytes);
            }
            match object.place {
                HeapPlace::Generation(generation) => {
                    if let Some(count) = row.generations.get_mut(usize::from(generation)) {
                        *count += 1;
                    }
                }
                HeapPlace::Frozen => row.frozen += 1,
                HeapPlace::Untracked => row.untracked += 1,
                HeapPlace::Tracked => {}
            }
        }
        let mut types: Vec<TypeRow> = rows.into_values().collect();
        types.sort_by(|a, b| {
            let key = |row: &TypeRow| (Reverse(row.all.bytes), Reverse(row.all.objects));
            key(a).cmp(&key(b)).then_with(|| a.type_name.cmp(&b.type_name))
        });
        let rest = types.split_off(types.len().min(most));
        let mut others = HeapCount::default();
        for row in &rest {
            others.add_all(row.all);
        }
        ShowAnswer { types, others, other_types: rest.len() as u64 }
    }
}
