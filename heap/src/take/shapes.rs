//! References of objects of each shape, except frames and generators.

use crate::take::containers;
use crate::take::layout::{
    CELL_CONTENTS, LIST_ALLOCATED, LIST_ITEMS, METHOD_FUNCTION, MODULE_DICT, SIZE, TYPE,
    TYPE_REFERENCES, flags, function_closure, function_code, type_object,
};
use crate::take::limits::MOST_WORDS;
use crate::take::text::read_text;
use crate::take::types::{Shape, TypeInfo};
use crate::take::walk::{CodePlace, LONGEST_NAME, Walk};
use crate::{HeapEdgeName, NodeIndex};
use gctrace_cpython::{Dict, Memory as _};

impl Walk<'_> {
    /// Returns the size of its table in bytes.
    pub(crate) fn dict(&mut self, node: NodeIndex, address: u64, references_to_keys: usize) -> u64 {
        let Some(dict) = Dict::read(self.image, self.layout.minor, address) else {
            return 0;
        };
        if !dict.is_embedded {
            for entry in dict.entries(self.image) {
                if dict.keys.is_general()
                    && let Some(to) = self.target(entry.key)
                {
                    for _ in 0..references_to_keys {
                        self.builder.edge(node, to, HeapEdgeName::Unnamed, true);
                    }
                }
                if let Some(to) = self.target(entry.value) {
                    let name = self.key_name(entry.key);
                    self.builder.edge(node, to, name, true);
                }
            }
        }
        dict.bytes()
    }

    pub(crate) fn list(&mut self, node: NodeIndex, address: u64) -> u64 {
        let size = self.image.field(address, SIZE).unwrap_or(0);
        let items = self.image.pointer(address, LIST_ITEMS);
        let allocated = self.image.field(address, LIST_ALLOCATED).unwrap_or(0);
        self.items(node, items, size);
        allocated.min(MOST_WORDS) * 8
    }

    pub(crate) fn tuple(&mut self, node: NodeIndex, address: u64) {
        let size = self.image.field(address, SIZE).unwrap_or(0);
        self.items(node, address.wrapping_add(self.layout.tuple_items), size);
    }

    pub(crate) fn items(&mut self, node: NodeIndex, first: u64, count: u64) {
        if first == 0 || count > MOST_WORDS {
            return;
        }
        let mut words = std::mem::take(&mut self.words);
        self.image.words(first, count as usize, &mut words);
        for (index, word) in (0..).zip(&words) {
            self.refer(node, *word, HeapEdgeName::Item(index));
        }
        self.words = words;
    }

    /// `type_traverse`. A class's place is its first method's.
    pub(crate) fn class(&mut self, node: NodeIndex, address: u64) -> CodePlace {
        for (offset, name) in TYPE_REFERENCES {
            let target = self.image.pointer(address, offset);
            let name = self.named(name);
            self.refer(node, target, name);
        }
        if let Some(offset) = self.layout.type_module {
            let module = self.image.pointer(address, offset);
            let name = self.named(".ht_module");
            self.refer(node, module, name);
        }
        self.class_place(address)
    }

    pub(crate) fn class_place(&mut self, class: u64) -> CodePlace {
        CodePlace { class, ..self.first_method(class).unwrap_or_default() }
    }

    pub(crate) fn class_name(&mut self, class: u64) -> Option<String> {
        let qualified = class.checked_add(self.layout.qualified_name)?;
        let qualified = self.image.word(qualified)?;
        read_text(self.image, self.layout, qualified, LONGEST_NAME)
    }

    pub(crate) fn first_method(&mut self, class: u64) -> Option<CodePlace> {
        let dict = self.image.field(class, type_object::DICT)?;
        let entries = containers::dict(self.image, self.layout, dict)?;
        entries.iter().find_map(|entry| {
            let kind = self.type_of(entry.value)?;
            (kind.shape == Shape::Function).then_some(())?;
            self.function(entry.value)
        })
    }

    /// `lru_cache_tp_traverse`: keys and results, in the order of their use. The links that hold
    /// them are no nodes.
    pub(crate) fn cache(&mut self, node: NodeIndex, address: u64) {
        let root = address;
        let mut link = self.image.pointer(root, CACHE_NEXT);
        for _ in 0..MOST_WORDS {
            if link == root || link == 0 {
                break;
            }
            for (offset, name) in [(CACHE_KEY, ".(key)"), (CACHE_RESULT, ".(result)")] {
                let target = self.image.pointer(link, offset);
                let name = self.named(name);
                self.refer(node, target, name);
            }
            // From 3.11 on links are visited, and with them their type.
            let kind = self.image.pointer(link, TYPE);
            if self.layout.minor >= 11
                && let Some(kind) = self.builder.node(kind)
            {
                self.builder.edge(node, kind, HeapEdgeName::Unnamed, true);
            }
            link = self.image.pointer(link, CACHE_NEXT);
        }
    }

    /// The memory that keeps the order of an `OrderedDict` (`odict_sizeof` in Objects/odictobject.c), in
    /// bytes.
    pub(crate) fn order(&mut self, address: u64) -> Option<u64> {
        let word = |walk: &mut Self, offset: u64| walk.image.field(address, offset);
        let [entries, nodes, slots] =
            [DICT_USED, ORDER_NODES, ORDER_SLOTS].map(|offset| word(self, offset));
        let slots = if nodes? == 0 { 0 } else { slots? };
        Some(slots.min(MOST_WORDS) * 8 + entries?.min(MOST_WORDS) * ORDER_NODE)
    }

    /// Children and attributes of an XML element (Modules/_elementtree.c). Returns the size of its
    /// table in bytes.
    pub(crate) fn element(&mut self, node: NodeIndex, address: u64) -> Option<u64> {
        let extra = self.image.field(address, ELEMENT_EXTRA)?;
        (extra != 0).then_some(())?;
        let attributes = self.image.word(extra)?;
        let name = self.named(".attrib");
        self.refer(node, attributes, name);
        let count = self.image.field(extra, 8_u64)?;
        let children = self.image.field(extra, 24_u64)?;
        self.items(node, children, count);
        let allocated = self.image.field(extra, 16_u64)?;
        let is_inside = children == extra.checked_add(32)?;
        Some(ELEMENT_EXTRA_BYTES + if is_inside { 0 } else { allocated.min(MOST_WORDS) * 8 })
    }

    /// The bytes of the buffer that an object owns beside itself; `None` of other types. numpy's are no part of its
    /// objects' sizes: their layout differs between its versions.
    pub(crate) fn buffer(&mut self, address: u64, info: &TypeInfo) -> Option<u64> {
        let allocated = match info.name.as_str() {
            "bytearray" => self.image.field(address, BYTEARRAY_ALLOCATED)?,
            "array.array" => {
                let descriptor = self.image.field(address, ARRAY_DESCRIPTOR)?;
                let item = self.image.word(descriptor)? >> 32;
                self.image.field(address, ARRAY_ALLOCATED)?.checked_mul(item)?
            }
            _ => return None,
        };
        (allocated < MOST_BUFFER).then_some(allocated)
    }

    pub(crate) fn module(&mut self, node: NodeIndex, address: u64) {
        let word = |walk: &mut Self, at: u64| walk.image.word(at).unwrap_or(0);
        let dict = word(self, address.wrapping_add(MODULE_DICT));
        let name = self.named(".__dict__");
        self.refer(node, dict, name);
        let fields = self.layout.module;
        let text = word(self, address.wrapping_add(fields.name));
        if let Some(text) = read_text(self.image, self.layout, text, LONGEST_NAME) {
            let label = self.builder.text(&text);
            self.builder.nodes.label(node, label);
        }
        // A C module's state, if it has a function that visits it.
        let state = word(self, address.wrapping_add(fields.state));
        let described = match fields.definition {
            Some(offset) => word(self, address.wrapping_add(offset)),
            None => address,
        };
        if described == 0 || state == 0 || word(self, described.wrapping_add(fields.traverse)) == 0
        {
            return;
        }
        let size = word(self, described.wrapping_add(fields.state_size));
        if size < 1 << 20 {
            let mut words = Vec::new();
            self.image.words(state, (size / 8) as usize, &mut words);
            self.possible.extend(words.into_iter().map(|word| (node, word)));
        }
    }

    /// The place of a function; its references are plain. Its cells are labeled with the names of
    /// the variables.
    pub(crate) fn function(&mut self, address: u64) -> Option<CodePlace> {
        let code = self.image.field(address, function_code(self.layout.minor))?;
        let closure = self.image.field(address, function_closure(self.layout.minor))?;
        let info = self.code(code);
        if closure != 0 {
            let first = closure.checked_add(self.layout.tuple_items)?;
            for (index, name) in (0_u64..).zip(info.free_variables()) {
                let cell = self.image.field(first, index * 8)?;
                if let (Some(cell), Some(name)) = (self.builder.node(cell), name) {
                    let label = self.builder.text(name);
                    self.builder.nodes.label(cell, label);
                }
            }
        }
        Some(CodePlace { code, ..CodePlace::default() })
    }

    pub(crate) fn class_place_if_heap(&mut self, class: u64) -> Option<CodePlace> {
        let bits = self.image.field(class, type_object::FLAGS)?;
        (bits & flags::HEAP_TYPE != 0).then(|| self.class_place(class))
    }

    /// The place of the function in a cell or behind a bound method.
    pub(crate) fn place_of_content(&mut self, shape: Shape, address: u64) -> CodePlace {
        let offset = match shape {
            Shape::Method => METHOD_FUNCTION,
            _ => CELL_CONTENTS,
        };
        let content = self.image.pointer(address, offset);
        if content == 0 {
            return CodePlace::default();
        }
        let place = match self.type_of(content).map(|kind| kind.shape) {
            Some(Shape::Function) => self.function(content),
            Some(Shape::Type) if shape == Shape::Cell => self.class_place_if_heap(content),
            _ => None,
        };
        place.unwrap_or_default()
    }
}

