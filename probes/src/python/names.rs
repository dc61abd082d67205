//! Names of the collector's functions in symbol tables.

/// Suffixes that compilers append to the name of a function's clone.
const CLONE_SUFFIXES: [&str; 4] = ["constprop", "isra", "part", "lto_priv"];

/// Functions that contain the collector in some version of CPython (facts by version: 3.8/3.9
/// `collect`, 3.10 - 3.13, 3.14.5 and later `gc_collect_main`, 3.14.0 - 3.14.4 `_PyGC_Collect`).
pub(crate) const COLLECTORS: [&str; 3] = ["collect", "gc_collect_main", "_PyGC_Collect"];

/// The source name of a symbol, without the suffixes of clones; `None` for cold parts, which are
/// not functions, and for names with other suffixes.
pub(crate) fn source_name(symbol: &str) -> Option<&str> {
    let mut parts = symbol.split('.');
    let name = parts.next()?;
    while let Some(suffix) = parts.next() {
        let number = parts.next()?;
        let known = CLONE_SUFFIXES.contains(&suffix) || suffix == "llvm";
        let numeric = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (known && numeric).then_some(())?;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::source_name;

    #[test]
    fn clones_have_their_source_name_and_cold_parts_none() {
        for (symbol, expected) in [
            ("gc_collect_main", Some("gc_collect_main")),
            ("collect.constprop.0", Some("collect")),
            ("gc_collect_main.isra.0.constprop.12", Some("gc_collect_main")),
            ("gc_collect_main.lto_priv.0", Some("gc_collect_main")),
            ("gc_collect_main.llvm.1234567", Some("gc_collect_main")),
            ("gc_collect_main.part.0.cold", None),
            ("collect.cold", None),
            ("collect.constprop.0.cold.3", None),
            ("collect.constprop", None),
            ("collect.constprop.x", None),
        ] {
            assert_eq!(source_name(symbol), expected, "{symbol}");
        }
    }
}
