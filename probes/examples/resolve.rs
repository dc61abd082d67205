//! Prints what `gctrace-probes` finds in files, and how long it takes.
//!
//! `cargo run --release -p gctrace-probes --example resolve -- [--rung code-analysis] [--cache DIR] [--debug DIR] [--aarch64] [--allocator] FILE...|--pid PID`

use gctrace_probes::{Machine, ResolveOptions, allocator, identify, maps, resolve};
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = ResolveOptions::default();
    let mut with_allocator = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("an option lacks its value");
        match argument.as_str() {
            "--rung" => options.first_rung = serde_json::from_value(value()?.into())?,
            "--cache" => options.cache = Some(value()?.into()),
            "--debug" => options.debug_roots = vec![value()?.into()],
            "--allocator" => with_allocator = true,
            "--aarch64" => options.machine = Machine::Aarch64,
            "--pid" => {
                for candidate in maps::candidates(value()?.parse()?)? {
                    println!("{candidate:?}");
                    print(&candidate.openable, &options)?;
                }
            }
            file => {
                print(Path::new(file), &options)?;
                if with_allocator {
                    println!("{:#?}", allocator(Path::new(file), options.machine)?);
                }
            }
        }
    }
    Ok(())
}

fn print(file: &Path, options: &ResolveOptions) -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let kind = identify(file)?;
    println!("{}: {kind:?} ({:?})", file.display(), started.elapsed());
    let started = Instant::now();
    let found = resolve(file, options);
    println!("took {:?}", started.elapsed());
    match found {
        Ok(found) => println!("{}", serde_json::to_string_pretty(&found)?),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
