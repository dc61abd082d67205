//! Runtime libraries of the compilers' sanitizers.

/// Whether a library of this file name is the runtime of a sanitizer that has to be loaded first of all
/// (gcc's names, then clang's): with another library before it, the program does not start.
pub fn is_sanitizer_runtime(name: &[u8]) -> bool {
    const KINDS: [&str; 5] = ["asan", "hwasan", "lsan", "tsan", "msan"];
    let Some(name) = name.strip_prefix(b"lib") else { return false };
    let of_clang = name.strip_prefix(b"clang_rt.");
    KINDS.iter().any(|kind| {
        let Some(rest) = of_clang.unwrap_or(name).strip_prefix(kind.as_bytes()) else {
            return false;
        };
        matches!(rest.first(), Some(next) if !next.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_by_name() {
        for name in
            ["libasan.so.8", "libtsan.so.2", "libclang_rt.asan-x86_64.so", "libclang_rt.hwasan.so"]
        {
            assert!(is_sanitizer_runtime(name.as_bytes()), "{name}");
        }
        for name in
            ["libubsan.so.1", "libclang_rt.ubsan_standalone.so", "libasana.so", "asan.so", "lib"]
        {
            assert!(!is_sanitizer_runtime(name.as_bytes()), "{name}");
        }
    }
}
