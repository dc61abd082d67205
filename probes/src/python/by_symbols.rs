//! The search strategies that use a symbol table: which symbols are the collector's.

use super::facts::InterpreterFacts;
use super::names::{COLLECTORS, source_name};
use super::points::{CollectorFunction, FunctionRole, points};
use crate::elf::{ElfImage, ElfSymbol};
use crate::resolution::ProbePoint;

/// The collector's functions by the names in `symbols`, which is `image` or its debug file.
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
    if functions.iter().any(|function| function.role == FunctionRole::Collect) {
        Ok(points(image, facts, &functions))
    } else {
        Err(format!("no symbol named {}", COLLECTORS.join(" or ")))
    }
}

fn function(symbol: &ElfSymbol<'_>) -> Option<CollectorFunction> {
    let role = match source_name(symbol.name)? {
        name if COLLECTORS.contains(&name) => FunctionRole::Collect,
        // The wrapper of 3.8 - 3.15 that Argument Clinic makes for gc.collect.
        "gc_collect" => FunctionRole::GcCollectBuiltin,
        "PyGC_Collect" => FunctionRole::PyGcCollect,
        "_PyEval_StopTheWorld" => FunctionRole::StopTheWorld,
        "_PyEval_StartTheWorld" => FunctionRole::StartTheWorld,
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
    let best = ["gc_collect_main", "_PyGC_Collect", "collect"]
        .into_iter()
        .find(|name| functions.iter().any(|f| source_name(&f.name) == Some(name)));
    functions
        .into_iter()
        .filter(|f| f.role != FunctionRole::Collect || source_name(&f.name) == best)
        .collect()
}

fn without_duplicates(mut functions: Vec<CollectorFunction>) -> Vec<CollectorFunction> {
    functions.sort_by_key(|function| (function.role, function.range.start));
    functions.dedup_by_key(|function| (function.role, function.range.start));
    functions
}
