//! Function ranges, from the unwind tables that stripped files keep.

use crate::elf::ElfImage;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, Register,
    UnwindContext, UnwindSection,
};
use object::elf;
use std::ops::Range;

type Reader<'data> = EndianSlice<'data, LittleEndian>;

/// Every address range with an unwind entry: functions and cold parts of functions.
pub(crate) struct FunctionTable<'data> {
    table: EhFrame<Reader<'data>>,
    bases: BaseAddresses,
    /// By start address, without overlaps.
    ranges: Vec<FunctionRange>,
    /// Register and offset of the frame address of a function just called.
    called_frame: (Register, i64),
}

#[derive(Clone, Debug)]
struct FunctionRange {
    range: Range<u64>,
    offset: usize,
}

impl<'data> FunctionTable<'data> {
    /// Parses `.eh_frame`; empty if there is none.
    pub(crate) fn read(image: &ElfImage<'data>) -> Self {
        let (address, bytes) = eh_frame(image).unwrap_or_default();
        let table = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(address);
        let ranges = ranges(&table, &bases);
        Self { table, bases, ranges, called_frame: image.machine.called_frame() }
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The range that contains an address.
    pub(crate) fn containing(&self, address: u64) -> Option<Range<u64>> {
        self.entry(address).map(|entry| entry.range.clone())
    }

    /// Whether the stack at the start of the range is as in a function just called, with at most
    /// the return address pushed. Cold parts usually start deeper.
    pub(crate) fn starts_as_called(&self, start: u64) -> bool {
        let Some(entry) = self.entry(start) else { return false };
        self.initial_depth(entry) == Some(self.called_frame)
    }

    /// Register and offset of the canonical frame address at the start of a range.
    fn initial_depth(&self, entry: &FunctionRange) -> Option<(Register, i64)> {
        let fde = self
            .table
            .fde_from_offset(&self.bases, EhFrameOffset(entry.offset), EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let mut rows = fde.rows(&self.table, &self.bases, &mut context).ok()?;
        match rows.next_row().ok()??.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Some((*register, *offset)),
            CfaRule::Expression(_) => None,
        }
    }

    fn entry(&self, address: u64) -> Option<&FunctionRange> {
        let after = self.ranges.partition_point(|entry| entry.range.start <= address);
        let entry = self.ranges.get(after.checked_sub(1)?)?;
        if entry.range.contains(&address) { Some(entry) } else { None }
    }
}

/// Address and bytes of `.eh_frame`, also in files without section headers.
fn eh_frame<'data>(image: &ElfImage<'data>) -> Option<(u64, &'data [u8])> {
    if let Some(section) = image.section(".eh_frame") {
        return Some((section.address, image.section_bytes(&section)?));
    }
    let header = image.segments.iter().find(|segment| segment.kind == elf::PT_GNU_EH_FRAME.0)?;
    let bytes = image.file_bytes(header.offset, header.file_size)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let parsed = gimli::EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(address) = parsed.eh_frame_ptr() else { return None };
    // The length is not stored; an empty entry terminates the table.
    let segment = image
        .segments
        .iter()
        .find(|segment| segment.kind == elf::PT_LOAD.0 && segment.holds(address))?;
    let size = segment.file_size.checked_sub(address.checked_sub(segment.address)?)?;
    Some((address, image.bytes_at(address, size)?))
}

fn ranges(table: &EhFrame<Reader<'_>>, bases: &BaseAddresses) -> Vec<FunctionRange> {
    // strip(1) keeps the table: it is loaded with the program, for exceptions and backtraces.
    // https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html
    let mut entries = table.entries(bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let start = fde.initial_address();
        let Some(end) = start.checked_add(fde.len()) else { continue };
        if start < end {
            found.push(FunctionRange { range: start..end, offset: fde.offset() });
        }
    }
    found.sort_by_key(|entry| entry.range.start);
    found.dedup_by_key(|entry| entry.range.start);
    found
}
