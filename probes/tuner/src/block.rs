//! Blocks of steps, and whether two are of the same program.

use super::price::Thresholds;

/// Containers per step that differ by more than this factor are another program.
const OTHER: f64 = 1.5;

/// Purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// The program's own settings, not compared.
    Own,
    /// A setting that is tried, by its place.
    Tried(usize),
    /// One of a pair: the held setting, or the program's own.
    Paired { is_held: bool },
    /// The held setting, not compared.
    Held,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) kind: BlockKind,
    pub(super) thresholds: Thresholds,
    pub(super) steps: u64,
}

impl BlockKind {
    /// Whether the program's own settings are in place, in a search.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Own | Self::Tried(0) | Self::Paired { is_held: false })
    }

    /// Whether the held setting is in place.
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::Paired { is_held: true })
    }
}

impl Block {
    /// Whether the old generation is suspended, and young objects are collected at its end.
    pub(super) fn is_compared(&self) -> bool {
        matches!(self.kind, BlockKind::Tried(_) | BlockKind::Paired { .. })
    }
}

/// Whether so many containers per step are another program's than those.
pub(super) fn is_other(before: f64, now: f64) -> bool {
    /// Few containers make no collections, whatever their ratio.
    const FEW: f64 = 20.0;
    now > before * OTHER + FEW || now + FEW < before / OTHER
}
