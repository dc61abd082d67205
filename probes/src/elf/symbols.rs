//! Symbol tables: `.symtab`, `.dynsym`, and the dynamic table of files without section headers.

use super::{ElfImage, ElfSection};
use object::{LittleEndian, elf, pod};

/// A defined symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElfSymbol<'data> {
    pub(crate) name: &'data str,
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// A function (or an indirect one).
    pub(crate) is_function: bool,
}

/// The NUL-terminated string at `offset` of a string table.
pub(crate) fn text_at(table: &[u8], offset: u32) -> Option<&str> {
    let rest = table.get(usize::try_from(offset).ok()?..)?;
    let end = memchr::memchr(0, rest)?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

/// All defined symbols of a table.
pub(super) fn defined<'data>(
    table: &'data [u8],
    names: &'data [u8],
) -> impl Iterator<Item = ElfSymbol<'data>> {
    entries(table).filter_map(|symbol| of_entry(symbol, names))
}

fn entries(table: &[u8]) -> impl Iterator<Item = &elf::Sym64<LittleEndian>> {
    let whole = table.len() / size_of::<elf::Sym64<LittleEndian>>();
    pod::slice_from_bytes::<elf::Sym64<LittleEndian>>(table, whole)
        .map_or(&[][..], |(symbols, _)| symbols)
        .iter()
        .filter(|symbol| symbol.st_shndx.get(LittleEndian).0 != elf::SHN_UNDEF.0)
}

fn of_entry<'data>(
    symbol: &elf::Sym64<LittleEndian>,
    names: &'data [u8],
) -> Option<ElfSymbol<'data>> {
    Some(ElfSymbol {
        name: text_at(names, symbol.st_name.get(LittleEndian))?,
        address: symbol.st_value.get(LittleEndian),
        size: symbol.st_size.get(LittleEndian),
        is_function: matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC),
    })
}

impl<'data> ElfImage<'data> {
    /// Whether the file has a `.symtab` with contents.
    pub(crate) fn has_symbol_table(&self) -> bool {
        self.table(elf::SHT_SYMTAB.0).is_some()
    }

    /// The symbols of `.symtab`; empty if the file is stripped.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = ElfSymbol<'data>> {
        let (table, names) = self.table(elf::SHT_SYMTAB.0).unwrap_or_default();
        defined(table, names)
    }

    /// The exported symbols.
    pub(crate) fn dynamic_symbols(&self) -> impl Iterator<Item = ElfSymbol<'data>> {
        let (table, names) =
            self.table(elf::SHT_DYNSYM.0).or_else(|| self.dynamic_table()).unwrap_or_default();
        defined(table, names)
    }

    /// The exported symbol with this name.
    pub(crate) fn dynamic_symbol(&self, name: &str) -> Option<ElfSymbol<'data>> {
        self.dynamic_symbols().find(|symbol| symbol.name == name)
    }

    /// Exported symbols that have this name, or start with it. Searches the string table first: in a library with
    /// hundreds of thousands of names that is much faster than reading each.
    pub(crate) fn dynamic_symbols_named(
        &self,
        name: &str,
        is_prefix: bool,
    ) -> Vec<ElfSymbol<'data>> {
        let (table, names) =
            self.table(elf::SHT_DYNSYM.0).or_else(|| self.dynamic_table()).unwrap_or_default();
        let mut text = name.as_bytes().to_vec();
        if !is_prefix {
            text.push(0);
        }
        let places: Vec<u32> = memchr::memmem::find_iter(names, &text)
            .filter_map(|place| u32::try_from(place).ok())
            .collect();
        if places.is_empty() {
            return Vec::new();
        }
        entries(table)
            .filter(|symbol| places.contains(&symbol.st_name.get(LittleEndian)))
            .filter_map(|symbol| of_entry(symbol, names))
            .collect()
    }

    /// The exported symbol with this name, or else the one in `.symtab`.
    pub(crate) fn symbol(&self, name: &str) -> Option<ElfSymbol<'data>> {
        self.dynamic_symbol(name).or_else(|| self.symbols().find(|symbol| symbol.name == name))
    }

    /// The bytes of a symbol table and of its string table.
    fn table(&self, kind: u32) -> Option<(&'data [u8], &'data [u8])> {
        let table = self.sections.iter().find(|section| section.kind == kind)?;
        let names: &ElfSection<'_> = self.sections.get(usize::try_from(table.link).ok()?)?;
        Some((self.section_bytes(table)?, self.section_bytes(names)?))
    }
}
