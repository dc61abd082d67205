//! Creates the folder of libraries that programs load.

use std::io;
use std::path::{Path, PathBuf};

/// The names under which the simulator can be loaded.
pub const NAMES: [&str; 7] = [
    "libcuda.so.1",
    "libcudart.so.12",
    "libcudart.so.13",
    "libnccl.so.2",
    "libnvidia-ml.so.1",
    "libcupti.so.12",
    "libcupti.so.13",
];

/// The file name of the library that Cargo builds.
const LIBRARY: &str = "libgctrace_simgpu.so";

/// The simulator's libraries could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The built library was not found.
    #[error(
        "no {LIBRARY} next to this program ({}); build it with `cargo build -p gctrace-simgpu` or name it in SIMGPU_LIBRARY",
        program.display()
    )]
    NotBuilt {
        /// The program that searched.
        program: PathBuf,
    },
    /// The built library could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The library.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file that failed.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The built library: `$SIMGPU_LIBRARY`, else next to this program, else one folder up (for tests,
/// which Cargo puts into `deps`), else in `../lib` of an installation.
///
/// # Errors
///
/// [`LayoutError::NotBuilt`] if there is none.
pub fn find_library() -> Result<PathBuf, LayoutError> {
    if let Some(named) = std::env::var_os("SIMGPU_LIBRARY") {
        return Ok(PathBuf::from(named));
    }
    let program = std::env::current_exe().unwrap_or_default();
    let candidates = program.ancestors().skip(1).take(2).flat_map(|folder| {
        let installed = folder.join("lib/gctrace");
        let folders = [folder.to_owned(), folder.join("deps"), folder.join("lib"), installed];
        folders.map(|folder| folder.join(LIBRARY))
    });
    // Cargo leaves old copies behind: the newest is the one of this build.
    candidates
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .ok_or(LayoutError::NotBuilt { program })
}

/// Copies `library` into `folder` as [`lay_out_contents`] does.
///
/// # Errors
///
/// [`LayoutError::Read`] or [`LayoutError::Write`] names the file that failed.
pub fn lay_out(library: &Path, folder: &Path) -> Result<(), LayoutError> {
    let contents = std::fs::read(library)
        .map_err(|source| LayoutError::Read { path: library.to_owned(), source })?;
    lay_out_contents(&contents, folder)
}

/// Writes the library's `contents` into `folder` under all of [`NAMES`]. Each name is a file of its
/// own, like the real libraries: links to one file would be one library to the loader and in
/// `/proc/<pid>/maps`. Existing files are replaced, not overwritten: processes that use them keep
/// theirs.
///
/// # Errors
///
/// [`LayoutError::Write`] names the file that could not be written.
pub fn lay_out_contents(contents: &[u8], folder: &Path) -> Result<(), LayoutError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LayoutError::Write { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    for name in NAMES {
        let target = folder.join(name);
        let fresh = folder.join(format!(".{name}.{}", std::process::id()));
        std::fs::write(&fresh, contents).map_err(failed(&fresh))?;
        std::fs::rename(&fresh, &target).map_err(failed(&target))?;
    }
    Ok(())
}
