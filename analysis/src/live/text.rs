//! Texts of recorded programs, cut to what may be kept of them.

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
