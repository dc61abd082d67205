//! Processor architectures of files that can be examined.

use object::elf;

/// A processor architecture; gctrace can examine its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86, as AMD and Intel make it.
    X86_64,
    /// 64-bit Arm, little-endian.
    Aarch64,
}

impl Machine {
    /// The architecture that gctrace was built for: it can trace programs of this one only.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    pub(super) fn of_header(machine: u16, class: u8) -> Option<Self> {
        match elf::Machine(machine) {
            _ if class != elf::ELFCLASS64.0 => None,
            elf::EM_X86_64 => Some(Self::X86_64),
            elf::EM_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Type of the relocations that add the load address to a constant.
    pub(super) fn relative_relocation(self) -> u32 {
        match self {
            Self::X86_64 => elf::R_X86_64_RELATIVE.0,
            Self::Aarch64 => elf::R_AARCH64_RELATIVE.0,
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::X86_64 => "x86-64",
            Self::Aarch64 => "aarch64",
        })
    }
}
