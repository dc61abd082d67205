//! Finds libcupti: the loaded library of the process, or the library of the program's CUDA. Never loads a second one.
//! Calls nothing in it.

use crate::recording::guarded;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Sonames, newest first: CUDA 13, 12 and 11.8 (each minor version of 11 had its own).
const SONAMES: [(&str, u32); 3] =
    [("libcupti.so.13", 13), ("libcupti.so.12", 12), ("libcupti.so.11.8", 11)];

/// An open library. Never closed.
pub(crate) struct CuptiLibrary {
    handle: *mut c_void,
    /// Path of the file, as the loader names it.
    pub(super) file: String,
}

impl CuptiLibrary {
    fn open(name: &str, flags: c_int) -> Option<Self> {
        let c_name = CString::new(name).ok()?;
        // SAFETY: a C string; libcupti's initializers run, as intended.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | flags) };
        if handle.is_null() { None } else { Some(Self { handle, file: name.to_owned() }) }
    }

    /// The address of a function; `None` if the library has none of that name.
    pub(crate) fn function(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if address.is_null() { None } else { Some(address) }
    }

    /// Finds the file by one of its functions, if it was opened by its soname.
    fn located(mut self) -> Self {
        let function = self.function(c"cuptiActivityEnable");
        if let Some(file) = function.and_then(file_of) {
            self.file = file;
        }
        self
    }
}

/// The file that contains an address.
pub(super) fn file_of(address: *mut c_void) -> Option<String> {
    // SAFETY: all zeroes are a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is writable.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own C string, of a library that is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(name.to_string_lossy().into_owned())
}

/// Files of libraries in the process with this name prefix.
fn mapped(prefix: &str) -> Vec<String> {
    struct CuptiSearch<'a> {
        prefix: &'a str,
        found: Vec<String>,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's structure, and the search below; both live during the call.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<CuptiSearch<'_>>()) };
        guarded(|| {
            if info.dlpi_name.is_null() {
                return;
            }
            // SAFETY: a C string owned by the loader.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            let path = Path::new(OsStr::from_bytes(name.to_bytes()));
            let Some(Some(file)) = path.file_name().map(OsStr::to_str) else { return };
            if file.starts_with(search.prefix) {
                search.found.push(name.to_string_lossy().into_owned());
            }
        });
        0
    }
    let mut search = CuptiSearch { prefix, found: Vec::new() };
    // SAFETY: `visit` has the required type and gets the data that it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// The driver, if it is in the process.
pub(crate) fn driver() -> Option<CuptiLibrary> {
    if crate::confined::is_noticed() {
        return None;
    }
    // By its path: for a bare name the loader would search all its folders.
    let files = mapped("libcuda.so");
    files.iter().find_map(|file| CuptiLibrary::open(file, libc::RTLD_NOLOAD))
}

/// Opens CUPTI, loading it if necessary; `None` if there is none.
pub(super) fn cupti() -> Option<CuptiLibrary> {
    let loaded = mapped("libcupti.so");
    if let Some(library) =
        loaded.iter().find_map(|file| CuptiLibrary::open(file, libc::RTLD_NOLOAD))
    {
        return Some(library);
    }
    // Under another path, or in another namespace of the loader.
    let by_name = SONAMES.iter().find_map(|(name, _)| CuptiLibrary::open(name, libc::RTLD_NOLOAD));
    by_name.map(CuptiLibrary::located).or_else(load)
}

/// The CUPTI of the mapped runtime, else the toolkit's, else the first that the loader finds.
fn load() -> Option<CuptiLibrary> {
    let near = mapped("libcudart").into_iter().flat_map(near_runtime);
    let beside = near.chain(toolkit()).flat_map(|folder| {
        let files = usable().map(move |name| folder.join(name));
        files.filter(|file| file.exists()).collect::<Vec<_>>()
    });
    let mut found = beside.filter_map(|file| CuptiLibrary::open(file.to_str()?, 0));
    found.next().or_else(|| {
        usable().find_map(|name| CuptiLibrary::open(name, 0).map(CuptiLibrary::located))
    })
}

/// Sonames of versions not newer than the driver: it could not serve newer versions.
fn usable() -> impl Iterator<Item = &'static str> {
    let newest = driver_major().unwrap_or(u32::MAX);
    let names = SONAMES.iter().filter(move |(_, major)| *major <= newest);
    names.map(|(name, _)| *name)
}

/// The CUDA version that the driver supports. `cuDriverGetVersion` needs no `cuInit`.
fn driver_major() -> Option<u32> {
    let address = driver()?.function(c"cuDriverGetVersion")?;
    // SAFETY: the type of this function in every version.
    let get_version =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_int) -> c_int>(address) };
    let mut version = 0;
    if get_version(&raw mut version) != 0 {
        return None;
    }
    u32::try_from(version / 1000).ok()
}

/// Where the packages and toolkits that contain a runtime have CUPTI.
fn near_runtime(runtime: String) -> Vec<PathBuf> {
    let Some(folder) = Path::new(&runtime).parent() else { return Vec::new() };
    vec![
        // nvidia/cu13/lib holds both.
        folder.to_owned(),
        // nvidia/cuda_runtime/lib -> nvidia/cuda_cupti/lib
        folder.join("../../cuda_cupti/lib"),
        // cuda-12.4/lib64 or cuda-12.4/targets/x86_64-linux/lib
        folder.join("../extras/CUPTI/lib64"),
        folder.join("../../../extras/CUPTI/lib64"),
    ]
}

fn toolkit() -> impl Iterator<Item = PathBuf> {
    let homes = [c"CUDA_HOME", c"CUDA_PATH"].into_iter().filter_map(|name| {
        // SAFETY: the value is copied at once; code that changes the environment while others read
        // it breaks the program without us.
        let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: a C string of the environment.
        let value = unsafe { CStr::from_ptr(value) };
        Some(PathBuf::from(OsStr::from_bytes(value.to_bytes())))
    });
    homes.map(|home| home.join("extras/CUPTI/lib64"))
}
