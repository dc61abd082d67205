//! Texts of recorded programs, cut to what may be kept of them.

use gctrace_event::{CycleEdge, CycleSignature, ObjectKind};

/// Maximum length of the names of a kind of object, in bytes.
const KIND_BYTES: usize = 256;
/// Maximum number of objects of a cycle that are kept.
const EDGES: usize = 32;

/// A kind of object with cut names.
pub(super) fn brief_kind(kind: &ObjectKind) -> ObjectKind {
    let cut = |text: &String| first_bytes(text, KIND_BYTES).to_owned();
    ObjectKind {
        type_name: cut(&kind.type_name),
        function: kind.function.as_ref().map(cut),
        file: kind.file.as_ref().map(cut),
        ..*kind
    }
}

/// The start of a cycle, with cut names.
pub(super) fn brief_cycle(cycle: &CycleSignature) -> CycleSignature {
    let cut = |text: &String| first_bytes(text, KIND_BYTES).to_owned();
    let edge = |edge: &CycleEdge| CycleEdge { kind: edge.kind, name: edge.name.as_ref().map(cut) };
    CycleSignature { edges: cycle.edges.iter().take(EDGES).map(edge).collect(), ..*cycle }
}

/// The first bytes of a text, up to a whole character.
pub(super) fn first_bytes(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        assert_eq!(first_bytes("aé", 2), "a");
        assert_eq!(first_bytes("aé", 3), "aé");
        assert_eq!(first_bytes("aé", 100), "aé");
        assert_eq!(first_bytes("é", 1), "");
    }
}
