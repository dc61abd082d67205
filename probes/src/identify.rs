//! A cheap check made on every program at exec: can it run Python?

use crate::ResolveError;
use crate::arch::DEBIAN_LIBRARIES;
use crate::elf::{ElfImage, ImageData, Machine, NotAnImage, open};
use std::path::{Path, PathBuf};

/// Kind of program that a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// An executable that contains the collector.
    Static,
    /// An executable that loads a `libpython`.
    NeedsLibpython {
        /// File offset of the program's entry point: by then the loader has mapped the library.
        entry_file_offset: u64,
    },
    /// An executable that is PyPy, or loads it: a Python with another collector.
    PyPy,
    /// Another dynamically linked executable; later loaded libraries are unknown.
    OtherDynamic {
        /// File offset of the program's entry point.
        entry_file_offset: u64,
    },
    /// Not an executable of this machine, or unable to load libraries.
    Other,
}

/// Checks the headers, the needed libraries and the exported symbols of a file.
///
/// # Errors
/// If the file cannot be opened. A file that is not an ELF file, or a damaged one, is
/// [`ProgramKind::Other`].
pub fn identify(file: &Path) -> Result<ProgramKind, ResolveError> {
    let cache = open(file)?;
    Ok(match ElfImage::parse(ImageData::File(&cache), Machine::HOST) {
        Ok(image) => kind_of(&image),
        Err(NotAnImage::NotElf | NotAnImage::Machine(_) | NotAnImage::Damaged(_)) => {
            ProgramKind::Other
        }
    })
}

fn kind_of(image: &ElfImage<'_>) -> ProgramKind {
    // Executables that load extension modules export it. The full symbol table can have a million entries: it is
    // searched only if there is no other.
    let runtime = if image.has_loader() {
        image.dynamic_symbol("_PyRuntime")
    } else {
        image.symbol("_PyRuntime")
    };
    if runtime.is_some() {
        return ProgramKind::Static;
    }
    if image.needed().into_iter().any(is_libpypy) || image.dynamic_symbol(PYPY_MAIN).is_some() {
        return ProgramKind::PyPy;
    }
    let (true, Some(entry_file_offset)) = (image.has_loader(), image.file_offset(image.entry))
    else {
        return ProgramKind::Other;
    };
    if image.needed().into_iter().any(is_libpython) {
        ProgramKind::NeedsLibpython { entry_file_offset }
    } else {
        ProgramKind::OtherDynamic { entry_file_offset }
    }
}

/// The most likely path of the libpython that an executable links: in the folders that its headers
/// name, next to it, in the `lib` next to its folder, or in the system's library folders. A guess
/// made before it runs; the loader may find another one, by `LD_LIBRARY_PATH` for example.
pub fn likely_libpython(executable: &Path) -> Option<PathBuf> {
    const SYSTEM: [&str; 4] = [DEBIAN_LIBRARIES, "/usr/local/lib", "/usr/lib64", "/usr/lib"];
    let cache = open(executable).ok()?;
    let image = ElfImage::parse(ImageData::File(&cache), Machine::HOST).ok()?;
    let name = image.needed().into_iter().find(|name| is_libpython(name))?;
    let folder = executable.parent()?;
    let declared = image.library_folders().into_iter().map(|declared| {
        let below = declared.strip_prefix("$ORIGIN").or_else(|| declared.strip_prefix("${ORIGIN}"));
        match below {
            Some(below) => folder.join(below.trim_start_matches('/')),
            None => PathBuf::from(declared),
        }
    });
    let beside = [folder.join("../lib"), folder.to_owned()];
    let places = declared.chain(beside).chain(SYSTEM.map(PathBuf::from));
    let mut files = places.map(|place| place.join(name));
    files.find(|file| file.is_file())?.canonicalize().ok()
}

/// Whether a library's file name is a libpython's that contains the interpreter, such as
/// `libpython3.11.so.1.0`, `libpython3.13t.so.1.0` or `libpython3.9d.so`; not the stub
/// `libpython3.so`.
pub(crate) fn is_libpython(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("libpython3.") else { return false };
    rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(".so")
}

