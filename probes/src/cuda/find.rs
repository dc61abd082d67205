//! Finds files that may contain CUDA, NCCL or torch functions: before a program maps them, and
//! after.

use super::CudaLibrary;
use crate::arch::DEBIAN_LIBRARIES;
use crate::elf::open_file;
use crate::proc_status::ProcessError;
use crate::{maps, proc_status};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// A file that may contain such functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaFile {
    /// The library, judged by its file name.
    pub library: CudaLibrary,
    /// Path as seen by the process.
    pub path: PathBuf,
    /// The same file as a path that this process can open.
    pub openable: PathBuf,
    /// Device and inode, as reported by `stat`.
    pub identity: (u64, u64),
}

/// Where drivers are installed, or mounted into containers, in addition to the loader's cache.
const DRIVER_FOLDERS: [&str; 7] = [
    DEBIAN_LIBRARIES,
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/run/opengl-driver/lib",
];

/// Maximum number of entries read per library folder.
const MAX_ENTRIES: usize = 20_000;
/// Most bytes of the loader's cache that are read: usual are some 100 kB.
const LARGEST_CACHE: u64 = 16 << 20;

/// Libraries that a process has mapped, each file once.
///
/// # Errors
/// If the process is gone, or its memory map may not be read.
pub fn mapped(pid: u32) -> Result<Vec<CudaFile>, ProcessError> {
    let mut seen = HashSet::new();
    let mappings = maps::mappings(pid)?.into_iter().filter_map(|mapping| {
        let name = mapping.path.file_name()?.to_str()?;
        Some((CudaLibrary::of_file_name(name)?, mapping))
    });
    Ok(mappings
        .filter(|(_, mapping)| seen.insert((mapping.device, mapping.inode)))
        .filter_map(|(library, mapping)| {
            let openable = maps::openable(pid, &mapping);
            Some(CudaFile { library, identity: identity(&openable)?, path: mapping.path, openable })
        })
        .collect())
}

/// The environment variables that say where libraries are.
const VARIABLES: [&str; 5] = ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "LD_LIBRARY_PATH"];

/// Where a process is likely to find its libraries. Two that are equal find the same files, as long as
/// none is installed in between.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CudaSearch {
    /// Device and inode of the process's root.
    root: (u64, u64),
    working: PathBuf,
    typed: Option<String>,
    program: Option<PathBuf>,
    environment: [Option<OsString>; VARIABLES.len()],
}

impl CudaSearch {
    /// Asks a process.
    ///
    /// # Errors
    /// If the process is gone or may not be inspected.
    pub fn of(pid: u32) -> Result<Self, ProcessError> {
        let mut environment = proc_status::environment(pid)?;
        let root = std::fs::metadata(proc_status::root(pid));
        Ok(Self {
            root: root.map_or((0, u64::from(pid)), |root| (root.dev(), root.ino())),
            working: proc_status::working_directory(pid)?,
            typed: proc_status::command_line(pid)?.into_iter().next(),
            program: proc_status::executable(pid).ok(),
            environment: VARIABLES.map(|name| environment.remove(OsStr::new(name))),
        })
    }

    /// The libraries that `pid` is likely to map; this search must be for that process. Finds libraries in its
    /// interpreter's environment and in its `LD_LIBRARY_PATH`, and the driver known to the loader. Each file once.
    #[must_use]
    pub fn files(&self, pid: u32) -> Vec<CudaFile> {
        let view = ProcessRoot { root: proc_status::root(pid), working: self.working.clone() };
        let variables = VARIABLES.iter().zip(&self.environment);
        let environment = variables
            .filter_map(|(name, value)| Some((OsString::from(name), value.clone()?)))
            .collect();
        let typed = self.typed.as_ref().map(OsStr::new);
        let files = view.likely(typed, self.program.as_deref(), &environment, of_cuda);
        view.identified(files)
    }
}

