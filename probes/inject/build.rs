//! Links libgcc's unwinder statically: a program without libgcc_s.so.1 must still start.
//!
//! Rust's standard library requests `-lgcc_s`. The linker first finds a script with that name. The script names the
//! static archive that every gcc ships.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(folder) = std::env::var_os("OUT_DIR").map(PathBuf::from) else {
        return;
    };
    let script = folder.join("libgcc_s.so");
    if let Err(error) = std::fs::write(&script, "GROUP ( -lgcc_eh -lgcc -lc )\n") {
        println!("cargo::error=cannot write {}: {error}", script.display());
    }
    println!("cargo::rustc-cdylib-link-arg=-L{}", folder.display());
}
