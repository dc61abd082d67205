//! The search strategies that use a symbol table: find the collector's symbols by their names.

use super::facts::InterpreterFacts;
use super::points::{CollectorFunction, points};
use crate::elf::{ElfImage, ElfSymbol};
use crate::resolution::ProbePoint;
use gctrace_abi::ProbePointKind;

/// The collector's functions by the names in `symbols`: `image` or its debug file.
pub(crate) fn find(
    image: &ElfImage<'_>,
    symbols: &ElfImage<'_>,
    facts: &InterpreterFacts,
) -> Result<Vec<ProbePoint>, String> {
    if !symbols.has_symbol_table() {
        return Err("no .symtab".to_owned());
    }
    let functions: Vec<CollectorFunction> = symbols
        .symbols()
        .filter(|symbol| symbol.is_function && image.is_code(symbol.address))
        .filter_map(|symbol| function(&symbol))
        .collect();
    let functions = without_duplicates(only_the_collector(functions));
    if functions.iter().any(|function| function.role == ProbePointKind::Collect) {
        Ok(points(image, facts, &functions))
    } else {
        Err(format!("no symbol named {}", COLLECTORS.join(" or ")))
    }
}

fn function(symbol: &ElfSymbol<'_>) -> Option<CollectorFunction> {
    let role = match source_name(symbol.name)? {
        name if COLLECTORS.contains(&name) => ProbePointKind::Collect,
        // The wrapper of 3.8 - 3.15 that Argument Clinic makes for gc.collect.
        "gc_collect" => ProbePointKind::GcCollectBuiltin,
        "PyGC_Collect" => ProbePointKind::PyGcCollect,
        "_PyEval_StopTheWorld" => ProbePointKind::StopTheWorld,
        "_PyEval_StartTheWorld" => ProbePointKind::StartTheWorld,
        _ => return None,
    };
    Some(CollectorFunction {
        role,
        name: symbol.name.to_owned(),
        range: symbol.address..symbol.address.checked_add(symbol.size)?,
    })
}

/// If `gc_collect_main` exists, `_PyGC_Collect` only jumps to it and would count twice; if neither
/// exists in the table, `collect` could be another file's static function.
fn only_the_collector(functions: Vec<CollectorFunction>) -> Vec<CollectorFunction> {
    // In 3.14.0 - 3.14.4 `_PyGC_Collect` has the collector's body, in other versions it is
    // `return gc_collect_main(..)`:
    // https://github.com/python/cpython/blob/v3.14.0/Python/gc.c
    // https://github.com/python/cpython/blob/v3.13.0/Python/gc.c
    let best = ["gc_collect_main", "_PyGC_Collect", "collect"]
        .into_iter()
        .find(|name| functions.iter().any(|f| source_name(&f.name) == Some(name)));
    functions
        .into_iter()
        .filter(|f| f.role != ProbePointKind::Collect || source_name(&f.name) == best)
        .collect()
}

fn without_duplicates(mut functions: Vec<CollectorFunction>) -> Vec<CollectorFunction> {
    functions.sort_by_key(|function| (function.role, function.range.start));
    functions.dedup_by_key(|function| (function.role, function.range.start));
    functions
}

/// Suffixes that compilers append to the name of a function's clone.
const CLONE_SUFFIXES: [&str; 4] = ["constprop", "isra", "part", "lto_priv"];

/// Functions that contain the collector in some version of CPython (facts by version: 3.8/3.9
/// `collect`, 3.10 - 3.13, 3.14.5 and later `gc_collect_main`, 3.14.0 - 3.14.4 `_PyGC_Collect`).
pub(crate) const COLLECTORS: [&str; 3] = ["collect", "gc_collect_main", "_PyGC_Collect"];

/// The source name of a symbol, without the suffixes of clones. `None` for cold parts (not functions) and for names
/// with other suffixes.
pub(crate) fn source_name(symbol: &str) -> Option<&str> {
    let mut parts = symbol.split('.');
    let name = parts.next()?;
    while let Some(suffix) = parts.next() {
        let number = parts.next()?;
        let known = CLONE_SUFFIXES.contains(&suffix) || suffix == "llvm";
        let numeric = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if !known || !numeric {
            return None;
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::source_name;

    #[test]
    fn clones_have_their_source_name_and_cold_parts_none() {
        for (symbol, expected) in [
            ("gc_collect_main", Some("gc_collect_main")),
            ("collect.constprop.0", Some("collect")),
            ("gc_collect_main.isra.0.constprop.12", Some("gc_collect_main")),
            ("gc_collect_main.lto_priv.0", Some("gc_collect_main")),
            ("gc_collect_main.llvm.1234567", Some("gc_collect_main")),
            ("gc_collect_main.part.0.cold", None),
            ("collect.cold", None),
            ("collect.constprop.0.cold.3", None),
            ("collect.constprop", None),
            ("collect.constprop.x", None),
        ] {
            assert_eq!(source_name(symbol), expected, "{symbol}");
        }
    }
}
