//! Any bytes as a file for the resolver: a result or an error, no panic, no endless loop.
//! `fuzz/seed.sh` creates the first inputs: small files with every part that the resolver reads.

#![no_main]

use gctrace_probes::{Machine, ResolveOptions, SearchStrategy, maps, resolve_bytes};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let machine = match bytes.get(18) {
        Some(183) => Machine::Aarch64,
        _ => Machine::X86_64,
    };
    for first_rung in
        [SearchStrategy::SymbolTable, SearchStrategy::CodeAnalysis, SearchStrategy::Usdt]
    {
        let options = ResolveOptions {
            debug_roots: Vec::new(),
            first_rung,
            machine,
            ..ResolveOptions::default()
        };
        let _any_answer = resolve_bytes(Path::new("/nonexistent/file"), bytes, &options);
    }
    let _any_answer = maps::parse(bytes);
});
