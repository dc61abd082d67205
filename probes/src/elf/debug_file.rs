//! Where the symbols of a stripped file may be: in a debug file with the same build id, in the file named by
//! `.gnu_debuglink`, or compressed inside `.gnu_debugdata`.
//!
//! Formats: "Separate Debug Files" and "MiniDebugInfo" in the GDB manual.

use super::{ElfImage, FileBytes, ImageData, Machine, open_file, symbols};
use object::ReadCache;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Maximum size of unpacked mini debug info in bytes: a few KiB can unpack to any size.
const LARGEST_MINI_DEBUG_INFO: usize = 256 << 20;

/// An opened file with symbols.
pub(crate) enum DebugFile {
    /// A file on disk.
    File(Box<ReadCache<FileBytes>>),
    /// Unpacked in memory.
    Memory(Vec<u8>),
}

impl DebugFile {
    fn open(path: &Path) -> Result<Self, String> {
        let file = open_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self::File(Box::new(FileBytes::cached(file))))
    }

    /// Calls `then` with the parsed image.
    pub(crate) fn with_image<T>(
        &self,
        machine: Machine,
        then: impl FnOnce(&ElfImage<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let data = match self {
            Self::File(cache) => ImageData::File(cache),
            Self::Memory(bytes) => ImageData::Memory(bytes),
        };
        match ElfImage::parse(data, machine) {
            Ok(image) => then(&image),
            Err(why) => Err(format!("the debug file is damaged: {why:?}")),
        }
    }
}

/// The debug file `ROOT/.build-id/ab/cdef....debug`, if its own build id matches.
pub(crate) fn by_build_id(image: &ElfImage<'_>, roots: &[PathBuf]) -> Result<DebugFile, String> {
    let id = image.build_id().ok_or("the file has no build id")?;
    let (folder, name) = id.split_at_checked(2).ok_or("the build id is too short")?;
    let path = roots
        .iter()
        .map(|root| root.join(".build-id").join(folder).join(format!("{name}.debug")))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no debug file for build id {id}"))?;
    let file = DebugFile::open(&path)?;
    let same =
        file.with_image(image.machine, |debug| Ok(debug.build_id().as_ref() == Some(&id)))?;
    if same { Ok(file) } else { Err(format!("{} has another build id", path.display())) }
}

/// The debug file that `.gnu_debuglink` names, if its checksum matches: next to the file, in
/// `.debug` next to it, or at the same place below a root.
pub(crate) fn by_debug_link(
    file: &Path,
    image: &ElfImage<'_>,
    roots: &[PathBuf],
) -> Result<DebugFile, String> {
    let (name, checksum) = debug_link(image).ok_or("no .gnu_debuglink")?;
    let folder = std::fs::canonicalize(file)
        .ok()
        .and_then(|path| path.parent().map(Path::to_owned))
        .unwrap_or_default();
    let below = folder.strip_prefix("/").unwrap_or(&folder);
    let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
    places.extend(roots.iter().map(|root| root.join(below).join(name)));
    let mut why = format!("{name} was not found");
    for path in &places {
        if !path.is_file() {
            continue;
        }
        match file_checksum(path) {
            Ok(found) if found == checksum => return DebugFile::open(path),
            Ok(_) => why = format!("{} has another checksum", path.display()),
            Err(error) => why = format!("{}: {error}", path.display()),
        }
    }
    Err(why)
}

/// Name of the debug file, and its CRC-32, stored 4-byte aligned after the name.
fn debug_link<'data>(image: &ElfImage<'data>) -> Option<(&'data str, u32)> {
    let bytes = image.section_bytes(&image.section(".gnu_debuglink")?)?;
    let name = symbols::text_at(bytes, 0)?;
    // A plain name only: the file must not choose folders.
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let at = (name.len() + 1).next_multiple_of(4);
    let checksum = bytes.get(at..at.checked_add(4)?)?;
    Some((name, u32::from_le_bytes(checksum.try_into().ok()?)))
}

fn file_checksum(path: &Path) -> std::io::Result<u32> {
    let mut file = open_file(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer)?;
        match buffer.get(..count) {
            Some(bytes) if !bytes.is_empty() => hasher.update(bytes),
            _ => return Ok(hasher.finalize()),
        }
    }
}

/// The ELF file inside `.gnu_debugdata`, unpacked.
pub(crate) fn mini_debug_info(image: &ElfImage<'_>) -> Result<DebugFile, String> {
    let section = image.section(".gnu_debugdata").ok_or("no .gnu_debugdata")?;
    let packed = image.section_bytes(&section).ok_or(".gnu_debugdata lies outside the file")?;
    let mut unpacked = BoundedBytes { bytes: Vec::new(), most: LARGEST_MINI_DEBUG_INFO };
    lzma_rs::xz_decompress(&mut &*packed, &mut unpacked)
        .map_err(|error| format!(".gnu_debugdata cannot be unpacked: {error:?}"))?;
    Ok(DebugFile::Memory(unpacked.bytes))
}

/// Accepts bytes up to a limit, so that a small file cannot exhaust memory.
struct BoundedBytes {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for BoundedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section that unpacks to a gigabyte is given up as soon as there is more than the limit.
    #[test]
    fn what_unpacks_to_too_much_is_given_up() {
        let mut packed = Vec::new();
        lzma_rs::xz_compress(&mut [0; 1000].as_slice(), &mut packed).unwrap();
        let unpack = |most| {
            let mut unpacked = BoundedBytes { bytes: Vec::new(), most };
            let result = lzma_rs::xz_decompress(&mut packed.as_slice(), &mut unpacked);
            (result.is_ok(), unpacked.bytes.len())
        };
        assert_eq!(unpack(1000), (true, 1000));
        let (done, kept) = unpack(999);
        assert!(!done && kept <= 999, "{kept}");
    }
}
