//! Which processes a recording examined, and which may have run Python without being recorded.

use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The processes of a recording by the result of their examination. A forked child without an exec
/// of its own counts as what its parent was.
///
/// If `other` is known and `unexamined` is empty, only what `lost` counts is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct ExaminedProcesses {
    /// Number of processes in which a Python interpreter was found.
    pub python: u64,
    /// Processes examined in which no Python was found; absent where such processes are not counted
    /// (recorded in-process: the library reports itself only where it finds Python).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<u64>,
    /// Processes that may have run Python without being recorded, or for longer than recorded, by
    /// reason: a predicate such as `ended before being examined`.
    pub unexamined: BTreeMap<String, u64>,
}

impl ExaminedProcesses {
    /// Processes that could have run Python unseen.
    #[must_use]
    pub fn unexamined(&self) -> u64 {
        self.unexamined.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Every process that could have run Python was examined.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.other.is_some() && self.unexamined.is_empty()
    }
}
