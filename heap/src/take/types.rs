//! Types: their names, how their objects are laid out, and the names of their fields.

use crate::take::image::Image;
use crate::take::layout::{
    BORROWED, BUILT_IN, HEADER, Layout, exception, flags, function, member, type_object,
};
use crate::take::text::read_text;
use gctrace_cpython::Memory as _;
use gctrace_event::KindName;

/// How objects of a type, and of types derived from it, refer to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Dict,
    /// Refers to each key twice: from the dict and from the list that orders them.
    OrderedDict,
    List,
    Tuple,
    Set,
    Deque,
    Type,
    Weakref,
    Module,
    Function,
    Cell,
    Method,
    Code,
    Frame,
    Generator,
    Traceback,
    /// A function made by `functools.lru_cache`.
    Cache,
    /// An element of `xml.etree`.
    Element,
    /// Any other: words of it that are addresses of objects.
    Plain,
}

/// A type as it was read.
#[derive(Clone, Debug)]
pub(crate) struct TypeInfo {
    pub(crate) address: u64,
    /// Qualified, with its module unless that is `builtins`.
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) basic_size: u64,
    pub(crate) item_size: u64,
    pub(crate) flags: u64,
    /// Offset of `__weakref__`: not a reference.
    pub(crate) weak_list: u64,
    /// Other addresses that are no references.
    borrowed: &'static [u64],
    /// `tp_dictoffset`.
    pub(crate) dict_offset: i64,
    /// Where words follow that the shape does not cover.
    pub(crate) scan_from: u64,
    /// Names of references, by offset.
    pub(crate) names: Vec<(u64, String)>,
    /// Where the names of inline attributes are.
    pub(crate) cached_keys: u64,
}

impl TypeInfo {
    /// Whether the word at an offset may be the address of an object without being a reference:
    /// `__weakref__`, and what [`BORROWED`] lists.
    pub(crate) fn is_borrowed(&self, offset: u64) -> bool {
        self.borrowed.contains(&offset) || (offset == self.weak_list && offset != 0)
    }

