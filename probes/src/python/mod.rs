//! The interpreter in a file, and the ladder of methods that find its collector's functions.

pub(crate) mod allocator;
pub(crate) mod arguments;
mod by_code;
mod by_symbols;
mod by_usdt;
mod debug_offsets;
mod facts;
mod frames;
mod garbage;
pub(crate) mod layout;
mod objects;
mod points;

use crate::ResolveError;
use crate::cache::ResolutionCache;
use crate::elf::{ElfImage, FileBytes, ImageData, Machine, NotAnImage, debug_file, open_file};
use crate::resolution::{ProbePoint, Resolution, ResolveOptions, SearchStrategy, StrategyOutcome};
use facts::InterpreterFacts;
use std::path::Path;

/// Finds the collector in a file.
///
/// `Ok(None)`: the file does not contain a CPython collector.
///
/// # Errors
/// If the file cannot be read, is damaged or is built for another machine, or if it contains a
/// collector that was not found. A damaged cache is not an error: it is rewritten.
pub fn resolve(file: &Path, options: &ResolveOptions) -> Result<Option<Resolution>, ResolveError> {
    let failed = ResolveError::read(file);
    let opened = open_file(file).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    let reads = FileBytes::cached(opened);
    let Some(image) = parse(file, ImageData::File(&reads), options.machine)? else {
        return Ok(None);
    };
    let cache = ResolutionCache::new(options, &metadata, image.build_id());
    if let Some(known) = cache.load(file) {
        return Ok(Some(known));
    }
    let resolution = resolve_image(file, &image, options)?;
    if let Some(resolution) = &resolution {
        cache.store(resolution);
    }
    Ok(resolution)
}

/// The same for a file in memory; `file` is its name in messages, and relative debug files are
/// searched from there. Uses no cache.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_bytes(
    file: &Path,
    bytes: &[u8],
    options: &ResolveOptions,
) -> Result<Option<Resolution>, ResolveError> {
    match parse(file, ImageData::Memory(bytes), options.machine)? {
        Some(image) => resolve_image(file, &image, options),
        None => Ok(None),
    }
}

fn parse<'data>(
    file: &Path,
    data: ImageData<'data>,
    wanted: Machine,
) -> Result<Option<ElfImage<'data>>, ResolveError> {
    match ElfImage::parse(data, wanted) {
        Ok(image) => Ok(Some(image)),
        Err(NotAnImage::NotElf) => Ok(None),
        Err(NotAnImage::Machine(machine)) => {
            Err(ResolveError::Architecture { path: file.to_owned(), machine, wanted })
        }
        Err(NotAnImage::Damaged(what)) => {
            Err(ResolveError::Damaged { path: file.to_owned(), what })
        }
    }
}

fn resolve_image(
    file: &Path,
    image: &ElfImage<'_>,
    options: &ResolveOptions,
) -> Result<Option<Resolution>, ResolveError> {
    // A file that merely uses an interpreter does not define this. It is exported (`PyAPI_DATA`),
    // so that stripped files have it in `.dynsym`:
    // https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h
    let Some(runtime) = image.symbol("_PyRuntime") else {
        return Ok(None);
    };
    let facts = known_version(file, InterpreterFacts::read(image, runtime.address))?;
    let mut tried = Vec::new();
    // A symbol table names the functions, clones included; code analysis infers them. Trace points
    // come last: they exist only in builds `--with-dtrace`, and no argument of the collector is at
    // hand there.
    for rung in SearchStrategy::ALL.iter().copied() {
        if rung < options.first_rung {
            continue;
        }
        let found = climb(rung, file, image, &facts, options);
        tried.push(outcome(rung, &found));
        if let Ok(points) = found {
            let tried = std::mem::take(&mut tried);
            return Ok(Some(answer(file, image, &facts, rung, tried, points)));
        }
    }
    Err(ResolveError::NotFound {
        path: file.to_owned(),
        version: facts.version.to_string(),
        tried: tried
            .iter()
            .map(|outcome| format!("{}: {}", outcome.rung, outcome.detail))
            .collect(),
    })
}

fn known_version(
    file: &Path,
    facts: Option<InterpreterFacts>,
) -> Result<InterpreterFacts, ResolveError> {
    let version = match facts {
        Some(facts) if facts.version.is_known() => return Ok(facts),
        Some(facts) => facts.version.to_string(),
        None => "of an unknown version".to_owned(),
    };
    Err(ResolveError::Version { path: file.to_owned(), version })
}

/// Runs one search strategy: the points, or why it found none.
fn climb(
    rung: SearchStrategy,
    file: &Path,
    image: &ElfImage<'_>,
    facts: &InterpreterFacts,
    options: &ResolveOptions,
) -> Result<Vec<ProbePoint>, String> {
    match rung {
        SearchStrategy::SymbolTable => by_symbols::find(image, image, facts),
        SearchStrategy::BuildIdDebugFile => debug_file::by_build_id(image, &options.debug_roots)?
            .with_image(image.machine, |symbols| by_symbols::find(image, symbols, facts)),
        SearchStrategy::DebugLink => debug_file::by_debug_link(file, image, &options.debug_roots)?
            .with_image(image.machine, |symbols| by_symbols::find(image, symbols, facts)),
        SearchStrategy::MiniDebugInfo => debug_file::mini_debug_info(image)?
            .with_image(image.machine, |symbols| by_symbols::find(image, symbols, facts)),
        SearchStrategy::CodeAnalysis => by_code::find(image, facts),
        SearchStrategy::Usdt => by_usdt::find(image),
    }
}

fn outcome(rung: SearchStrategy, found: &Result<Vec<ProbePoint>, String>) -> StrategyOutcome {
    StrategyOutcome {
        rung,
        found: found.is_ok(),
        detail: match found {
            Ok(points) => points
                .iter()
                .map(|point| format!("{} at {:#x}", point.function, point.address))
                .collect::<Vec<_>>()
                .join(", "),
            Err(why) => why.clone(),
        },
    }
}

fn answer(
    file: &Path,
    image: &ElfImage<'_>,
    facts: &InterpreterFacts,
    rung: SearchStrategy,
    tried: Vec<StrategyOutcome>,
    mut points: Vec<ProbePoint>,
) -> Resolution {
    points.extend(points::code_dealloc(image, facts));
    if !facts.free_threaded {
        points.extend(garbage::point(image, &points));
    }
    let debug = facts.debug.as_ref();
    let initial = debug.and_then(|debug| image.bytes_at(facts.runtime, debug.runtime_size.into()));
    let layout =
        layout::layout(&facts.version, &facts.collector, debug, initial.unwrap_or_default());
    let frames = frames::frame_layout(&facts.version, debug, image.machine);
    Resolution {
        file: file.to_owned(),
        build_id: image.build_id(),
        version: facts.version.clone(),
        free_threaded: facts.free_threaded,
        collector: facts.collector.clone(),
        rung,
        tried,
        warnings: points::warnings(facts, &points, layout.is_some(), frames.is_some()),
        points,
        layout,
        frames,
        objects: objects::layout(image, facts),
        runtime: facts.runtime,
        lowest_address: image.lowest_address(),
    }
}
