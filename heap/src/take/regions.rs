//! `/proc/PID/maps`: the memory that may be copied.
//!
//! Objects, their tables and frames are in private memory; names of types are also in mapped executables and libraries.
//! Shared memory, devices (GPU mappings among them) and the kernel's own mappings hold no objects and are never read.

use crate::HeapError;
use crate::take::stop::refusal;
use gctrace_probes::proc_status;
use gctrace_probes::proc_status::ProcessError;
use nix::errno::Errno;

/// Mappings that may be read, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regions {
    /// First and one past the last address of each, ascending, without overlap.
    ranges: Vec<(u64, u64)>,
}

impl Regions {
    /// Reads the memory map of a process.
    ///
    /// # Errors
    /// The process is gone, or may not be inspected.
    pub(crate) fn of(pid: u32) -> Result<Self, HeapError> {
        match proc_status::read(pid, "maps") {
            Ok(text) => Ok(Self::parse(&text)),
            Err(ProcessError::Forbidden { source, .. }) => {
                let errno = source.raw_os_error().map_or(Errno::EPERM, Errno::from_raw);
                Err(refusal(pid, errno))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// From the text of `/proc/PID/maps`; lines that cannot be parsed are skipped. Neighbors are
    /// joined.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for range in text.split(|byte| *byte == b'\n').filter_map(range) {
            match ranges.last_mut() {
                Some(last) if last.1 == range.0 => last.1 = range.1,
                Some(last) if last.1 > range.0 => {}
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }

    /// The parts of `[start, end)` that may be read.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.ranges.partition_point(|range| range.1 <= start);
        let candidates = gctrace_units::part(&self.ranges, first..);
        candidates
            .iter()
            .take_while(move |range| range.0 < end)
            .map(move |range| (range.0.max(start), range.1.min(end)))
    }
}

/// `start-end perms offset device inode path` of a mapping that may be read.
fn range(line: &[u8]) -> Option<(u64, u64)> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let path = fields.nth(3).unwrap_or_default();
    let is_private = permissions.starts_with('r') && permissions.ends_with('p');
    let is_kernel = path.starts_with("[v");
    let is_device = path.starts_with("/dev/");
    (is_private && !is_kernel && !is_device).then_some(())?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?)).filter(|(start, end)| start < end)
}

#[cfg(test)]
mod tests {
    use super::Regions;

    #[test]
    fn only_private_memory_is_read() {
        let text = b"\
559e8b800000-559e8b8f0000 r-xp 00020000 fe:01 1234                       /usr/bin/python3.11
559e8b8f0000-559e8b900000 rw-p 00110000 fe:01 1234                       /usr/bin/python3.11
559e8c000000-559e8c100000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000001000-7f0000002000 ---p 00000000 00:00 0
7f0000002000-7f0000003000 rw-s 00000000 00:1f 77                         /dev/shm/queue
7f0000003000-7f0000004000 rw-p 00000000 00:05 1                          /dev/nvidia0
7fff00000000-7fff00001000 r--p 00000000 00:00 0                          [vvar]
nonsense";
        let regions = Regions::parse(text);
        assert_eq!(
            regions.within(0, u64::MAX).collect::<Vec<_>>(),
            [
                (0x559e_8b80_0000, 0x559e_8b90_0000),
                (0x559e_8c00_0000, 0x559e_8c10_0000),
                (0x7f00_0000_0000, 0x7f00_0000_1000)
            ]
        );
        let part = regions.within(0x559e_8b8f_fff0, 0x559e_8c00_0010);
        assert_eq!(
            part.collect::<Vec<_>>(),
            [(0x559e_8b8f_fff0, 0x559e_8b90_0000), (0x559e_8c00_0000, 0x559e_8c00_0010)]
        );
        assert_eq!(regions.within(1, 2).count(), 0);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _any = Regions::parse(&text);
        }
    }
}
