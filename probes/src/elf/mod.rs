//! The parts of an ELF file that gctrace needs: segments, sections, bytes at an address.
//!
//! `symbols.rs` has the symbols, `notes.rs` the notes, `relocations.rs` the relocations. Nothing
//! here is specific to Python.

pub(crate) mod data;
pub(crate) mod debug_file;
mod dynamic;
mod machine;
mod notes;
mod relocations;
mod symbols;

pub(crate) use data::{FileBytes, ImageData, open, open_file};
pub use machine::Machine;
pub(crate) use notes::StaticProbe;
pub(crate) use symbols::ElfSymbol;

use object::{LittleEndian, ReadRef, elf};

/// Maximum size in bytes of a section or segment that gctrace reads whole, and of all that it reads of
/// one file.
const LARGEST_PART: u64 = 1 << 30;

/// Why bytes could not be parsed as an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAnImage {
    /// Not an ELF file at all (a script, for example).
    NotElf,
    /// ELF, but for another machine.
    Machine(String),
    /// ELF, but this part is invalid.
    Damaged(String),
}

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElfSegment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) file_size: u64,
}

impl ElfSegment {
    /// Whether the file has the byte at an address.
    pub(crate) fn holds(&self, address: u64) -> bool {
        matches!(address.checked_sub(self.address), Some(within) if within < self.file_size)
    }
}

/// A named part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElfSection<'data> {
    pub(crate) name: &'data str,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
}

impl ElfSection<'_> {
    fn is_allocated(&self, with: u64, without: u64) -> bool {
        let wanted = elf::SHF_ALLOC.0 | with;
        self.kind == elf::SHT_PROGBITS.0
            && self.flags & wanted == wanted
            && self.flags & without == 0
    }
}

/// An ELF file.
pub(crate) struct ElfImage<'data> {
    data: ImageData<'data>,
    pub(crate) machine: Machine,
    /// Address of the entry point.
    pub(crate) entry: u64,
    /// Position-independent: a shared library or a PIE.
    pub(crate) relocatable: bool,
    pub(crate) segments: Vec<ElfSegment>,
    pub(crate) sections: Vec<ElfSection<'data>>,
}

impl<'data> ElfImage<'data> {
    /// Parses the headers of a file for `machine`.
    pub(crate) fn parse(data: ImageData<'data>, machine: Machine) -> Result<Self, NotAnImage> {
        let damaged = |what: &str| NotAnImage::Damaged(what.to_owned());
        let header = file_header(data, machine)?;
        let programs: &[elf::ProgramHeader64<LittleEndian>] = data
            .read_slice_at(
                header.e_phoff.get(LittleEndian),
                header.e_phnum.get(LittleEndian).into(),
            )
            .map_err(|()| damaged("program headers outside the file"))?;
        Ok(Self {
            data,
            machine,
            entry: header.e_entry.get(LittleEndian),
            relocatable: header.e_type.get(LittleEndian).0 == elf::ET_DYN.0,
            segments: programs.iter().map(segment).collect(),
            sections: sections(data, header).unwrap_or_default(),
        })
    }

    /// Bytes at an offset in the file.
    pub(crate) fn file_bytes(&self, offset: u64, size: u64) -> Option<&'data [u8]> {
        if size > LARGEST_PART {
            return None;
        }
        self.data.read_bytes_at(offset, size).ok()
    }

    /// Bytes at an address; `None` if the file stores none for it (`.bss`).
    pub(crate) fn bytes_at(&self, address: u64, size: u64) -> Option<&'data [u8]> {
        let offset = self.file_offset(address)?;
        self.file_offset(address.checked_add(size.checked_sub(1)?)?)?;
        self.file_bytes(offset, size)
    }

    /// A 64-bit word at an address.
    pub(crate) fn word_at(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes_at(address, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Offset in the file of an address.
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            if segment.kind != elf::PT_LOAD.0 || !segment.holds(address) {
                return None;
            }
            segment.offset.checked_add(address - segment.address)
        })
    }

    /// Start address of the lowest mapping: the first segment's, rounded down to a page.
    pub(crate) fn lowest_address(&self) -> u64 {
        const PAGE: u64 = 4096;
        self.segments
            .iter()
            .filter(|segment| segment.kind == elf::PT_LOAD.0)
            .map(|segment| segment.address & !(PAGE - 1))
            .min()
            .unwrap_or(0)
    }

    /// Whether an address is in code.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| {
            segment.kind == elf::PT_LOAD.0
                && segment.flags & elf::PF_X.0 != 0
                && segment.holds(address)
        })
    }

    /// The section with this name.
    pub(crate) fn section(&self, name: &str) -> Option<ElfSection<'data>> {
        self.sections.iter().find(|section| section.name == name).copied()
    }

    /// Contents of a section; empty for `.bss` and for the emptied sections of debug files.
    pub(crate) fn section_bytes(&self, section: &ElfSection<'_>) -> Option<&'data [u8]> {
        if section.kind == elf::SHT_NOBITS.0 {
            return None;
        }
        self.file_bytes(section.offset, section.size)
    }

    /// Address and bytes of every part that may contain string literals.
    pub(crate) fn constant_data(&self) -> impl Iterator<Item = (u64, &'data [u8])> {
        self.parts(0, elf::SHF_EXECINSTR.0 | elf::SHF_WRITE.0, 0)
    }

    /// Address and bytes of every part that may contain pointers.
    pub(crate) fn writable_data(&self) -> impl Iterator<Item = (u64, &'data [u8])> {
        self.parts(elf::SHF_WRITE.0, elf::SHF_EXECINSTR.0, elf::PF_W.0)
    }

    /// Address and bytes of every part that contains instructions.
    pub(crate) fn code(&self) -> impl Iterator<Item = (u64, &'data [u8])> {
        self.parts(elf::SHF_EXECINSTR.0, 0, elf::PF_X.0)
    }

    /// Sections by their flags, or segments if the section headers were stripped too.
    fn parts(
        &self,
        with: u64,
        without: u64,
        segment_flags: u32,
    ) -> impl Iterator<Item = (u64, &'data [u8])> {
        let by_section = self
            .sections
            .iter()
            .filter(move |section| section.is_allocated(with, without))
            .filter_map(|section| Some((section.address, self.section_bytes(section)?)));
        let by_segment = self
            .segments
            .iter()
            .filter(move |segment| {
                self.sections.is_empty()
                    && segment.kind == elf::PT_LOAD.0
                    && segment.flags & segment_flags == segment_flags
            })
            .filter_map(|segment| {
                Some((segment.address, self.file_bytes(segment.offset, segment.file_size)?))
            });
        by_section.chain(by_segment)
    }
}

