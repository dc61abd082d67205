//! Writes the skeletons of the BPF programs to `OUT_DIR`. Published packages have compiled objects in `bpf/prebuilt`
//! (scripts/release/crates.sh); without them the sources are compiled with clang.
//!
//! `GCTRACE_BPF` chooses: `compile`, `prebuilt`, or `prebuild`. The last first compiles the objects of all
//! architectures into `bpf/prebuilt`.

use libbpf_cargo::SkeletonBuilder;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Objects: the first is always loaded, the others for `--alloc`, `--cuda`, `--garbage` and `--sample`.
const OBJECTS: [&str; 5] = ["gctrace", "alloc", "cuda", "garbage", "sample"];

/// Architectures with registers known to the programs: Rust's name, and the name in the macro of libbpf's header that
/// selects them.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "x86"), ("aarch64", "arm64")];

/// Chooses between sources and prebuilt objects.
const VARIABLE: &str = "GCTRACE_BPF";

/// Contains a folder of objects for each architecture.
const PREBUILT: &str = "bpf/prebuilt";

/// Defines every record that the programs share with user space.
const WIRE_RECORDS: &str = "bpf/event.h";

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    if let Err(error) = write_skeletons() {
        println!("cargo:warning=gctrace's BPF programs were not built: {error}");
        std::process::exit(1);
    }
}

fn write_skeletons() -> Result<(), Box<dyn Error>> {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let prebuilt = Path::new(PREBUILT).join(&architecture);
    let compiles = match env::var(VARIABLE).ok().as_deref() {
        None | Some("") => !prebuilt.is_dir(),
        Some("compile") => true,
        Some("prebuilt") => false,
        Some("prebuild") => {
            for (architecture, _) in ARCHITECTURES {
                compile(architecture, &Path::new(PREBUILT).join(architecture))?;
            }
            false
        }
        Some(other) => {
            let choices = "compile, prebuilt or prebuild";
            return Err(format!("{VARIABLE} must be {choices}, not {other}").into());
        }
    };
    let objects = if compiles {
        compile(&architecture, &out)?;
        &out
    } else {
        &prebuilt
    };
    for name in OBJECTS {
        let object = objects.join(format!("{name}.bpf.o"));
        let skeleton = out.join(format!("{name}.skel.rs"));
        SkeletonBuilder::new()
            .obj(&object)
            // Half a million bytes as literals would take half of this crate's compilation, and as much of
            // each of its lints.
            .reference_obj(true)
            .generate(&skeleton)
            .map_err(|error| format!("{}: {error:#}", object.display()))?;
        derive_wire_traits(&skeleton)?;
    }
    Ok(())
}

/// Compiles all objects into `folder`.
fn compile(architecture: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let known = ARCHITECTURES.iter().find(|(name, _)| *name == architecture);
    let (_, registers) = known.ok_or_else(|| format!("not ported to {architecture}"))?;
    fs::create_dir_all(folder)?;
    let selected = format!("-D__TARGET_ARCH_{registers}");
    // Line information names the sources: the same wherever the package lies.
    let unplaced = format!("-ffile-prefix-map={}=.", env::var("CARGO_MANIFEST_DIR")?);
    for name in OBJECTS {
        let source = format!("bpf/{name}.bpf.c");
        SkeletonBuilder::new()
            .source(&source)
            .obj(folder.join(format!("{name}.bpf.o")))
            .clang_args([
                // -mcpu=v2: accepted by kernels from 4.14 on; old kernels reject newer clang's
                // defaults
                "-mcpu=v2",
                &selected,
                &unplaced,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-missing-declarations",
            ])
            .build()
            .map_err(|error| {
                format!(
                    "{source} did not compile; it needs clang and llvm's BPF target \
                     (scripts/setup.sh installs them): {error:#}"
                )
            })?;
    }
    Ok(())
}

/// Lets the compiler check that any bytes are a valid record and that none is padding.
fn derive_wire_traits(skeleton: &Path) -> io::Result<()> {
    let mut text = fs::read_to_string(skeleton)?;
    for line in fs::read_to_string(WIRE_RECORDS)?.lines() {
        if let Some(name) = line.strip_prefix("struct ")
            && let Some(name) = name.strip_suffix(" {")
        {
            let definition = format!("pub struct {name} {{");
            let derive = "#[derive(::zerocopy::FromBytes, ::zerocopy::Immutable, \
                          ::zerocopy::IntoBytes, ::zerocopy::KnownLayout)]";
            text = text.replace(&definition, &format!("{derive} {definition}"));
        }
    }
    fs::write(skeleton, text)
}
