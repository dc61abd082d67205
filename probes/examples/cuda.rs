//! Prints the CUDA, NCCL and torch functions found in libraries, and how long that takes.
//!
//! `cargo run -p gctrace-probes --example cuda -- [--aarch64] LIBRARY...`

use gctrace_probes::Machine;
use gctrace_probes::cuda::{CudaLibrary, TABLE, resolve_library};
use std::path::PathBuf;
use std::time::Instant;

fn main() {
    let mut machine = Machine::HOST;
    for path in std::env::args_os().skip(1).map(PathBuf::from) {
        if path.as_os_str() == "--aarch64" {
            machine = Machine::Aarch64;
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(library) = name.and_then(CudaLibrary::of_file_name) else {
            println!("{}: not named like one of these libraries", path.display());
            continue;
        };
        let began = Instant::now();
        match resolve_library(&path, library, machine) {
            Ok(found) => {
                println!("{}: {:?} in {:?}", path.display(), library, began.elapsed());
                for point in &found.points {
                    let kind = TABLE.get(usize::from(point.function)).map(|function| function.kind);
                    println!(
                        "  {:#010x} {kind:?} {} returns at {:x?}",
                        point.file_offset, point.symbol, point.returns
                    );
                }
                println!("  absent: {}", found.absent.join(" "));
            }
            Err(error) => println!("{error}"),
        }
    }
}