fn file_header<'data>(
    data: ImageData<'data>,
    wanted: Machine,
) -> Result<&'data elf::FileHeader64<LittleEndian>, NotAnImage> {
    let ident = data.read_bytes_at(0, 20).map_err(|()| NotAnImage::NotElf)?;
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(NotAnImage::NotElf);
    }
    let machine = match *ident {
        [.., low, high] if ident.get(5) == Some(&elf::ELFDATA2LSB.0) => {
            u16::from_le_bytes([low, high])
        }
        [.., high, low] => u16::from_be_bytes([high, low]),
        _ => return Err(NotAnImage::NotElf),
    };
    let class = ident.get(4).copied().unwrap_or_default();
    let is_little = ident.get(5) == Some(&elf::ELFDATA2LSB.0);
    let found = if is_little { Machine::of_header(machine, class) } else { None };
    if found != Some(wanted) {
        let name = if let Some(found) = found { found.to_string() } else { machine_name(machine) };
        return Err(NotAnImage::Machine(name));
    }
    data.read_at(0).map_err(|()| NotAnImage::Damaged("the header is cut off".to_owned()))
}

fn machine_name(machine: u16) -> String {
    match elf::Machine(machine) {
        elf::EM_386 => "i386".to_owned(),
        elf::EM_X86_64 => "x32".to_owned(),
        elf::EM_AARCH64 => "aarch64 (ILP32 or big-endian)".to_owned(),
        elf::EM_ARM => "arm".to_owned(),
        elf::EM_PPC64 => "ppc64".to_owned(),
        elf::EM_S390 => "s390x".to_owned(),
        elf::EM_RISCV => "riscv".to_owned(),
        elf::Machine(other) => format!("ELF machine {other}"),
    }
}

fn segment(header: &elf::ProgramHeader64<LittleEndian>) -> ElfSegment {
    ElfSegment {
        kind: header.p_type.get(LittleEndian).0,
        flags: header.p_flags.get(LittleEndian).0,
        address: header.p_vaddr.get(LittleEndian),
        offset: header.p_offset.get(LittleEndian),
        file_size: header.p_filesz.get(LittleEndian),
    }
}

/// The section headers; `None` if stripped or damaged: the file runs without them.
fn sections<'data>(
    data: ImageData<'data>,
    header: &elf::FileHeader64<LittleEndian>,
) -> Option<Vec<ElfSection<'data>>> {
    let headers: &[elf::SectionHeader64<LittleEndian>] = data
        .read_slice_at(header.e_shoff.get(LittleEndian), header.e_shnum.get(LittleEndian).into())
        .ok()?;
    let names = headers.get(usize::from(header.e_shstrndx.get(LittleEndian).0))?;
    let names = data
        .read_bytes_at(names.sh_offset.get(LittleEndian), names.sh_size.get(LittleEndian))
        .ok()?;
    Some(headers.iter().map(|header| section(names, header)).collect())
}

fn section<'data>(
    names: &'data [u8],
    header: &elf::SectionHeader64<LittleEndian>,
) -> ElfSection<'data> {
    ElfSection {
        name: symbols::text_at(names, header.sh_name.get(LittleEndian)).unwrap_or(""),
        kind: header.sh_type.get(LittleEndian).0,
        flags: header.sh_flags.get(LittleEndian).0,
        address: header.sh_addr.get(LittleEndian),
        offset: header.sh_offset.get(LittleEndian),
        size: header.sh_size.get(LittleEndian),
        link: header.sh_link.get(LittleEndian),
    }
}
