//! Names of the references of built-in types, by version, as data.

use super::{CELL_CONTENTS, Function, METHOD_FUNCTION, TRACEBACK_FRAME};

pub(super) fn function(minor: u8) -> Function {
    match minor {
        8 | 9 => Function {
            code: 16,
            closure: 48,
            references: &[
                (16, ".__code__"),
                (24, ".__globals__"),
                (32, ".__defaults__"),
                (40, ".__kwdefaults__"),
                (48, ".__closure__"),
                (56, ".__doc__"),
                (64, ".__name__"),
                (72, ".__dict__"),
                (88, ".__module__"),
                (96, ".__annotations__"),
                (104, ".__qualname__"),
            ],
        },
        10.. => Function {
            code: 48,
            closure: 72,
            references: match minor {
                10 | 11 => &FUNCTION,
                12 | 13 => &FUNCTION_12,
                _ => &FUNCTION_14,
            },
        },
        _ => Function { code: 0, closure: 0, references: &[] },
    }
}

/// 3.10 and 3.11; later versions add to it.
const FUNCTION: [(u64, &str); 12] = [
    (16, ".__globals__"),
    (24, ".__builtins__"),
    (32, ".__name__"),
    (40, ".__qualname__"),
    (48, ".__code__"),
    (56, ".__defaults__"),
    (64, ".__kwdefaults__"),
    (72, ".__closure__"),
    (80, ".__doc__"),
    (88, ".__dict__"),
    (104, ".__module__"),
    (112, ".__annotations__"),
];
const FUNCTION_12: [(u64, &str); 13] = joined(FUNCTION, [(120, ".__type_params__")]);
const FUNCTION_14: [(u64, &str); 14] =
    joined(FUNCTION, [(120, ".__annotate__"), (128, ".__type_params__")]);

const fn joined<const A: usize, const B: usize, const C: usize>(
    first: [(u64, &'static str); A],
    second: [(u64, &'static str); B],
) -> [(u64, &'static str); C] {
    assert!(A + B == C);
    let mut all = [(0, ""); C];
    let mut index = 0;
    while index < C {
        all[index] = if index < A { first[index] } else { second[index - A] };
        index += 1;
    }
    all
}

pub(super) const OLD_EXCEPTION: [(u64, &str); 5] = [
    (16, ".__dict__"),
    (24, ".args"),
    (32, ".__traceback__"),
    (40, ".__context__"),
    (48, ".__cause__"),
];
pub(super) const EXCEPTION: [(u64, &str); 6] = [
    (16, ".__dict__"),
    (24, ".args"),
    (32, ".__notes__"),
    (40, ".__traceback__"),
    (48, ".__context__"),
    (56, ".__cause__"),
];

/// Names of references of other built-in types, by type: for those without `PyMemberDef`s.
pub(crate) const BUILT_IN: &[(&str, &[(u64, &str)])] = &[
    ("cell", &[(CELL_CONTENTS, ".cell_contents")]),
    ("method", &[(METHOD_FUNCTION, ".__func__"), (24, ".__self__")]),
    ("builtin_function_or_method", &[(24, ".__self__"), (32, ".__module__")]),
    ("traceback", &[(16, ".tb_next"), (TRACEBACK_FRAME, ".tb_frame")]),
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