/// `next`, `key` and `result` of a link of an `lru_cache` (`lru_list_elem`, Modules/_functoolsmodule.c), and of the
/// cache itself, the root of the list.
const CACHE_NEXT: u64 = 24;
const CACHE_KEY: u64 = 40;
const CACHE_RESULT: u64 = 48;
/// `ob_alloc` of a bytearray (Include/cpython/bytearrayobject.h, 3.8 to 3.15).
const BYTEARRAY_ALLOCATED: u64 = 24;
/// `allocated` and `ob_descr` of an `array.array`; its descriptor begins with `char typecode; int itemsize`
/// (Modules/arraymodule.c, 3.8 to 3.15).
const ARRAY_ALLOCATED: u64 = 32;
const ARRAY_DESCRIPTOR: u64 = 40;
/// A larger buffer is none: the object was misread.
const MOST_BUFFER: u64 = 1 << 48;
/// `extra` of an XML element.
const ELEMENT_EXTRA: u64 = 40;
/// `sizeof(ElementObjectExtra)`: attributes, length, allocated, children, and place for four of these.
const ELEMENT_EXTRA_BYTES: u64 = 64;
/// `ma_used` of a dict; `od_fast_nodes` and its number of slots, behind the fields of a dict, `od_first` and `od_last`;
/// `sizeof(_ODictNode)` (Objects/odictobject.c).
const DICT_USED: u64 = 16;
const ORDER_NODES: u64 = 64;
const ORDER_SLOTS: u64 = 72;
const ORDER_NODE: u64 = 32;
