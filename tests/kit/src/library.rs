//! Where Cargo puts the injected library.

use std::fmt;
use std::path::PathBuf;

const LIBRARY: &str = "libgctrace_inject.so";

/// The library is not where Cargo would put it.
#[derive(Debug)]
pub struct NotBuilt {
    /// The program whose folder was searched.
    pub program: PathBuf,
}

impl fmt::Display for NotBuilt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "no {LIBRARY} next to this program ({}); build it with `cargo build -p gctrace-inject` or name it in GCTRACE_INJECT_LIBRARY",
            self.program.display()
        )
    }
}

impl std::error::Error for NotBuilt {}

/// The built library: `$GCTRACE_INJECT_LIBRARY`, else the newest next to this program, in its
/// `deps`, or in the folder above (tests are in `deps` themselves).
///
/// # Errors
/// [`NotBuilt`] if there is none.
pub fn find_library() -> Result<PathBuf, NotBuilt> {
    if let Some(named) = std::env::var_os("GCTRACE_INJECT_LIBRARY") {
        return Ok(PathBuf::from(named));
    }
    let program = std::env::current_exe().unwrap_or_default();
    let candidates = program.ancestors().skip(1).take(2).flat_map(|folder| {
        let folders = [folder.to_owned(), folder.join("deps")];
        folders.map(|folder| folder.join(LIBRARY))
    });
    // Cargo leaves old copies behind: the newest is the one of this build.
    candidates
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .ok_or(NotBuilt { program })
}
