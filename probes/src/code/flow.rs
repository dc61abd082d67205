//! Effects of an instruction: where it leads, and the registers that it reads and changes.

/// Where execution continues after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// At the next instruction.
    Next,
    /// At the target of a direct jump.
    Jump,
    /// At the target of a direct jump, or at the next instruction.
    ConditionalJump,
    /// At an address in a register or in memory.
    IndirectJump,
    /// In a function with a fixed address, then at the next instruction.
    Call,
    /// In a function with an address in a register or in memory, then at the next instruction.
    IndirectCall,
    /// In the caller.
    Return,
    /// Elsewhere: traps, system calls, transactions.
    Other,
}

/// Registers as a set of bits: bit N is register N in the machine's encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers(pub(crate) u32);

impl Registers {
    /// The set of these registers.
    pub(crate) fn of(numbers: impl IntoIterator<Item = u8>) -> Self {
        Self(
            numbers
                .into_iter()
                .fold(0, |set, number| set | 1u32.checked_shl(number.into()).unwrap_or(0)),
        )
    }

    /// Whether the register is one of them.
    pub(crate) fn contains(self, number: u8) -> bool {
        self.overlaps(Self::of([number]))
    }

    /// The registers of either set.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The registers in both sets.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Registers that are not in the other set.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the sets have a register in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// An instruction's use of the general-purpose registers and the stack pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegisterUse {
    /// Registers that it may read.
    pub(crate) read: Registers,
    /// Registers that it may change.
    pub(crate) changed: Registers,
    /// Registers that it always replaces, without reading them.
    pub(crate) replaced: Registers,
}
