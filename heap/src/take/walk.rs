//! Visits each object: its kind, its size, and its references.
//!
//! Owns the order, names and kinds, and the parts common to all objects. The parts of each [`Shape`] are in
//! `shapes.rs`, frames and generators in `frames.rs`, roots in `roots.rs`. References are what the type's own
//! `tp_traverse` visits, as far as the layout is known. In objects of other types, every word with the address of a
//! tracked object is a reference.

use crate::take::code::{CodeInfo, read_code};
use crate::take::graph::{Column, GraphBuilder};
use crate::take::image::Image;
use crate::take::layout::{Layout, SIZE, TYPE, WEAKREF_CALLBACK, flags, pre_header};
use crate::take::limits::{Exceeded, MOST_WORDS};
use crate::take::text::{read_int, read_text};
use crate::take::types::{Shape, TypeInfo, read_type, unreadable};
use crate::take::{FastMap, containers};
use crate::{HeapEdgeName, HeapPlace, NodeIndex};
use gctrace_cpython::{InstanceLayout, Keys, Memory as _};
use gctrace_event::{KindId, KindName};
use std::rc::Rc;

/// Longest key of a dict that becomes a name, in bytes.
const LONGEST_KEY: usize = 120;
/// Longest name of a module.
pub(crate) const LONGEST_NAME: usize = 500;

/// The code that an object belongs to; part of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CodePlace {
    /// Address of the code object; 0 if there is none.
    pub(crate) code: u64,
    /// The line that is executed; `None`: the first.
    pub(crate) line: Option<u32>,
    /// Address of the class: its name is shown instead of the code's; 0 if it is none.
    pub(crate) class: u64,
}

/// Position of a type in [`Walk::types`].
pub(crate) type TypeIndex = u32;

/// A heap while it is being read.
pub(crate) struct Walk<'image> {
    pub(crate) image: &'image mut Image,
    pub(crate) layout: &'image Layout,
    pub(crate) builder: GraphBuilder,
    types: Vec<Rc<TypeInfo>>,
    types_by_address: FastMap<u64, TypeIndex>,
    /// The type of each node.
    pub(crate) node_types: Column,
    codes: FastMap<u64, Rc<CodeInfo>>,
    kinds: FastMap<(TypeIndex, CodePlace), KindId>,
    keys: FastMap<u64, HeapEdgeName>,
    attributes: FastMap<u64, HeapEdgeName>,
    names: FastMap<(TypeIndex, u64), HeapEdgeName>,
    /// Words that may be references: a node and an address.
    pub(crate) possible: Vec<(NodeIndex, u64)>,
    /// Words of the object being read.
    pub(crate) words: Vec<u64>,
}

