//! The objects and references of a picture: of one path or cycle, at most 50.

use crate::units::{count, counted};
use gctrace_heap::{Heap, HeapEdge, NodeIndex};
use gctrace_units::if_known;
use std::collections::{BTreeMap, VecDeque};

/// Boxes that a picture can have and still be understood.
const MOST: usize = 50;
/// Boxes of a long path that are shown at each of its ends.
const ENDS: usize = 12;
/// Characters of a line in a box, and of a name at an arrow.
const WIDEST: usize = 32;

/// A picture.
#[derive(Debug, PartialEq)]
pub(crate) struct Picture {
    /// The subject, as one line.
    pub title: String,
    pub boxes: Vec<PictureBox>,
    pub arrows: Vec<PictureArrow>,
}

/// A box.
#[derive(Debug, PartialEq)]
pub(crate) struct PictureBox {
    /// Up to three lines: the type, the object, and the line of its code.
    pub lines: Vec<String>,
    /// How the box stands out.
    pub role: Role,
    /// References from here to the object that the picture is about.
    pub depth: usize,
}

/// The object that a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The object that the picture is about.
    Target,
    /// Another object.
    Object,
    /// The holder of the first object.
    Root,
    /// Objects that are left out.
    Omitted,
}

/// A reference between two boxes, by position.
#[derive(Debug, PartialEq)]
pub(crate) struct PictureArrow {
    pub from: usize,
    pub to: usize,
    /// Its name; empty if it has none.
    pub name: String,
}

impl Picture {
    /// The shortest path from a root to an object that is alive.
    pub(crate) fn of_path(heap: &Heap, node: NodeIndex) -> Self {
        let chain = heap.chain(node);
        let mut picture = Self {
            title: format!("What keeps {} alive", heap.title(node)),
            boxes: Vec::new(),
            arrows: Vec::new(),
        };
        let first = chain.first().copied().unwrap_or(node);
        let root = if_known(heap.root_name(first)).to_owned();
        // `module train` holds the module of this name: no box of its own.
        let is_its_own = heap.title(first) == root;
        let omitted = if chain.len() > MOST { chain.len() - 2 * ENDS } else { 0 };
        if !is_its_own {
            picture.boxes.push(PictureBox {
                lines: vec![shortened(&root)],
                role: Role::Root,
                depth: chain.len(),
            });
        }
        for (position, member) in chain.iter().enumerate() {
            let depth = chain.len() - 1 - position;
            let is_left_out = omitted > 0 && position >= ENDS && position < ENDS + omitted;
            if is_left_out && position > ENDS {
                continue;
            }
            let name = heap.holder(*member).and_then(|edge| heap.edge_name(edge));
            let name = if_known(name);
            let to = picture.boxes.len();
            if to > 0 {
                picture.arrows.push(PictureArrow { from: to - 1, to, name: shortened(&name) });
            }
            picture.boxes.push(if is_left_out {
                PictureBox {
                    lines: vec![format!("{} more", count(omitted as u64))],
                    role: Role::Omitted,
                    depth,
                }
            } else {
                PictureBox {
                    lines: lines(heap, *member),
                    role: match (depth, position, is_its_own) {
                        (0, ..) => Role::Target,
                        (_, 0, true) => Role::Root,
                        _ => Role::Object,
                    },
                    depth,
                }
            });
        }
        picture
    }

    /// The cycle that an object is in: all that it refers to and that refers to it, or a shortest
    /// cycle if that is too much; `None` if it is in none.
    pub(crate) fn of_cycle(heap: &Heap, node: NodeIndex) -> Option<Self> {
        let cycle = heap.shortest_cycle(node)?;
        let edges = |position: &u32| heap.graph().edges.get(*position as usize).copied();
        let cycle: Vec<HeapEdge> = cycle.iter().filter_map(edges).collect();
        let (members, references) = match heap.small_component(node, MOST) {
            Some(members) => {
                let references = members.iter().flat_map(|member| heap.references(*member));
                let references = references.filter(|edge| members.contains(&edge.to)).copied();
                let references: Vec<HeapEdge> = references.collect();
                (members, references)
            }
            None => (cycle.iter().take(MOST).map(|edge| edge.from).collect(), cycle),
        };
        let position: BTreeMap<NodeIndex, usize> =
            (0..).zip(&members).map(|(at, node)| (*node, at)).collect();
        let arrows: Vec<PictureArrow> = references
            .iter()
            .filter_map(|edge| {
                Some(PictureArrow {
                    from: *position.get(&edge.from)?,
                    to: *position.get(&edge.to)?,
                    name: shortened(&if_known(heap.edge_name(edge))),
                })
            })
            .collect();
        let depths = depths(members.len(), &arrows);
        let boxes = members.iter().zip(depths).map(|(member, depth)| PictureBox {
            lines: lines(heap, *member),
            role: if member == &node { Role::Target } else { Role::Object },
            depth,
        });
        let state = if heap.is_garbage(node) { "garbage" } else { "alive" };
        Some(Self {
            title: format!("The cycle of {} ({state})", heap.title(node)),
            boxes: boxes.collect(),
            arrows,
        })
    }
}

/// References from each box to the first one.
fn depths(boxes: usize, arrows: &[PictureArrow]) -> Vec<usize> {
    let mut depths = vec![usize::MAX; boxes];
    let mut queue = VecDeque::from([(0, 0)]);
    while let Some((at, depth)) = queue.pop_front() {
        if depths.get(at) == Some(&usize::MAX) {
            depths[at] = depth;
            let holders = arrows.iter().filter(|arrow| arrow.to == at);
            queue.extend(holders.map(|arrow| (arrow.from, depth + 1)));
        }
    }
    depths.into_iter().map(|depth| if depth == usize::MAX { 0 } else { depth }).collect()
}

/// The type of an object, its title, and the line of its code.
fn lines(heap: &Heap, node: NodeIndex) -> Vec<String> {
    let title = heap.title(node);
    let (title, line) = match title.rsplit_once(" (") {
        Some((title, line)) if heap.kind(node).file.is_some() => (title, Some(format!("({line}"))),
        _ => (title.as_str(), None),
    };
    let (type_name, what) = match title.split_once(' ') {
        Some((type_name, what)) => (type_name, what.to_owned()),
        None => (title, unnamed(heap, node)),
    };
    let lines = [Some(type_name), Some(&what), line.as_deref()];
    lines.into_iter().flatten().map(shortened).collect()
}

/// How to tell apart objects without a name.
fn unnamed(heap: &Heap, node: NodeIndex) -> String {
    match heap.kind(node).type_name.as_str() {
        "list" | "tuple" | "dict" | "set" | "frozenset" | "collections.deque" => {
            counted(heap.references(node).len() as u64, "reference")
        }
        _ => heap.object(node).address,
    }
}

fn shortened(text: &str) -> String {
    crate::document::cut(text, WIDEST)
}
