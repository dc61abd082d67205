//! Where an object's type has its name, and how objects lead to code.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Offsets in bytes, of a build with the GIL; `None`: this version has no such field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLayout {
    /// Addresses of [`KnownType::ALL`] minus the address of `_PyRuntime`; `None` for types that are not exported.
    pub types: [Option<i64>; KnownType::ALL.len()],
    /// In a heap type (`PyHeapTypeObject`): pointer to the `str` with its qualified name.
    pub type_qualname: u32,
    /// In a function: pointer to its code object.
    pub function_code: u32,
    /// In a generator or coroutine: pointer to its code object (3.8 - 3.10).
    pub generator_code: Option<u32>,
    /// In a generator or coroutine: pointer to its frame object, null once it has ended (3.8 -
    /// 3.10); its frame itself (3.11 and later).
    pub generator_frame: u32,
    /// In a frame object: pointer to its frame (3.11 and later; before, it is the frame).
    pub frame_object_frame: Option<u32>,
    /// Second number of the version; tables of dicts and values of instances depend on it.
    pub minor: u8,
}

/// A type of the interpreter; its objects lead to code, or own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
#[repr(u32)]
pub enum KnownType {
    /// `PyFunction_Type`
    Function = 1,
    /// `PyCell_Type`
    Cell,
    /// `PyMethod_Type`: bound methods.
    Method,
    /// `PyFrame_Type`
    Frame,
    /// `PyTraceBack_Type`
    Traceback,
    /// `PyGen_Type`
    Generator,
    /// `PyCoro_Type`
    Coroutine,
    /// `PyAsyncGen_Type`
    AsyncGenerator,
    /// `PyList_Type`
    List,
    /// `PyDict_Type`
    Dict,
}

impl KnownType {
    /// All of them, in the order of their numbers.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The exported symbol of the type.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Function => "PyFunction_Type",
            Self::Cell => "PyCell_Type",
            Self::Method => "PyMethod_Type",
            Self::Frame => "PyFrame_Type",
            Self::Traceback => "PyTraceBack_Type",
            Self::Generator => "PyGen_Type",
            Self::Coroutine => "PyCoro_Type",
            Self::AsyncGenerator => "PyAsyncGen_Type",
            Self::List => "PyList_Type",
            Self::Dict => "PyDict_Type",
        }
    }
}
