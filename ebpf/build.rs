//! Compiles the BPF programs and writes their skeletons to `OUT_DIR`.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

/// Objects: the one that is always loaded, and those for `--alloc` and `--cuda`.
const OBJECTS: [(&str, &str); 3] = [
    ("bpf/gctrace.bpf.c", "gctrace.skel.rs"),
    ("bpf/alloc.bpf.c", "alloc.skel.rs"),
    ("bpf/cuda.bpf.c", "cuda.skel.rs"),
];

/// Defines every record that the programs share with user space.
const WIRE_RECORDS: &str = "bpf/event.h";

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    for (source, skeleton) in OBJECTS {
        let skeleton = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join(skeleton);
        build(source, &skeleton);
        if let Err(error) = derive_wire_traits(&skeleton) {
            eprintln!("{}: {error}", skeleton.display());
            std::process::exit(1);
        }
    }
}

/// Lets the compiler check that any bytes are a valid record and that none is padding.
fn derive_wire_traits(skeleton: &Path) -> io::Result<()> {
    let mut text = fs::read_to_string(skeleton)?;
    for line in fs::read_to_string(WIRE_RECORDS)?.lines() {
        let name = line.strip_prefix("struct ");
        if let Some(name) = name.and_then(|line| line.strip_suffix(" {")) {
            let definition = format!("pub struct {name} {{");
            let derive = "#[derive(::zerocopy::FromBytes, ::zerocopy::Immutable, \
                          ::zerocopy::IntoBytes, ::zerocopy::KnownLayout)]";
            text = text.replace(&definition, &format!("{derive} {definition}"));
        }
    }
    fs::write(skeleton, text)
}

/// Selects the registers that hold a probed function's arguments, as in libbpf's bpf_tracing.h.
fn target_define() -> &'static str {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "-D__TARGET_ARCH_arm64",
        _ => "-D__TARGET_ARCH_x86",
    }
}

fn build(source: &str, skeleton: &Path) {
    let built = SkeletonBuilder::new()
        .source(source)
        .clang_args(
            [
                // -mcpu=v2: accepted by kernels from 4.14 on; old kernels reject newer clang's
                // defaults
                "-mcpu=v2",
                target_define(),
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-missing-declarations",
            ]
            .map(OsString::from),
        )
        .build_and_generate(skeleton);
    if let Err(error) = built {
        println!(
            "cargo:warning={source} did not compile; it needs clang, llvm's BPF target (scripts/setup.sh installs them) and rustfmt"
        );
        eprintln!("{error:?}");
        std::process::exit(1);
    }
}
