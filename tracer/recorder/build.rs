//! Embeds the libraries in the folder that `GCTRACE_BUNDLE` names, compressed, so that the binary
//! needs no file beside it. Without the variable nothing is embedded.
//!
//! The same libraries give the same bytes: the format has no times, and no path is embedded.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Names the folder; absolute.
const VARIABLE: &str = "GCTRACE_BUNDLE";

/// Constant in `src/launch/bundle.rs`, and the file's name.
const LIBRARIES: [(&str, &str); 2] =
    [("INJECT", "libgctrace_inject.so"), ("SIMGPU", "libgctrace_simgpu.so")];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let bundle = env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let mut text = String::new();
    for (constant, name) in LIBRARIES {
        let value = match &bundle {
            Some(folder) => embedded(&Path::new(folder).join(name), name, &out)?,
            None => "None".to_owned(),
        };
        text += &format!("pub(crate) const {constant}: Option<BundledLibrary> = {value};\n");
    }
    fs::write(out.join("bundle.rs"), text)
}

/// Compresses the library into `out`; returns the constant's value.
fn embedded(library: &Path, name: &str, out: &Path) -> io::Result<String> {
    let invalid = |reason: &str| {
        let text = format!("{VARIABLE}: {}: {reason}", library.display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    if !library.is_absolute() {
        return Err(invalid("name an absolute path"));
    }
    println!("cargo:rerun-if-changed={}", library.display());
    let contents = fs::read(library).map_err(|error| invalid(&error.to_string()))?;
    if !contents.starts_with(b"\x7fELF") {
        return Err(invalid("is not a library"));
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&contents)?;
    fs::write(out.join(format!("{name}.z")), encoder.finish()?)?;
    let (length, hash) = (contents.len(), fnv1a(&contents));
    Ok(format!(
        "Some(BundledLibrary {{ name: {name:?}, hash: \"{hash:016x}\", length: {length}, \
         compressed: include_bytes!(\"{name}.z\") }})"
    ))
}

/// FNV-1a (64 bits). Not cryptographic: it only names a folder, and the contents of a file in there
/// are compared.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
