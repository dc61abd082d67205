//! Which processes a recording looked into, and which could have run Python unseen.

use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;

/// The processes of a recording by whether Python was looked for in them. A forked child that runs no program of
/// its own counts as what its parent was.
///
/// Nothing can be missing but what `lost` counts exactly if `other` is known and `unexamined` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExaminedProcesses {
    /// Processes that ran Python.
    pub python: u64,
    /// Processes examined in which no Python was found; absent where such processes are not counted (recorded
    /// in-process: the library reports itself only where it finds Python).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<u64>,
    /// Processes that could have run Python unseen, or for longer than was seen, by reason: a clause whose subject
    /// they are, such as `ended before being examined`.
    pub unexamined: BTreeMap<String, u64>,
}

impl ExaminedProcesses {
    /// Processes that could have run Python unseen.
    #[must_use]
    pub fn unexamined(&self) -> u64 {
        self.unexamined
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Every process that could have run Python was examined.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.other.is_some() && self.unexamined.is_empty()
    }
}
