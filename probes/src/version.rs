//! CPython versions, and how to find the version in a file.

use crate::elf::ElfImage;
use memchr::memmem;
use serde::{Deserialize, Serialize};

/// A CPython version, as precise as could be determined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PythonVersion {
    /// Major version, always 3.
    pub major: u8,
    /// Minor version; gctrace supports 8 to 15.
    pub minor: u8,
    /// Third number of the version, as in 3.11.7; `None` if it could not be determined.
    pub micro: Option<u8>,
    /// `a1`, `b2` or `rc1` of a version before its release; empty otherwise.
    pub level: String,
}

impl std::fmt::Display for PythonVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)?;
        if let Some(micro) = self.micro {
            write!(formatter, ".{micro}")?;
        }
        formatter.write_str(&self.level)
    }
}

impl PythonVersion {
    /// From `PY_VERSION_HEX`: 0xMMmmuuls, major, minor, micro, level and serial
    /// (Include/patchlevel.h). `None` if it is not a version of CPython 3.
    pub(crate) fn from_hex(hex: u32) -> Option<Self> {
        let [major, minor, micro, release] = hex.to_be_bytes();
        let serial = release & 0xf;
        let level = match release >> 4 {
            0xa => format!("a{serial}"),
            0xb => format!("b{serial}"),
            0xc => format!("rc{serial}"),
            0xf => String::new(),
            _ => return None,
        };
        if major != 3 || minor >= 64 {
            return None;
        }
        Some(Self { major, minor, micro: Some(micro), level })
    }

    /// From `PY_VERSION`: `3.9.18`, `3.15.0rc1`, `3.8.2+`.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let text = text.strip_suffix('+').unwrap_or(text);
        let mut parts = text.splitn(3, '.');
        let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (micro, level) = rest.split_at_checked(digits)?;
        let plain = level
            .trim_start_matches(|c: char| c.is_ascii_lowercase())
            .bytes()
            .all(|byte| byte.is_ascii_digit());
        let is_short = minor.len() <= 2 && level.len() <= 4;
        if major != "3" || !is_short || !plain {
            return None;
        }
        Some(Self {
            major: 3,
            minor: minor.parse().ok()?,
            micro: Some(micro.parse().ok()?),
            level: level.to_owned(),
        })
    }

    /// Whether gctrace supports this version's collector.
    pub fn is_known(&self) -> bool {
        self.major == 3 && (8..=15).contains(&self.minor)
    }
}

/// The version of the interpreter in `image`, from the first of: the exported `Py_Version` (3.11),
/// `_Py_DebugOffsets.version` (3.13), the text that `Py_GetVersion` prints.
pub(crate) fn find(
    image: &ElfImage<'_>,
    debug_offsets_version: Option<u32>,
) -> Option<PythonVersion> {
    exported(image)
        .or_else(|| debug_offsets_version.and_then(PythonVersion::from_hex))
        .or_else(|| in_text(image))
}

fn exported(image: &ElfImage<'_>) -> Option<PythonVersion> {
    let symbol = image.dynamic_symbol("Py_Version")?;
    let bytes = image.bytes_at(symbol.address, 4)?;
    PythonVersion::from_hex(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The literal `PY_VERSION`. Unlike other libraries' versions it agrees with the `python3.N` of the search path,
/// compiled in as well.
fn in_text(image: &ElfImage<'_>) -> Option<PythonVersion> {
    let constants: Vec<&[u8]> = image.constant_data().map(|(_, bytes)| bytes).collect();
    let minors: Vec<u8> = (7..=30)
        .filter(|minor| {
            let path = format!("python3.{minor}\0");
            constants.iter().any(|bytes| memmem::find(bytes, path.as_bytes()).is_some())
        })
        .collect();
    let literal = constants
        .iter()
        .flat_map(|bytes| literals(bytes))
        .find(|version| minors.is_empty() && version.is_known() || minors.contains(&version.minor));
    let [minor] = minors[..] else { return literal };
    Some(literal.unwrap_or(PythonVersion { major: 3, minor, micro: None, level: String::new() }))
}

/// All strings in `bytes` that parse as a version. Linkers merge a string into the end of a longer
/// one, such as a prefix `/opt/python/3.9.18`.
fn literals(bytes: &[u8]) -> impl Iterator<Item = PythonVersion> {
    memmem::find_iter(bytes, b"3.").filter_map(|at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        if let Some(b'0'..=b'9' | b'.') = before {
            return None;
        }
        let rest = bytes.get(at..)?;
        let rest = rest.get(..rest.len().min(16))?;
        let end = memchr::memchr(0, rest)?;
        PythonVersion::from_text(std::str::from_utf8(rest.get(..end)?).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::PythonVersion;

    #[test]
    fn versions_are_parsed_as_cpython_writes_them() {
        let text = |hex| PythonVersion::from_hex(hex).map(|version| version.to_string());
        assert_eq!(text(0x030b_02f0).as_deref(), Some("3.11.2"));
        assert_eq!(text(0x030f_00c1).as_deref(), Some("3.15.0rc1"));
        assert_eq!(text(0x0208_00f0), None);
        for good in ["3.8.18", "3.9.0", "3.15.0a7", "3.14.0rc3"] {
            assert_eq!(
                PythonVersion::from_text(good).map(|v| v.to_string()).as_deref(),
                Some(good)
            );
        }
        for bad in ["3.8", "2.7.18", "3.8.x", "3.8.1-beta", "3.100.1", "3.8.999", ""] {
            assert_eq!(PythonVersion::from_text(bad), None, "{bad}");
        }
    }
}
