//! Compiles the BPF programs and writes their skeleton into `OUT_DIR`.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

const SOURCE: &str = "bpf/gctrace.bpf.c";

fn main() {
    let skeleton =
        PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("gctrace.skel.rs");
    println!("cargo:rerun-if-changed=bpf");
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .clang_args(
            [
                // -mcpu=v2: what kernels from 4.14 accept; newer clang defaults are refused by old kernels
                "-mcpu=v2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-missing-declarations",
            ]
            .map(OsString::from),
        )
        .build_and_generate(&skeleton);
    if let Err(error) = built {
        println!(
            "cargo:warning={SOURCE} did not compile; it needs clang and llvm's BPF target (scripts/setup.sh installs them)"
        );
        eprintln!("{error:?}");
        std::process::exit(1);
    }
}