/// Whether a library's file name is PyPy's, such as `libpypy3.9-c.so`: all of PyPy but its `main`.
fn is_libpypy(name: &str) -> bool {
    name.starts_with("libpypy")
}

/// The function that PyPy's `main` calls, exported also where
/// it is in the executable itself.
const PYPY_MAIN: &str = "pypy_main_startup";

#[cfg(test)]
mod tests {
    use super::{ProgramKind, identify, is_libpython, likely_libpython};
    use std::process::Command;

    /// Stand-ins for PyPy: a small program and a large library, or one file.
    #[test]
    fn pypy_is_recognized_by_its_library_or_its_main() {
        let place = tempfile::tempdir().unwrap();
        let build = |arguments: &[&str]| {
            let built = Command::new("cc").current_dir(&place).args(arguments).status();
            built.is_ok_and(|status| status.success())
        };
        let library = "int pypy_main_startup(int count, char **words) { return 0; }";
        std::fs::write(place.path().join("library.c"), library).unwrap();
        let main = "int pypy_main_startup(int, char **); int main(int c, char **v) { return pypy_main_startup(c, v); }";
        std::fs::write(place.path().join("main.c"), main).unwrap();
        let shared = ["-shared", "-fPIC", "library.c", "-o", "libpypy3.9-c.so"];
        let linked = ["main.c", "-L.", "-l:libpypy3.9-c.so", "-o", "linked"];
        let whole = ["main.c", "library.c", "-rdynamic", "-o", "whole"];
        if !build(&shared) {
            eprintln!("skipped pypy_is_recognized_by_its_library_or_its_main: no C compiler");
            return;
        }
        assert!(build(&linked) && build(&whole));
        for name in ["linked", "whole"] {
            let kind = identify(&place.path().join(name)).unwrap();
            assert_eq!(kind, ProgramKind::PyPy, "{name}");
        }
    }

    #[test]
    fn a_libpython_is_searched_for_where_the_program_names_it() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let build = |arguments: &[&str]| {
            let built = Command::new("cc")
                .current_dir(&place)
                .args(["-x", "c", "main.c", "-o"])
                .args(arguments)
                .status();
            built.is_ok_and(|status| status.success())
        };
        for folder in ["bin", "a", "b"] {
            std::fs::create_dir(place.join(folder)).unwrap();
        }
        std::fs::write(place.join("main.c"), "int main(void) { return 0; }").unwrap();
        let name = "libpython3.99.so.1.0";
        let library = place.join("b").join(name);
        let soname = format!("-Wl,-soname,{name}");
        if !build(&[library.to_str().unwrap(), "-shared", &soname]) {
            eprintln!(
                "skipped a_libpython_is_searched_for_where_the_program_names_it: no C compiler"
            );
            return;
        }
        let link = ["-Wl,--no-as-needed", "-x", "none", library.to_str().unwrap()];
        let absolute = format!("-Wl,-rpath,{}/a:{}/b", place.display(), place.display());
        for (dialect, path) in [
            ("-Wl,--enable-new-dtags", "-Wl,-rpath,/nowhere:$ORIGIN/../b"),
            ("-Wl,--disable-new-dtags", absolute.as_str()),
        ] {
            assert!(build(&[&["bin/python", dialect, path], link.as_slice()].concat()));
            let found = likely_libpython(&place.join("bin/python"));
            assert_eq!(found.as_deref(), Some(library.as_path()), "{path}");
        }
        assert!(build(&[&["bin/python"], link.as_slice()].concat()));
        assert_eq!(likely_libpython(&place.join("bin/python")), None);
    }

    #[test]
    fn libpython_is_recognized_by_its_name() {
        for yes in ["libpython3.8.so.1.0", "libpython3.13t.so.1.0", "libpython3.9d.so"] {
            assert!(is_libpython(yes), "{yes}");
        }
        for no in
            ["libpython3.so", "libpython2.7.so.1.0", "libboost_python311.so", "libpython3.8.a"]
        {
            assert!(!is_libpython(no), "{no}");
        }
    }
}
