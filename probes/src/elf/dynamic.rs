//! The dynamic segment: needed libraries, and the dynamic symbols of files without section headers.

use super::{ElfImage, symbols};
use object::read::elf::GnuHashTable;
use object::{LittleEndian, elf, pod};

impl<'data> ElfImage<'data> {
    /// Whether the program requests a loader (`ld.so`).
    pub(crate) fn has_loader(&self) -> bool {
        self.segments.iter().any(|segment| segment.kind == elf::PT_INTERP.0)
    }

    /// Path of the loader, without the terminating NUL.
    pub(crate) fn loader(&self) -> Option<&'data [u8]> {
        let segment = self.segments.iter().find(|segment| segment.kind == elf::PT_INTERP.0)?;
        let bytes = self.file_bytes(segment.offset, segment.file_size)?;
        bytes.split(|byte| *byte == 0).next()
    }

    /// Names of the libraries that the loader maps first.
    pub(crate) fn needed(&self) -> Vec<&'data str> {
        self.dynamic_texts(elf::DT_NEEDED.0)
    }

    /// Folders where the loader searches for needed libraries first, as written (`$ORIGIN/../lib`): `DT_RUNPATH`, or
    /// the older `DT_RPATH`, ignored if both exist (ld.so(8)).
    pub(crate) fn library_folders(&self) -> Vec<&'data str> {
        let newer = self.dynamic_texts(elf::DT_RUNPATH.0);
        let lists = if newer.is_empty() { self.dynamic_texts(elf::DT_RPATH.0) } else { newer };
        lists.into_iter().flat_map(|list| list.split(':')).collect()
    }

    fn dynamic_texts(&self, wanted: i64) -> Vec<&'data str> {
        let Some(names) = self.dynamic_names() else {
            return Vec::new();
        };
        self.dynamic_entries()
            .filter(|(tag, _)| *tag == wanted)
            .filter_map(|(_, value)| symbols::text_at(names, u32::try_from(value).ok()?))
            .collect()
    }

    /// The dynamic symbol table and its names, without section headers.
    pub(super) fn dynamic_table(&self) -> Option<(&'data [u8], &'data [u8])> {
        let count = self.dynamic_symbol_count()?;
        let size = u64::from(count).checked_mul(size_of::<elf::Sym64<LittleEndian>>() as u64)?;
        let table = self.bytes_at(self.dynamic_value(elf::DT_SYMTAB.0)?, size)?;
        Some((table, self.dynamic_names()?))
    }

    fn dynamic_names(&self) -> Option<&'data [u8]> {
        self.bytes_at(self.dynamic_value(elf::DT_STRTAB.0)?, self.dynamic_value(elf::DT_STRSZ.0)?)
    }

    /// The number of symbols: only the hash table stores it.
    fn dynamic_symbol_count(&self) -> Option<u32> {
        let address = self.dynamic_value(elf::DT_GNU_HASH.0)?;
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.kind == elf::PT_LOAD.0 && segment.holds(address))?;
        let within = address.checked_sub(segment.address)?;
        let bytes = self.bytes_at(address, segment.file_size.checked_sub(within)?)?;
        GnuHashTable::<elf::FileHeader64<LittleEndian>>::parse(LittleEndian, bytes)
            .ok()?
            .symbol_table_length(LittleEndian)
    }

    pub(super) fn dynamic_value(&self, tag: i64) -> Option<u64> {
        self.dynamic_entries().find(|(found, _)| *found == tag).map(|(_, value)| value)
    }

    fn dynamic_entries(&self) -> impl Iterator<Item = (i64, u64)> {
        let bytes = self
            .segments
            .iter()
            .find(|segment| segment.kind == elf::PT_DYNAMIC.0)
            .and_then(|segment| self.file_bytes(segment.offset, segment.file_size))
            .unwrap_or_default();
        let whole = bytes.len() / size_of::<elf::Dyn64<LittleEndian>>();
        pod::slice_from_bytes::<elf::Dyn64<LittleEndian>>(bytes, whole)
            .map_or(&[][..], |(entries, _)| entries)
            .iter()
            .map(|entry| (entry.d_tag.get(LittleEndian).0, entry.d_val.get(LittleEndian)))
            .take_while(|(tag, _)| *tag != elf::DT_NULL.0)
    }
}
