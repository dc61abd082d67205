//! Any bytes given to the resolver as a file: an answer or an error, no panic, no endless work.
//! `fuzz/seed.sh` makes its first files: small ones with every part that the resolver looks at.

#![no_main]

use gctrace_probes::ResolveOptions;
use gctrace_probes::SearchStrategy;
use gctrace_probes::maps;
use gctrace_probes::resolve_bytes;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    for first_rung in [SearchStrategy::SymbolTable, SearchStrategy::CodeAnalysis, SearchStrategy::Usdt] {
        let options = ResolveOptions {
            debug_roots: Vec::new(),
            first_rung,
            ..ResolveOptions::default()
        };
        let _any_answer = resolve_bytes(Path::new("/nonexistent/file"), bytes, &options);
    }
    let _any_answer = maps::parse(bytes);
});
