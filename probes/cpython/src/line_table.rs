//! Line tables of code objects: from the offset of an instruction to its line.
//!
//! Owns the three formats that CPython has used since 3.8. Bytes in, a line out; the bytes come
//! from elsewhere. Each function returns what `PyCode_Addr2Line` of its versions does, for any
//! bytes, and never panics.

use crate::LineTableFormat;

/// The line of the instruction at `byte_offset` in the code; `None` if the table has none for it.
///
/// `first_line` is `co_firstlineno`, `table` the contents of the `bytes` object.
pub fn line(
    format: LineTableFormat,
    table: &[u8],
    first_line: i32,
    byte_offset: u32,
) -> Option<u32> {
    let offset = u64::from(byte_offset);
    let line = match format {
        LineTableFormat::Lnotab => Some(lnotab(table, first_line.into(), offset)),
        LineTableFormat::LineTable => line_table(table, first_line.into(), offset),
        LineTableFormat::Locations => locations(table, first_line.into(), offset),
    };
    u32::try_from(line?).ok()
}

fn lnotab(table: &[u8], first_line: i64, offset: u64) -> i64 {
    let mut line = first_line;
    let mut start = 0_u64;
    for pair in table.chunks_exact(2) {
        let &[grown, lines] = pair else { break };
        start += u64::from(grown);
        if start > offset {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    line
}

fn line_table(table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    /// Marks a range without a line.
    const NO_LINE: i8 = -128;
    let mut line = first_line;
    let mut end = 0_u64;
    for pair in table.chunks_exact(2) {
        let &[length, lines] = pair else { break };
        end += u64::from(length);
        let lines = lines.cast_signed();
        if lines != NO_LINE {
            line += i64::from(lines);
        }
        if end > offset {
            return if lines != NO_LINE { Some(line) } else { None };
        }
    }
    None
}

/// The highest bit of a location entry's first byte.
const ENTRY: u8 = 0x80;

fn locations(table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    let mut line = first_line;
    let mut end = 0_u64;
    let mut rest = table;
    while let Some((head, tail)) = rest.split_first() {
        let length = tail.iter().take_while(|byte| **byte & ENTRY == 0).count();
        let (arguments, next) = tail.split_at_checked(length)?;
        // The length is stored in code units of two bytes, minus one.
        end += (u64::from(head & 7) + 1) * 2;
        let growth = line_growth(head >> 3 & 0xf, arguments);
        line = line.saturating_add(growth.unwrap_or(0));
        if end > offset {
            return growth.map(|_| line);
        }
        rest = next;
    }
    None
}

/// Difference of a location entry's line from the previous one; `None`: it has no line. The codes
/// are from `enum _PyCodeLocationInfoKind` (pycore_code.h).
fn line_growth(code: u8, arguments: &[u8]) -> Option<i64> {
    match code {
        // PY_CODE_LOCATION_INFO_NONE
        15 => None,
        // PY_CODE_LOCATION_INFO_LONG and _NO_COLUMNS
        13 | 14 => Some(signed_varint(arguments)),
        // PY_CODE_LOCATION_INFO_ONE_LINE0 to 2
        10..=12 => Some(i64::from(code) - 10),
        _ => Some(0),
    }
}

/// Six bits per byte, lowest first, 0x40 set if more follow; the sign is the lowest bit.
fn signed_varint(bytes: &[u8]) -> i64 {
    let mut value = 0_u64;
    let mut shift = 0;
    // No interpreter writes more than a 32-bit number.
    for byte in bytes.iter().take(6) {
        value |= u64::from(byte & 0x3f) << shift;
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::{LineTableFormat, line};
    use proptest::prelude::any;
    use proptest::proptest;

    const ALL: [LineTableFormat; 3] =
        [LineTableFormat::Lnotab, LineTableFormat::LineTable, LineTableFormat::Locations];

    /// Steps of more than 255 bytes and 127 lines take several pairs (Objects/lnotab_notes.txt of 3.8).
    #[test]
    fn lnotab_adds_pairs_up() {
        let table = [0, 1, 6, 1, 44, 5, 255, 0, 45, 127, 0, 73];
        let at = |offset| line(LineTableFormat::Lnotab, &table, 0, offset);
        assert_eq!(at(0), Some(1));
        assert_eq!(at(6), Some(2));
        assert_eq!(at(49), Some(2));
        assert_eq!(at(50), Some(7));
        assert_eq!(at(349), Some(7));
        assert_eq!(at(350), Some(207));
    }

    /// Ranges, one of them without a line (Objects/lnotab_notes.txt of 3.10).
    #[test]
    fn line_table_has_ranges() {
        let table = [6, 1, 44, 1, 254, 5, 46, 0, 254, 127, 46, 73, 6, 0x80, 10, 1_u8];
        let at = |offset| line(LineTableFormat::LineTable, &table, 0, offset);
        assert_eq!(at(5), Some(1));
        assert_eq!(at(6), Some(2));
        assert_eq!(at(50), Some(7));
        assert_eq!(at(349), Some(7));
        assert_eq!(at(350), Some(134));
        assert_eq!(at(650), None);
        assert_eq!(at(660), Some(208));
        assert_eq!(at(666), None, "beyond the end");
    }

    /// Entries of each kind (Objects/locations.md).
    #[test]
    fn locations_have_entries_of_many_sizes() {
        let table = [
            // one line, 0 lines on, 2 code units, columns
            0x80 | 10 << 3 | 1,
            0,
            5,
            // long: 200 lines on (400 as a varint of two digits), end line, columns; 1 unit
            0x80 | 14 << 3,
            0x50,
            0x06,
            0,
            1,
            2,
            // none, 1 unit
            0x80 | 15 << 3,
            // no columns: 3 lines back, 8 units
            0x80 | 13 << 3 | 7,
            7,
            // short, 1 unit
            0x80,
            0x10,
        ];
        let at = |offset| line(LineTableFormat::Locations, &table, 10, offset);
        assert_eq!([at(0), at(3)], [Some(10); 2]);
        assert_eq!(at(4), Some(210));
        assert_eq!(at(6), None);
        assert_eq!([at(8), at(23)], [Some(207); 2]);
        assert_eq!(at(24), Some(207));
        assert_eq!(at(26), None, "beyond the end");
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(
            table in proptest::collection::vec(any::<u8>(), 0..600),
            first_line in any::<i32>(),
            offset in proptest::prop_oneof![0_u32..4000, any::<u32>()],
        ) {
            for format in ALL {
                let _any_answer = line(format, &table, first_line, offset);
            }
        }
    }
}