/// Libraries that a command is likely to map, before it is started in this process's working
/// directory: `typed` is the program's name as given, `program` the file it resolves to. Each file
/// once.
pub fn before_start(
    typed: &OsStr,
    program: Option<&Path>,
    environment: &HashMap<OsString, OsString>,
) -> Vec<CudaFile> {
    let view = ProcessRoot::own();
    let files = view.likely(Some(typed), program, environment, of_cuda);
    view.identified(files)
}

/// CUPTI libraries that such a command is likely to find.
pub fn cupti_before_start(
    typed: &OsStr,
    program: Option<&Path>,
    environment: &HashMap<OsString, OsString>,
) -> Vec<PathBuf> {
    let of_cupti = |name: &str| name.starts_with("libcupti.so");
    let mut files = ProcessRoot::own().likely(Some(typed), program, environment, of_cupti);
    files.sort();
    files.dedup();
    files
}

fn of_cuda(name: &str) -> bool {
    CudaLibrary::of_file_name(name).is_some()
}

/// Roots of an interpreter's environment: around the program as given (in a virtual environment a
/// link), around the file it resolves to, and from environment variables.
fn prefixes(
    view: &ProcessRoot,
    typed: Option<&OsStr>,
    program: Option<&Path>,
    environment: &HashMap<OsString, OsString>,
) -> Vec<PathBuf> {
    let variable = |name: &str| environment.get(OsStr::new(name));
    let mut programs = Vec::new();
    if let Some(typed) = typed {
        if typed.as_bytes().contains(&b'/') {
            programs.push(view.absolute(Path::new(typed)));
        } else if let Some(path) = variable("PATH") {
            programs.extend(std::env::split_paths(path).map(|folder| folder.join(typed)));
            programs.retain(|program| view.exists(program));
            programs.truncate(1);
        }
    }
    programs.extend(program.map(Path::to_owned));
    let mut prefixes: Vec<PathBuf> = programs
        .iter()
        .filter_map(|program| Some(program.parent()?.parent()?.to_owned()))
        .collect();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        prefixes.extend(variable(name).map(PathBuf::from));
    }
    prefixes.extend(variable("HOME").map(|home| Path::new(home).join(".local")));
    prefixes.push(PathBuf::from("/usr/local"));
    let mut seen = HashSet::new();
    prefixes.retain(|prefix| seen.insert(prefix.clone()));
    prefixes
}

/// Folders in `LD_LIBRARY_PATH`.
fn search_path(environment: &HashMap<OsString, OsString>) -> Vec<PathBuf> {
    let Some(path) = environment.get(OsStr::new("LD_LIBRARY_PATH")) else { return Vec::new() };
    // ld.so(8): separated by colons or semicolons; an empty entry is the working directory.
    path.as_bytes()
        .split(|byte| matches!(byte, b':' | b';'))
        .map(|folder| PathBuf::from(OsStr::from_bytes(folder)))
        .collect()
}

/// The file system as seen by a process.
struct ProcessRoot {
    root: PathBuf,
    working: PathBuf,
}

impl ProcessRoot {
    /// The file system as seen by gctrace itself.
    fn own() -> Self {
        Self { root: PathBuf::from("/"), working: std::env::current_dir().unwrap_or_default() }
    }

