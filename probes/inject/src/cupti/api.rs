//! CUPTI's functions, resolved by name: no header, nothing linked. Defines required and optional functions; other
//! modules decide when to call them.
//!
//! Types are from `cupti_activity.h` and `cupti_callbacks.h` of CUPTI 11.8 - 13.0.

use super::find::CuptiLibrary;
use std::ffi::{CStr, c_char, c_void};

/// `CUptiResult`: 0 is success.
pub(super) type Code = i32;

/// `CUPTI_ERROR_NOT_INITIALIZED`: among other things, there is no driver.
pub(super) const NOT_INITIALIZED: Code = 15;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
pub(super) const MULTIPLE_SUBSCRIBERS: Code = 39;
/// `CUPTI_ERROR_UNKNOWN`: returned if the driver fails.
pub(super) const UNKNOWN: Code = 999;

/// `CUPTI_API_VERSION` of CUDA 11.8, the oldest with records that were checked.
const OLDEST: u32 = 18;

/// `CUpti_BuffersCallbackRequestFunc`.
pub(super) type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub(super) type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// `CUpti_TimestampCallbackFunc`.
pub(super) type Timestamp = extern "C" fn() -> u64;
/// `CUpti_CallbackFunc`.
pub(super) type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// The functions by their names.
macro_rules! functions {
    (
        needed { $($needed:ident: $needed_name:literal fn($($needed_type:ty),*);)* }
        optional { $($(#[$meta:meta])* $optional:ident: $optional_name:literal fn($($optional_type:ty),*);)* }
    ) => {
        /// An open CUPTI.
        pub(super) struct CuptiApi {
            $(pub(super) $needed: extern "C" fn($($needed_type),*) -> Code,)*
            $($(#[$meta])* pub(super) $optional: Option<extern "C" fn($($optional_type),*) -> Code>,)*
        }

        impl CuptiApi {
            /// Resolves all functions of a library.
            fn resolve(library: &CuptiLibrary) -> Result<Self, String> {
                Ok(Self {
                    $($needed: {
                        let address = library
                            .function($needed_name)
                            .ok_or_else(|| $needed_name.to_string_lossy().into_owned())?;
                        // SAFETY: CUPTI's function of this name has this type in all versions.
                        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($needed_type),*) -> Code>(address) }
                    },)*
                    $($optional: library.function($optional_name).map(|address| {
                        // SAFETY: CUPTI's function of this name has this type in all versions.
                        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($optional_type),*) -> Code>(address) }
                    }),)*
                })
            }
        }
    };
}

functions! {
    needed {
        subscribe: c"cuptiSubscribe" fn(*mut u64, Callback, *mut c_void);
        register_callbacks: c"cuptiActivityRegisterCallbacks" fn(Request, Complete);
        enable: c"cuptiActivityEnable" fn(u32);
        flush_all: c"cuptiActivityFlushAll" fn(u32);
        next_record: c"cuptiActivityGetNextRecord" fn(*mut u8, usize, *mut *mut u8);
    }
    optional {
        get_version: c"cuptiGetVersion" fn(*mut u32);
        get_timestamp: c"cuptiGetTimestamp" fn(*mut u64);
        /// Since CUDA 11.6.
        register_timestamp: c"cuptiActivityRegisterTimestampCallback" fn(Timestamp);
        unsubscribe: c"cuptiUnsubscribe" fn(u64);
        disable: c"cuptiActivityDisable" fn(u32);
        enable_callback: c"cuptiEnableCallback" fn(u32, u64, u32, u32);
        set_thread_id_type: c"cuptiSetThreadIdType" fn(u32);
        set_attribute: c"cuptiActivitySetAttribute" fn(u32, *mut usize, *mut c_void);
        dropped: c"cuptiActivityGetNumDroppedRecords" fn(*mut c_void, u32, *mut usize);
        /// Not in 12.4 and before.
        enable_driver_api: c"cuptiActivityEnableDriverApi" fn(u32, u8);
        /// As above.
        enable_runtime_api: c"cuptiActivityEnableRuntimeApi" fn(u32, u8);
        /// Works without a driver too.
        callback_name: c"cuptiGetCallbackName" fn(u32, u32, *mut *const c_char);
    }
}

impl CuptiApi {
    /// The functions of a CUPTI that is new enough.
    ///
    /// # Errors
    /// The missing function.
    pub(super) fn of(library: &CuptiLibrary) -> Result<Self, String> {
        let api = Self::resolve(library)?;
        match api.version() {
            // Without a driver the call may fail.
            0 | OLDEST.. => Ok(api),
            version => Err(format!(
                "the records of API version {OLDEST} (CUDA 11.8); it is of version {version}"
            )),
        }
    }

    /// `CUPTI_API_VERSION`: 18 in CUDA 11.8, 22 in 12.4, 130001 in 13.0; 0 if unavailable.
    pub(super) fn version(&self) -> u32 {
        let mut version = 0;
        let code = if let Some(get) = self.get_version { get(&raw mut version) } else { UNKNOWN };
        if code == 0 { version } else { 0 }
    }

    /// The name of a driver (domain 1) or runtime (2) function, as spelled by the enumerators of
    /// `cupti_runtime_cbid.h`: `cudaLaunchKernel_v7000`.
    pub(super) fn callback_name(&self, domain: u32, function: u32) -> Option<&'static str> {
        let mut name: *const c_char = std::ptr::null();
        let code = (self.callback_name?)(domain, function, &raw mut name);
        if code != 0 || name.is_null() {
            return None;
        }
        // SAFETY: a C string in constant data of the library; the library is never unloaded.
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }
}
