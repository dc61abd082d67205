//! The directory of a recording that keeps its last part: numbered segments.
//!
//! Owns their names. `segments/folder.rs` creates, keeps and removes them.

#[cfg(target_os = "linux")]
mod folder;

#[cfg(target_os = "linux")]
pub use folder::{FoundRecorder, PROGRAM, SegmentFolder, kept_in, recorder_of};

use std::path::{Path, PathBuf};

/// The file that a recorder has locked while it runs; it marks the directory as one of gctrace's.
pub const LOCK: &str = "recorder.lock";
/// End of the name of a segment.
const ENDING: &str = ".json.zst";
/// Digits of a number, so that names sort as numbers do.
const DIGITS: usize = 6;

/// The segments in a directory by number; none if it is no directory, or has none.
pub fn segments_in(directory: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let numbered = paths.filter_map(|path| Some((number(&path)?, path)));
    let mut segments: Vec<(u64, PathBuf)> = numbered.collect();
    segments.sort();
    segments
}

/// The number in the name of a segment.
fn number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
    let is_number = digits.len() >= DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// Name of a segment.
#[cfg(target_os = "linux")]
fn segment_name(number: u64) -> String {
    format!("{number:0DIGITS$}{ENDING}")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers() {
        for segment in [1, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(number(Path::new(&segment_name(segment))), Some(segment));
        }
        for other in ["trace.json.zst", "1.json.zst", "+00001.json.zst", "000001.json", ""] {
            assert_eq!(number(Path::new(other)), None, "{other}");
        }
    }
}