    /// Paths of libraries with wanted names, as seen by the process.
    fn likely(
        &self,
        typed: Option<&OsStr>,
        program: Option<&Path>,
        environment: &HashMap<OsString, OsString>,
        wanted: fn(&str) -> bool,
    ) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for prefix in prefixes(self, typed, program, environment) {
            folders.extend(self.folders_of(&prefix));
        }
        folders.extend(search_path(environment));
        folders.extend(DRIVER_FOLDERS.map(PathBuf::from));
        let mut files = self.loader_cache(wanted);
        let mut looked = HashSet::new();
        for folder in folders {
            if looked.insert(folder.clone()) {
                files.extend(self.libraries_in(&folder, wanted));
            }
        }
        files
    }

    /// Makes a path of the process absolute, still as seen by the process.
    fn absolute(&self, path: &Path) -> PathBuf {
        self.working.join(path)
    }

    /// Translates a path of the process to a path that we can open. Absolute links would leave its root, so links are
    /// resolved by hand.
    fn open(&self, path: &Path) -> PathBuf {
        let mut inside = self.absolute(path);
        /// Maximum number of links the kernel follows (include/linux/namei.h, MAXSYMLINKS).
        const MAX_LINKS: usize = 40;
        for _ in 0..MAX_LINKS {
            match self.first_link(&inside) {
                Some(followed) => inside = followed,
                None => break,
            }
        }
        self.below_root(&inside)
    }

    fn below_root(&self, inside: &Path) -> PathBuf {
        let normal = inside.components().filter(|part| !matches!(part, Component::RootDir));
        self.root.join(normal.collect::<PathBuf>())
    }

    /// The path with its first symbolic link replaced by the link's target.
    fn first_link(&self, inside: &Path) -> Option<PathBuf> {
        let mut walked = PathBuf::from("/");
        let mut parts = inside.components();
        while let Some(part) = parts.next() {
            match part {
                Component::Normal(name) => walked.push(name),
                Component::ParentDir => {
                    walked.pop();
                }
                _ => {}
            }
            if let Ok(target) = std::fs::read_link(self.below_root(&walked)) {
                let folder = walked.parent().unwrap_or(Path::new("/"));
                return Some(folder.join(target).join(parts.as_path()));
            }
        }
        None
    }

    fn exists(&self, path: &Path) -> bool {
        self.open(path).exists()
    }

    /// Names in a folder; empty if it cannot be read.
    fn names(&self, folder: &Path) -> Vec<OsString> {
        let Ok(entries) = std::fs::read_dir(self.open(folder)) else { return Vec::new() };
        entries.take(MAX_ENTRIES).filter_map(|entry| Some(entry.ok()?.file_name())).collect()
    }

    /// Library folders in an environment: conda's, and pip packages'.
    fn folders_of(&self, prefix: &Path) -> Vec<PathBuf> {
        let mut folders = vec![prefix.join("lib")];
        for lib in ["lib", "lib64"] {
            let lib = prefix.join(lib);
            for python in self.names(&lib) {
                if python.as_bytes().starts_with(b"python3") {
                    for packages in ["site-packages", "dist-packages"] {
                        folders.extend(self.folders_of_packages(&lib.join(&python).join(packages)));
                    }
                }
            }
        }
        folders
    }

    /// `nvidia/cuda_runtime/lib` of the wheels for CUDA 11 and 12, `nvidia/cu13/lib` of the wheels for 13, and torch.
    fn folders_of_packages(&self, packages: &Path) -> Vec<PathBuf> {
        let nvidia = packages.join("nvidia");
        let parts = self.names(&nvidia).into_iter();
        parts
            .map(|part| nvidia.join(part).join("lib"))
            .chain([packages.join("torch").join("lib")])
            .collect()
    }

    fn libraries_in(&self, folder: &Path, wanted: fn(&str) -> bool) -> Vec<PathBuf> {
        self.names(folder)
            .into_iter()
            .filter(|name| name.to_str().is_some_and(wanted))
            .map(|name| self.absolute(folder).join(name))
            .collect()
    }

    /// Paths in the loader's cache. The file is a table followed by NUL-terminated strings
    /// (ldconfig(8), glibc's `cache.h`).
    fn loader_cache(&self, wanted: fn(&str) -> bool) -> Vec<PathBuf> {
        let mut bytes = Vec::new();
        if let Ok(file) = open_file(&self.open(Path::new("/etc/ld.so.cache"))) {
            // An unreadable cache names nothing.
            let _ignored = file.take(LARGEST_CACHE).read_to_end(&mut bytes);
        }
        let mut libraries = Vec::new();
        for text in bytes.split(|byte| *byte == 0) {
            let path = Path::new(OsStr::from_bytes(text));
            let name = path.file_name().map(OsStr::to_str);
            if text.starts_with(b"/") && matches!(name, Some(Some(name)) if wanted(name)) {
                libraries.push(path.to_owned());
            }
        }
        libraries
    }

    /// Deduplicates by file, whatever its names.
    fn identified(&self, files: Vec<PathBuf>) -> Vec<CudaFile> {
        let mut seen = HashSet::new();
        files
            .into_iter()
            .filter_map(|path| {
                let openable = self.open(&path);
                let library = CudaLibrary::of_file_name(path.file_name()?.to_str()?)?;
                let identity = identity(&openable)?;
                seen.insert(identity).then_some(CudaFile { library, path, openable, identity })
            })
            .collect()
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_file() { Some((metadata.dev(), metadata.ino())) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::CudaLayer;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn file(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, path.to_str().unwrap()).unwrap();
    }

    fn found(
        root: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Vec<(CudaLibrary, String)> {
        let view = ProcessRoot { root: root.to_owned(), working: PathBuf::from("/opt") };
        let environment: HashMap<_, _> = variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect();
        let typed = arguments.first().map(OsStr::new);
        let mut files = view.loader_cache(of_cuda);
        for prefix in prefixes(&view, typed, None, &environment) {
            for folder in view.folders_of(&prefix) {
                files.extend(view.libraries_in(&folder, of_cuda));
            }
        }
        for folder in search_path(&environment) {
            files.extend(view.libraries_in(&folder, of_cuda));
        }
        view.identified(files)
            .into_iter()
            .map(|file| (file.library, file.path.to_str().unwrap().to_owned()))
            .collect()
    }

    #[test]
    fn a_virtual_environment_in_a_container_is_searched() {
        let root = tempfile::tempdir().unwrap();
        let packages = "venv/lib/python3.11/site-packages";
        let at = |path: &str| root.path().join(path);
        file(&at("venv/bin/python"));
        file(&at(&format!("{packages}/nvidia/cuda_runtime/lib/libcudart.so.12")));
        file(&at(&format!("{packages}/nvidia/cu13/lib/libcudart.so.13")));
        file(&at(&format!("{packages}/torch/lib/libtorch_cpu.so")));
        file(&at("real/libcuda.so.550.1"));
        file(&at("opt/own/libnccl.so.2"));
        fs::create_dir_all(at("drivers")).unwrap();
        // Absolute inside the container: followed from outside, it leads out of it.
        symlink("/real/libcuda.so.550.1", at("drivers/libcuda.so.1")).unwrap();
        file(&at("etc/ld.so.cache"));
        fs::write(
            at("etc/ld.so.cache"),
            b"glibc-ld.so.cache1.1\0libcuda.so.1\0/drivers/libcuda.so.1\0libc.so.6\0/lib/libc.so.6\0",
        )
        .unwrap();
        let path = [("PATH", "/none:/venv/bin"), ("LD_LIBRARY_PATH", "own")];
        let mut libraries = found(root.path(), &["python"], &path);
        libraries.sort_by(|a, b| a.1.cmp(&b.1));
        let expected = [
            (CudaLibrary::Cuda(CudaLayer::Driver), "/drivers/libcuda.so.1".to_owned()),
            (
                CudaLibrary::Cuda(CudaLayer::Runtime),
                format!("/{packages}/nvidia/cu13/lib/libcudart.so.13"),
            ),
            (
                CudaLibrary::Cuda(CudaLayer::Runtime),
                format!("/{packages}/nvidia/cuda_runtime/lib/libcudart.so.12"),
            ),
            (CudaLibrary::TorchAutograd, format!("/{packages}/torch/lib/libtorch_cpu.so")),
            (CudaLibrary::Cuda(CudaLayer::Nccl), "/opt/own/libnccl.so.2".to_owned()),
        ];
        let mut expected = expected.to_vec();
        expected.sort_by(|a, b| a.1.cmp(&b.1));
        assert_eq!(libraries, expected);
    }

    #[test]
    fn a_cycle_of_links_terminates() {
        let root = tempfile::tempdir().unwrap();
        symlink("/b", root.path().join("a")).unwrap();
        symlink("/a", root.path().join("b")).unwrap();
        let view = ProcessRoot { root: root.path().to_owned(), working: PathBuf::from("/") };
        assert!(!view.exists(Path::new("/a/x")));
    }
}