    pub(crate) fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// Longest name of a type, in bytes.
const LONGEST_NAME: usize = 500;
/// Most base types that are followed.
const MOST_BASES: usize = 100;
/// Most `PyMemberDef`s of a type.
const MOST_MEMBERS: u64 = 1000;

/// Reads the type at an address; `None` if there is none.
pub(crate) fn read_type(image: &mut Image, layout: &Layout, address: u64) -> Option<TypeInfo> {
    let at = |offset: u64| address.checked_add(offset);
    let bits = image.word(at(type_object::FLAGS)?)?;
    let basic_size = image.word(at(type_object::BASIC_SIZE)?)?;
    let item_size = image.word(at(type_object::ITEM_SIZE)?)?;
    // No object of a valid type is larger; this is no type.
    (basic_size < 1 << 24 && item_size < 1 << 24).then_some(())?;
    let is_heap_type = bits & flags::HEAP_TYPE != 0;
    let bases = bases(image, address);
    let (shape, scan_from) = shape(image, layout, &bases, bits);
    let name = type_name(image, layout, address, is_heap_type)?;
    let borrowed =
        BORROWED.iter().find(|(known, since, _)| *known == name && layout.minor >= *since);
    Some(TypeInfo {
        address,
        borrowed: borrowed.map_or(&[], |(_, _, offsets)| *offsets),
        name,
        shape,
        basic_size,
        item_size,
        flags: bits,
        weak_list: image.word(at(type_object::WEAK_LIST_OFFSET)?)?,
        dict_offset: image.word(at(type_object::DICT_OFFSET)?)?.cast_signed(),
        scan_from,
        names: names(image, layout, &bases, bits, basic_size),
        cached_keys: if is_heap_type {
            image.word(at(layout.cached_keys)?).unwrap_or(0)
        } else {
            0
        },
    })
}

/// The type and the types it is derived from, by `tp_base`.
fn bases(image: &mut Image, address: u64) -> Vec<u64> {
    let mut all = vec![address];
    let mut at = address;
    while let Some(base) = image.field(at, type_object::BASE) {
        if base == 0 || all.len() > MOST_BASES {
            break;
        }
        all.push(base);
        at = base;
    }
    all
}

fn read(image: &mut Image, base: u64, offset: u64) -> u64 {
    image.pointer(base, offset)
}

/// Derived from `collections.OrderedDict`. Its fields after a dict's are scanned: only the dict of attributes is among
/// them.
fn is_ordered(image: &mut Image, bases: &[u64]) -> bool {
    bases.iter().any(|base| {
        let name = read(image, *base, type_object::NAME);
        let name = image.c_string(name, LONGEST_NAME);
        name.as_deref() == Some("collections.OrderedDict")
    })
}

/// The shape, and the size of the part of an object that it covers.
fn shape(image: &mut Image, layout: &Layout, bases: &[u64], bits: u64) -> (Shape, u64) {
    let by_flag = [
        (flags::DICT, Shape::Dict),
        (flags::LIST, Shape::List),
        (flags::TUPLE, Shape::Tuple),
        (flags::TYPE, Shape::Type),
    ];
    if let Some((flag, shape)) = by_flag.into_iter().find(|(flag, _)| bits & flag != 0) {
        let has_flag = |base: &&u64| read(image, **base, type_object::FLAGS) & flag != 0;
        let built_in = bases.iter().take_while(has_flag).last();
        let size = built_in.map_or(HEADER, |base| read(image, *base, type_object::BASIC_SIZE));
        let is_ordered = shape == Shape::Dict && is_ordered(image, bases);
        let shape = if is_ordered { Shape::OrderedDict } else { shape };
        return (shape, size);
    }
    for base in bases {
        let name = read(image, *base, type_object::NAME);
        // A class written in Python may have any of these names, but not be its own base.
        let is_class = read(image, *base, type_object::FLAGS) & flags::HEAP_TYPE != 0;
        let size = read(image, *base, type_object::BASIC_SIZE);
        let name = image.c_string(name, LONGEST_NAME).unwrap_or_default();
        let shape = match name.as_str() {
            // Heap types in later versions.
            "collections.deque" => Shape::Deque,
            "functools._lru_cache_wrapper" => Shape::Cache,
            "xml.etree.ElementTree.Element" => Shape::Element,
            _ if is_class => continue,
            "frozendict" if layout.minor >= 15 => Shape::Dict,
            "set" | "frozenset" => Shape::Set,
            "weakref"
            | "weakref.ReferenceType"
            | "weakproxy"
            | "weakref.ProxyType"
            | "weakcallableproxy"
            | "weakref.CallableProxyType" => Shape::Weakref,
            "module" => Shape::Module,
            "function" => Shape::Function,
            "cell" => Shape::Cell,
            "method" => Shape::Method,
            "code" => Shape::Code,
            "frame" => Shape::Frame,
            "generator" | "coroutine" | "async_generator" => Shape::Generator,
            "traceback" => Shape::Traceback,
            _ => continue,
        };
        let covered = match shape {
            Shape::Dict | Shape::Set | Shape::Deque | Shape::Weakref | Shape::Module => size,
            _ => HEADER,
        };
        return (shape, covered);
    }
    (Shape::Plain, HEADER)
}

/// `module.qualname`, without `builtins`.
fn type_name(
    image: &mut Image,
    layout: &Layout,
    address: u64,
    is_heap_type: bool,
) -> Option<String> {
    let name = image.field(address, type_object::NAME)?;
    let text = image.c_string(name, LONGEST_NAME)?;
    (!text.is_empty()).then_some(())?;
    if !is_heap_type {
        return Some(text);
    }
    let qualified = image.field(address, layout.qualified_name)?;
    let Some(qualified) = read_text(image, layout, qualified, LONGEST_NAME) else {
        return Some(text);
    };
    let dict = image.field(address, type_object::DICT)?;
    let module = crate::take::containers::find_key(image, layout, dict, "__module__")
        .and_then(|module| read_text(image, layout, module, LONGEST_NAME));
    Some(match module.as_deref() {
        None if text.contains('.') => text,
        None | Some("builtins") => qualified,
        Some(module) => format!("{module}.{qualified}"),
    })
}

/// Names of references: of `__slots__` and of C types' members, and of those built-in types that
/// have neither.
fn names(
    image: &mut Image,
    layout: &Layout,
    bases: &[u64],
    bits: u64,
    basic_size: u64,
) -> Vec<(u64, String)> {
    let mut all: Vec<(u64, String)> = Vec::new();
    let mut add = |offset: u64, name: String| {
        let inside = (HEADER..basic_size).contains(&offset);
        if inside && !all.iter().any(|(known, _)| *known == offset) {
            all.push((offset, name));
        }
    };
    if bits & flags::EXCEPTION != 0 {
        for (offset, name) in exception(layout.minor) {
            add(*offset, (*name).to_owned());
        }
    }
    for base in bases {
        let name = image
            .field(*base, type_object::NAME)
            .and_then(|name| image.c_string(name, LONGEST_NAME))
            .unwrap_or_default();
        if name == "function" {
            for (offset, name) in function(layout.minor) {
                add(*offset, (*name).to_owned());
            }
        }
        if let Some((_, known)) = BUILT_IN.iter().find(|(one, _)| *one == name) {
            for (offset, name) in *known {
                add(*offset, (*name).to_owned());
            }
        }
        let members = image.pointer(*base, type_object::MEMBERS);
        if members == 0 {
            continue;
        }
        for at in (0..MOST_MEMBERS).map(|index| members.wrapping_add(index * member::BYTES)) {
            let Some(text) = image.word(at).filter(|text| *text != 0) else {
                break;
            };
            let kind = image.int_field(at, member::KIND);
            let offset = image.field(at, member::OFFSET);
            if let (Some(kind), Some(offset)) = (kind, offset)
                && member::OBJECTS.contains(&kind)
                && let Some(text) = image.c_string(text, LONGEST_NAME)
            {
                add(offset, format!(".{text}"));
            }
        }
    }
    if let Some(offset) = own_dict_offset(image, bases, bits) {
        add(offset, ".__dict__".to_owned());
    }
    all
}

fn own_dict_offset(image: &mut Image, bases: &[u64], bits: u64) -> Option<u64> {
    let offset = image.word(bases.first()?.checked_add(type_object::DICT_OFFSET)?)?;
    (bits & flags::MANAGED_DICT == 0 && offset.cast_signed() > 0).then_some(offset)
}

/// Where an address is no type.
pub(crate) fn unreadable(address: u64) -> TypeInfo {
    TypeInfo {
        address,
        name: KindName::UNREADABLE.to_owned(),
        shape: Shape::Plain,
        basic_size: HEADER,
        item_size: 0,
        flags: 0,
        weak_list: 0,
        borrowed: &[],
        dict_offset: 0,
        scan_from: HEADER,
        names: Vec::new(),
        cached_keys: 0,
    }
}
