//! Pointers in data: the value of a word once the loader has relocated the file.

use super::ElfImage;
use object::{LittleEndian, elf, pod};

impl<'data> ElfImage<'data> {
    /// Addresses of the pointers to `target`: words with that value (in files without relocations and files with packed
    /// relocations, RELR), and RELATIVE relocations that will write it.
    pub(crate) fn pointers_to(&self, target: u64) -> Vec<u64> {
        let raw = self.writable_data().flat_map(|(address, bytes)| {
            memchr::memmem::find_iter(bytes, &target.to_le_bytes())
                .map(move |position| address.wrapping_add(position as u64))
                .filter(|at| at % 8 == 0)
                .collect::<Vec<_>>()
        });
        let relocated =
            self.relative_relocations().filter(|(_, addend)| *addend == target).map(|(at, _)| at);
        raw.chain(relocated).collect()
    }

    /// The target of the pointer at an address after relocation; `None` for null and for pointers
    /// that are bound by name.
    pub(crate) fn pointer_at(&self, address: u64) -> Option<u64> {
        let relocated =
            self.relative_relocations().find(|(at, _)| *at == address).map(|(_, addend)| addend);
        let pointer = relocated.or_else(|| self.word_at(address))?;
        if pointer != 0 { Some(pointer) } else { None }
    }

    /// Place and value of each RELATIVE relocation.
    fn relative_relocations(&self) -> impl Iterator<Item = (u64, u64)> {
        // Without a symbol, the low 32 bits are the type.
        let relative = u64::from(self.machine.relative_relocation());
        self.relocation_table()
            .unwrap_or_default()
            .iter()
            .filter(move |one| one.r_info.get(LittleEndian) == relative)
            .map(|one| (one.r_offset.get(LittleEndian), one.r_addend.get(LittleEndian) as u64))
    }

    fn relocation_table(&self) -> Option<&'data [elf::Rela64<LittleEndian>]> {
        let address = self.dynamic_value(elf::DT_RELA.0)?;
        let size = self.dynamic_value(elf::DT_RELASZ.0)?;
        let bytes = self.bytes_at(address, size)?;
        let count = bytes.len() / size_of::<elf::Rela64<LittleEndian>>();
        Some(pod::slice_from_bytes(bytes, count).ok()?.0)
    }
}
