//! ELF notes: the build id and static trace points (USDT).

use super::{ElfImage, symbols};
use object::read::elf::NoteIterator;
use object::{LittleEndian, elf};

/// Note type of a SystemTap trace point (`sys/sdt.h`).
const NT_STAPSDT: u32 = 3;

/// A static trace point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StaticProbe {
    pub(crate) provider: String,
    pub(crate) name: String,
    /// Address of its nop, corrected for prelink.
    pub(crate) address: u64,
    /// Address of the semaphore that enables it.
    pub(crate) semaphore: Option<u64>,
}

impl<'data> ElfImage<'data> {
    /// The build id in hexadecimal.
    pub(crate) fn build_id(&self) -> Option<String> {
        let id = self
            .note_areas()
            .flat_map(notes)
            .find(|(name, kind, _)| *kind == elf::NT_GNU_BUILD_ID.0 && *name == elf::ELF_NOTE_GNU)
            .map(|(_, _, description)| description)?;
        if id.is_empty() {
            return None;
        }
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The static trace points of a provider.
    pub(crate) fn static_probes(&self, provider: &str) -> Vec<StaticProbe> {
        let base = self.section(".stapsdt.base").map(|section| section.address);
        let mut probes = Vec::new();
        let Some(section) = self.section(".note.stapsdt") else { return probes };
        for (name, kind, description) in notes(self.section_bytes(&section).unwrap_or_default()) {
            if kind == NT_STAPSDT
                && name == b"stapsdt"
                && let Some(probe) = static_probe(description, base)
                && probe.provider == provider
            {
                probes.push(probe);
            }
        }
        probes
    }

    fn note_areas(&self) -> impl Iterator<Item = &'data [u8]> {
        self.segments
            .iter()
            .filter(|segment| segment.kind == elf::PT_NOTE.0)
            .filter_map(|segment| self.file_bytes(segment.offset, segment.file_size))
    }
}

/// Name, type and contents of each note.
fn notes(area: &[u8]) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
    // Notes of alignment 4 may be in areas of alignment 8: in practice build-id notes have 4, and
    // `.note.gnu.property` is a note area of its own.
    NoteIterator::<elf::FileHeader64<LittleEndian>>::new(LittleEndian, 4, area)
        .into_iter()
        .flatten()
        .map_while(Result::ok)
        .map(|note| (note.name(), note.n_type(LittleEndian).0, note.desc()))
}

fn static_probe(description: &[u8], base_now: Option<u64>) -> Option<StaticProbe> {
    let word = |index: usize| -> Option<u64> {
        let bytes = description.get(index * 8..index * 8 + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (location, base_then, semaphore) = (word(0)?, word(1)?, word(2)?);
    // Prelink moves the code but not the notes; the base gives the distance.
    let moved = if let Some(now) = base_now { now.wrapping_sub(base_then) } else { 0 };
    let texts = description.get(24..)?;
    let mut at = 0u32;
    let mut text = || {
        let found = symbols::text_at(texts, at)?;
        at = at.checked_add(u32::try_from(found.len()).ok()?)?.checked_add(1)?;
        Some(found.to_owned())
    };
    Some(StaticProbe {
        provider: text()?,
        name: text()?,
        address: location.wrapping_add(moved),
        semaphore: if semaphore != 0 { Some(semaphore.wrapping_add(moved)) } else { None },
    })
}
