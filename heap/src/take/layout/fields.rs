//! Names of the references of built-in types, by version, as data.

use super::{CELL, Fields, METHOD_FUNCTION, TRACEBACK};

/// Names of references of other built-in types, by type: for those without `PyMemberDef`s.
pub(crate) const BUILT_IN: &[(&str, Fields)] = &[
    ("cell", CELL),
    ("method", &[(METHOD_FUNCTION, ".__func__"), (24, ".__self__")]),
    ("builtin_function_or_method", &[(24, ".__self__"), (32, ".__module__")]),
    ("traceback", TRACEBACK),
    ("property", &[(16, ".fget"), (24, ".fset"), (32, ".fdel"), (40, ".__doc__")]),
    ("staticmethod", &[(16, ".__func__"), (24, ".__dict__")]),
    ("classmethod", &[(16, ".__func__"), (24, ".__dict__")]),
    ("mappingproxy", &[(16, ".mapping")]),
    ("functools.partial", &[(16, ".func"), (24, ".args"), (32, ".keywords"), (40, ".__dict__")]),
    ("collections.defaultdict", &[(48, ".default_factory")]),
    ("functools._lru_cache_wrapper", &[(72, ".cache"), (88, ".__wrapped__")]),
    ("types.SimpleNamespace", &[(16, ".__dict__")]),
];

/// Words of objects that are addresses of objects, but no references: type, first minor version,
/// offsets.
pub(crate) const BORROWED: &[(&str, u8, &[u64])] = &[
    // Links of the list, the first of which is the cache itself (Modules/_functoolsmodule.c).
    ("functools._lru_cache_wrapper", 8, &[16, 24]),
    // The thread's dict of a `threading.local` (Modules/_threadmodule.c).
    ("_thread._localdummy", 8, &[16]),
    // The placeholder belongs to the module.
    ("functools.partial", 14, &[56]),
];
