//! Compiles the BPF programs and writes their skeletons to `OUT_DIR`.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Objects: the one that is always loaded, and those for `--alloc` and `--cuda`.
const OBJECTS: [(&str, &str); 3] = [
    ("bpf/gctrace.bpf.c", "gctrace.skel.rs"),
    ("bpf/alloc.bpf.c", "alloc.skel.rs"),
    ("bpf/cuda.bpf.c", "cuda.skel.rs"),
];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    for (source, skeleton) in OBJECTS {
        build(source, skeleton);
    }
}

fn build(source: &str, skeleton: &str) {
    let skeleton = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join(skeleton);
    let built = SkeletonBuilder::new()
        .source(source)
        .clang_args(
            [
                // -mcpu=v2: accepted by kernels from 4.14 on; old kernels reject newer clang's
                // defaults
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
            "cargo:warning={source} did not compile; it needs clang, llvm's BPF target (scripts/setup.sh installs them) and rustfmt"
        );
        eprintln!("{error:?}");
        std::process::exit(1);
    }
}