impl<'image> Walk<'image> {
    pub(crate) fn new(image: &'image mut Image, layout: &'image Layout, pid: u32) -> Self {
        let builder = GraphBuilder::new(pid, image.limits());
        Self {
            image,
            layout,
            builder,
            types: Vec::new(),
            types_by_address: FastMap::default(),
            node_types: Column::default(),
            codes: FastMap::default(),
            kinds: FastMap::default(),
            keys: FastMap::default(),
            attributes: FastMap::default(),
            names: FastMap::default(),
            possible: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Adds the tracked objects, then visits each of them and the untracked objects that they refer to.
    pub(crate) fn visit_all(&mut self, tracked: Vec<(u64, HeapPlace)>) {
        for (address, place) in &tracked {
            let _too_many = self.add(*address, *place);
        }
        drop(tracked);
        let mut at = 0;
        while let Some(address) = self.builder.nodes.address(at)
            && self.exceeded().is_none()
        {
            self.visit(at, address);
            at += 1;
        }
        self.add_possible();
        self.builder.graph.edges.sort_by_key(|edge| edge.from);
    }

    /// The limit that was reached: then the graph is incomplete.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        self.image.exceeded().or(self.builder.exceeded())
    }

    /// The state of a module also has addresses that are no references: an object has as many
    /// references as it counts.
    fn add_possible(&mut self) {
        let name = self.named(".(module state)");
        for (from, word) in std::mem::take(&mut self.possible) {
            if let Some(to) = self.builder.node(word)
                && self.builder.unexplained(to).is_none_or(|left| left > 0)
            {
                self.builder.edge(from, to, name, true);
            }
        }
    }

    fn add(&mut self, address: u64, place: HeapPlace) -> Option<NodeIndex> {
        let type_address = self.image.pointer(address, TYPE);
        let kind = self.type_at(type_address);
        let known = self.builder.nodes.len();
        let references = self.references(address);
        let node = self.builder.add(address, references, place);
        if self.builder.nodes.len() > known {
            self.node_types.push(Some(kind.into()));
        }
        node
    }

    /// `ob_refcnt`; `None` for immortal objects (3.12 and later: the sign of its lower half).
    fn references(&mut self, address: u64) -> Option<u32> {
        let count = self.image.int(address)?;
        if self.layout.minor >= 12 && count < 0 {
            return None;
        }
        Some(count.cast_unsigned())
    }

    pub(crate) fn type_at(&mut self, address: u64) -> TypeIndex {
        if let Some(known) = self.types_by_address.get(&address) {
            return *known;
        }
        let info = read_type(self.image, self.layout, address);
        let index = self.types.len() as TypeIndex;
        let info = info.unwrap_or_else(|| unreadable(address));
        self.types.push(Rc::new(info));
        self.types_by_address.insert(address, index);
        index
    }

    pub(crate) fn type_info(&self, index: TypeIndex) -> Option<Rc<TypeInfo>> {
        self.types.get(index as usize).cloned()
    }

    pub(crate) fn type_of(&mut self, address: u64) -> Option<Rc<TypeInfo>> {
        let kind = self.image.field(address, TYPE)?;
        let index = self.type_at(kind);
        self.type_info(index)
    }

    pub(crate) fn code(&mut self, address: u64) -> Rc<CodeInfo> {
        if let Some(known) = self.codes.get(&address) {
            return Rc::clone(known);
        }
        let is_code = self.type_of(address).is_some_and(|kind| kind.shape == Shape::Code);
        let code =
            if is_code { read_code(self.image, self.layout, address) } else { CodeInfo::default() };
        let code = Rc::new(code);
        self.codes.insert(address, Rc::clone(&code));
        code
    }

    /// Adds a reference to the object at an address, if it is a node, or an untracked object that
    /// becomes one.
    pub(crate) fn refer(&mut self, from: NodeIndex, to: u64, name: HeapEdgeName) {
        if let Some(to) = self.target(to) {
            self.builder.edge(from, to, name, true);
        }
    }

    /// The node of an object that is referred to for sure.
    pub(crate) fn target(&mut self, address: u64) -> Option<NodeIndex> {
        if let Some(node) = self.builder.node(address) {
            return Some(node);
        }
        (address != 0 && address.is_multiple_of(8)).then_some(())?;
        let kind = self.type_of(address)?;
        let is_wanted = match kind.shape {
            Shape::Dict | Shape::OrderedDict => true,
            Shape::Tuple => self.image.field(address, SIZE)? != 0,
            Shape::Plain => {
                let is_text = kind.has(flags::LONG | flags::BYTES | flags::UNICODE);
                let is_link = kind.name == "functools._lru_list_elem";
                let is_class = kind.has(flags::HEAP_TYPE) && !is_text && !is_link;
                is_class || UNTRACKED.contains(&kind.name.as_str())
            }
            _ => false,
        };
        if is_wanted { self.add(address, HeapPlace::Untracked) } else { None }
    }

    /// Adds references to all nodes with their address among these words. `offset`: offset of the first word, for
    /// names.
    fn scan(&mut self, from: NodeIndex, kind: TypeIndex, info: &TypeInfo, offset: u64) {
        let words = std::mem::take(&mut self.words);
        for (offset, word) in (offset..).step_by(8).zip(&words) {
            let is_reference = *word != 0 && *word % 8 == 0 && !info.is_borrowed(offset);
            if !is_reference {
                continue;
            }
            let is_named = info.names.iter().any(|(known, _)| *known == offset);
            let target = match self.builder.node(*word) {
                None if is_named => self.target(*word),
                // A C structure that starts a list or is its own `self` (Cython's functions) has its
                // address without a reference.
                Some(node) if node == from && !is_named => None,
                known => known,
            };
            if let Some(target) = target {
                let name =
                    if is_named { self.field(kind, info, offset) } else { HeapEdgeName::Unnamed };
                self.builder.edge(from, target, name, true);
            }
        }
        self.words = words;
    }

    fn field(&mut self, kind: TypeIndex, info: &TypeInfo, offset: u64) -> HeapEdgeName {
        if let Some(known) = self.names.get(&(kind, offset)) {
            return *known;
        }
        let name = info.names.iter().find(|(known, _)| *known == offset);
        let name = name
            .map_or(HeapEdgeName::Unnamed, |(_, name)| HeapEdgeName::Text(self.builder.text(name)));
        self.names.insert((kind, offset), name);
        name
    }

    pub(crate) fn named(&mut self, name: &str) -> HeapEdgeName {
        HeapEdgeName::Text(self.builder.text(name))
    }

    pub(crate) fn key_name(&mut self, key: u64) -> HeapEdgeName {
        if let Some(known) = self.keys.get(&key) {
            return *known;
        }
        let name = match read_text(self.image, self.layout, key, LONGEST_KEY) {
            Some(text) => {
                let text = format!("['{}']", text.escape_debug());
                HeapEdgeName::Text(self.builder.text(&text))
            }
            None => match read_int(self.image, self.layout, key) {
                Some(number) => HeapEdgeName::Text(self.builder.text(&format!("[{number}]"))),
                None => HeapEdgeName::Unnamed,
            },
        };
        self.keys.insert(key, name);
        name
    }

    fn attribute_name(&mut self, key: u64) -> HeapEdgeName {
        if let Some(known) = self.attributes.get(&key) {
            return *known;
        }
        let name = match read_text(self.image, self.layout, key, LONGEST_KEY) {
            Some(text) => HeapEdgeName::Text(self.builder.text(&format!(".{text}"))),
            None => HeapEdgeName::Unnamed,
        };
        self.attributes.insert(key, name);
        name
    }

    /// Reads one object.
    fn visit(&mut self, node: NodeIndex, address: u64) {
        let Some(kind) = self.node_types.get(node) else {
            return;
        };
        let kind = kind as TypeIndex;
        let Some(info) = self.type_info(kind) else {
            return;
        };
        let mut place = CodePlace::default();
        // Bytes that it owns beside itself, as far as they can be read.
        let (mut extra, mut order) = (None, None);
        match info.shape {
            Shape::Dict => extra = Some(self.dict(node, address, 1)),
            Shape::OrderedDict => {
                extra = Some(self.dict(node, address, 2));
                order = self.order(address);
            }
            Shape::List => extra = Some(self.list(node, address)),
            Shape::Tuple => self.tuple(node, address),
            Shape::Set => {
                if let Some((items, bytes)) = containers::set(self.image, address) {
                    extra = Some(bytes);
                    for item in items {
                        self.refer(node, item, HeapEdgeName::Unnamed);
                    }
                }
            }
            Shape::Deque => {
                if let Some((items, bytes)) = containers::deque(self.image, address) {
                    extra = Some(bytes);
                    for (index, item) in (0..).zip(items) {
                        self.refer(node, item, HeapEdgeName::Item(index));
                    }
                }
            }
            Shape::Type => {
                place = self.class(node, address);
                let keys = self.image.pointer(address, self.layout.cached_keys);
                let keys = Keys::read(self.image, self.layout.minor, keys);
                extra = keys.map(|keys| keys.bytes);
            }
            Shape::Weakref => {
                let callback = self.image.pointer(address, WEAKREF_CALLBACK);
                let name = self.named(".__callback__");
                self.refer(node, callback, name);
            }
            Shape::Module => self.module(node, address),
            Shape::Function => place = self.function(address).unwrap_or_default(),
            Shape::Cell | Shape::Method => place = self.place_of_content(info.shape, address),
            Shape::Frame => {
                place = self.frame_object(node, address);
                extra = self.frame_slots(place.code);
            }
            Shape::Generator => {
                place = self.generator(node, address, &info);
                extra = self.frame_slots(place.code);
            }
            Shape::Traceback => place = self.traceback(address).unwrap_or_default(),
            Shape::Cache => self.cache(node, address),
            Shape::Element => extra = self.element(node, address),
            Shape::Plain => extra = self.buffer(address, &info),
            Shape::Code => {}
        }
        let bytes = self.rest(node, address, kind, &info);
        let attributes = self.attributes_of(node, address, &info);
        let extra = [extra, order, attributes].into_iter().flatten().sum::<u64>()
            + pre_header(self.layout.minor, info.flags);
        if info.has(flags::HEAP_TYPE) {
            let name = self.named(".__class__");
            // An untracked type is static, and no node.
            if let Some(to) = self.builder.node(info.address) {
                self.builder.edge(node, to, name, true);
            }
        }
        let id = self.kind(kind, &info, place);
        self.builder.nodes.describe(node, id, bytes.and_then(|bytes| bytes.checked_add(extra)));
    }

    /// The references that the shape does not cover: slots, and all of plain objects. Returns the
    /// size of the object.
    fn rest(
        &mut self,
        node: NodeIndex,
        address: u64,
        kind: TypeIndex,
        info: &TypeInfo,
    ) -> Option<u64> {
        let items = match info.item_size {
            0 => 0,
            // No `ob_size` from 3.11 on, see `frame_slots`.
            _ if matches!(info.shape, Shape::Frame | Shape::Generator)
                && self.layout.minor >= 11 =>
            {
                0
            }
            _ => self.item_count(address, info)?,
        };
        let size = info.basic_size.checked_add(items.checked_mul(info.item_size)?)?;
        let end = match info.shape {
            // Theirs are in `frames.rs`.
            Shape::Frame | Shape::Generator | Shape::Code => return Some(size),
            // Only the dict follows their items, see `attributes_of`.
            Shape::Tuple => return Some(size),
            _ if info.has(flags::LONG | flags::BYTES) => return Some(size),
            Shape::Plain if info.item_size.is_multiple_of(8) && info.has(flags::MANAGED_DICT) => {
                size
            }
            Shape::Plain if info.item_size.is_multiple_of(8) => {
                size.saturating_add_signed(info.dict_offset.min(0))
            }
            _ => info.basic_size,
        };
        if end > info.scan_from {
            let count = ((end - info.scan_from) / 8).min(MOST_WORDS);
            let start = address.checked_add(info.scan_from)?;
            let mut words = std::mem::take(&mut self.words);
            self.image.words(start, count as usize, &mut words);
            self.words = words;
            self.scan(node, kind, info, info.scan_from);
        }
        Some(size)
    }

    /// `Py_SIZE`, or the digits of an `int`.
    fn item_count(&mut self, address: u64, info: &TypeInfo) -> Option<u64> {
        let size = self.image.field(address, SIZE)?;
        let count = if info.has(flags::LONG) && self.layout.minor >= 12 {
            // At least one digit is allocated.
            (size >> 3).max(1)
        } else {
            size.cast_signed().unsigned_abs()
        };
        (count < MOST_WORDS * 8).then_some(count)
    }

    /// The dict or the inline values before or after an object, and the dict of one with items.
    /// Returns the size of the values in bytes.
    fn attributes_of(&mut self, node: NodeIndex, address: u64, info: &TypeInfo) -> Option<u64> {
        if info.has(flags::MANAGED_DICT) {
            return self.managed(node, address, info);
        }
        if info.dict_offset < 0 && info.item_size > 0 {
            let dict = self.dict_after_items(address, info)?;
            let name = self.named(".__dict__");
            self.refer(node, dict, name);
        }
        None
    }

    /// `_PyObject_GetDictPtr` for a negative `tp_dictoffset` (Objects/object.c).
    fn dict_after_items(&mut self, address: u64, info: &TypeInfo) -> Option<u64> {
        let items = self.item_count(address, info)?.checked_mul(info.item_size)?;
        let size = info.basic_size.checked_add(items)?.next_multiple_of(8);
        let place = address.checked_add(size)?.checked_add_signed(info.dict_offset)?;
        self.image.word(place)
    }

    /// Returns the size of inline values in bytes.
    fn managed(&mut self, node: NodeIndex, address: u64, info: &TypeInfo) -> Option<u64> {
        let dict_name = self.named(".__dict__");
        let instances = InstanceLayout {
            minor: self.layout.minor,
            basic_size: info.basic_size,
            flags: info.flags,
            keys: info.cached_keys,
        };
        let (values, dict) = instances.places(self.image, address)?;
        let bytes = instances.bytes(self.image, address)?;
        if values != 0 {
            for entry in instances.entries(self.image, values)? {
                if let Some(to) = self.target(entry.value) {
                    let name = self.attribute_name(entry.key);
                    self.builder.edge(node, to, name, true);
                }
            }
        }
        self.refer(node, dict, dict_name);
        Some(bytes)
    }

    fn kind(&mut self, kind: TypeIndex, info: &TypeInfo, place: CodePlace) -> KindId {
        if let Some(known) = self.kinds.get(&(kind, place)) {
            return *known;
        }
        let mut made = KindName { type_name: info.name.clone(), ..KindName::default() };
        if place.code != 0 {
            let code = self.code(place.code);
            if let Some(object) = &code.object {
                made.function = Some(object.function.clone());
                made.file = Some(object.file.clone());
                made.line = place.line.or(object.frame_line(None));
            }
        }
        if place.class != 0 {
            made.function = self.class_name(place.class);
        }
        let id = self.builder.kind(made);
        self.kinds.insert((kind, place), id);
        id
    }
}

/// Types without references of their own that are worth a node: they own large memory.
const UNTRACKED: [&str; 3] = ["numpy.ndarray", "array.array", "bytearray"];
