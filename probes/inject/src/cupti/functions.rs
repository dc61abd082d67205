//! Names of CUDA functions, and the choice of recorded functions.

use super::api::CuptiApi;
use crate::process_ring::GpuRing;
use FunctionClass::{Chatter, Launch, Wait};
use gctrace_ring::ApiLayer::{Driver, Runtime};
use gctrace_ring::{ApiLayer, TextId};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// Purpose of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FunctionClass {
    /// Enqueues kernels: left out if only synchronization, copies and fills are wanted.
    Launch,
    /// Synchronizes, copies or fills.
    Wait,
    /// Called constantly, and enqueues nothing: never recorded.
    Chatter,
}

/// Functions by their ids in `cupti_runtime_cbid.h` and `cupti_driver_cbid.h` of CUPTI 12.4; ids
/// are never changed, only added. The names are for a CUPTI that does not report them.
const FUNCTIONS: [(ApiLayer, u32, FunctionClass, &str); 69] = [
    (Runtime, 211, Launch, "cudaLaunchKernel"),
    (Runtime, 214, Launch, "cudaLaunchKernel_ptsz"),
    (Runtime, 269, Launch, "cudaLaunchCooperativeKernel"),
    (Runtime, 270, Launch, "cudaLaunchCooperativeKernel_ptsz"),
    (Runtime, 311, Launch, "cudaGraphLaunch"),
    (Runtime, 312, Launch, "cudaGraphLaunch_ptsz"),
    (Runtime, 430, Launch, "cudaLaunchKernelExC"),
    (Runtime, 431, Launch, "cudaLaunchKernelExC_ptsz"),
    (Driver, 307, Launch, "cuLaunchKernel"),
    (Driver, 442, Launch, "cuLaunchKernel_ptsz"),
    (Driver, 477, Launch, "cuLaunchCooperativeKernel"),
    (Driver, 478, Launch, "cuLaunchCooperativeKernel_ptsz"),
    (Driver, 514, Launch, "cuGraphLaunch"),
    (Driver, 515, Launch, "cuGraphLaunch_ptsz"),
    (Driver, 652, Launch, "cuLaunchKernelEx"),
    (Driver, 653, Launch, "cuLaunchKernelEx_ptsz"),
    (Runtime, 31, Wait, "cudaMemcpy"),
    (Runtime, 41, Wait, "cudaMemcpyAsync"),
    (Runtime, 225, Wait, "cudaMemcpyAsync_ptsz"),
    (Runtime, 49, Wait, "cudaMemset"),
    (Runtime, 51, Wait, "cudaMemsetAsync"),
    (Runtime, 131, Wait, "cudaStreamSynchronize"),
    (Runtime, 239, Wait, "cudaStreamSynchronize_ptsz"),
    (Runtime, 137, Wait, "cudaEventSynchronize"),
    (Runtime, 165, Wait, "cudaDeviceSynchronize"),
    (Driver, 17, Wait, "cuCtxSynchronize"),
    (Driver, 121, Wait, "cuEventSynchronize"),
    (Driver, 126, Wait, "cuStreamSynchronize"),
    (Driver, 440, Wait, "cuStreamSynchronize_ptsz"),
    (Driver, 276, Wait, "cuMemcpyHtoD_v2"),
    (Driver, 277, Wait, "cuMemcpyHtoDAsync_v2"),
    (Driver, 278, Wait, "cuMemcpyDtoH_v2"),
    (Driver, 279, Wait, "cuMemcpyDtoHAsync_v2"),
    (Driver, 280, Wait, "cuMemcpyDtoD_v2"),
    (Driver, 281, Wait, "cuMemcpyDtoDAsync_v2"),
    (Driver, 305, Wait, "cuMemcpy"),
    (Driver, 306, Wait, "cuMemcpyAsync"),
    (Driver, 216, Wait, "cuMemsetD8Async"),
    (Driver, 220, Wait, "cuMemsetD32Async"),
    (Runtime, 3, Chatter, "cudaGetDeviceCount"),
    (Runtime, 10, Chatter, "cudaGetLastError"),
    (Runtime, 11, Chatter, "cudaPeekAtLastError"),
    (Runtime, 16, Chatter, "cudaSetDevice"),
    (Runtime, 17, Chatter, "cudaGetDevice"),
    (Runtime, 151, Chatter, "cudaPointerGetAttributes"),
    (Runtime, 200, Chatter, "cudaDeviceGetAttribute"),
    (Runtime, 203, Chatter, "cudaStreamGetPriority"),
    (Runtime, 251, Chatter, "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"),
    (Runtime, 317, Chatter, "cudaStreamIsCapturing"),
    (Runtime, 318, Chatter, "cudaStreamIsCapturing_ptsz"),
    (Runtime, 327, Chatter, "cudaThreadExchangeStreamCaptureMode"),
    (Runtime, 409, Chatter, "cudaStreamGetCaptureInfo_v2"),
    (Driver, 4, Chatter, "cuDeviceGetCount"),
    (Driver, 9, Chatter, "cuDeviceGetAttribute"),
    (Driver, 16, Chatter, "cuCtxGetDevice"),
    (Driver, 303, Chatter, "cuCtxSetCurrent"),
    (Driver, 304, Chatter, "cuCtxGetCurrent"),
    (Driver, 310, Chatter, "cuPointerGetAttribute"),
    (Driver, 323, Chatter, "cuCtxPushCurrent_v2"),
    (Driver, 324, Chatter, "cuCtxPopCurrent_v2"),
    (Driver, 392, Chatter, "cuDevicePrimaryCtxGetState"),
    (Driver, 450, Chatter, "cuPointerGetAttributes"),
    (Driver, 451, Chatter, "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"),
    (Driver, 499, Chatter, "cuStreamIsCapturing"),
    (Driver, 541, Chatter, "cuThreadExchangeStreamCaptureMode"),
    (Driver, 626, Chatter, "cuGetProcAddress"),
    (Driver, 629, Chatter, "cuStreamGetCaptureInfo_v2"),
    (Driver, 677, Chatter, "cuGetProcAddress_v2"),
    (Driver, 683, Chatter, "cuKernelGetFunction"),
];

/// Number of ids remembered: CUPTI 13 has some 800 per layer.
const REMEMBERED: usize = 1024;

/// Flag: the entry is set.
const KNOWN: u64 = 1 << 32;
/// Flag: calls of the function are recorded.
const WANTED: u64 = 1 << 33;

/// Known functions, by layer and id: the number of their text in the ring, and the flags above.
pub(super) struct FunctionClasses {
    entries: [[AtomicU64; REMEMBERED]; 2],
    only_waits: bool,
}

impl FunctionClasses {
    pub(super) const fn new(only_waits: bool) -> Self {
        Self { entries: [const { [const { AtomicU64::new(0) }; REMEMBERED] }; 2], only_waits }
    }

    /// The name of a function in the ring; `None` if its calls are not wanted.
    pub(super) fn wanted(
        &self,
        layer: ApiLayer,
        function: u32,
        api: &CuptiApi,
        ring: &GpuRing,
    ) -> Option<TextId> {
        let entry = self.entries[layer as usize - 1].get(function as usize);
        let mut value = if let Some(entry) = entry { entry.load(Ordering::Relaxed) } else { 0 };
        if value & KNOWN == 0 {
            value = self.look_up(layer, function, api, ring);
            if let Some(entry) = entry {
                entry.store(value, Ordering::Relaxed);
            }
        }
        if value & WANTED != 0 { Some(value as TextId) } else { None }
    }

    fn look_up(&self, layer: ApiLayer, function: u32, api: &CuptiApi, ring: &GpuRing) -> u64 {
        let name = name(layer, function, api);
        if !is_wanted(layer, function, &name, self.only_waits) {
            return KNOWN;
        }
        let text = ring.text(&name);
        // A ring that is full now may have room later.
        let known = if text == gctrace_ring::NO_TEXT { 0 } else { KNOWN };
        u64::from(text) | WANTED | known
    }

    /// Makes CUPTI itself leave out unwanted functions, if it can.
    pub(super) fn mute(&self, api: &CuptiApi) {
        for (layer, function, class, _) in FUNCTIONS {
            let is_muted = class == Chatter || (class == Launch && self.only_waits);
            let enable = match layer {
                Driver => api.enable_driver_api,
                Runtime => api.enable_runtime_api,
            };
            if is_muted && let Some(enable) = enable {
                // Left out here if CUPTI does not.
                let _ = enable(function, 0);
            }
        }
    }
}

fn is_wanted(layer: ApiLayer, function: u32, name: &str, only_waits: bool) -> bool {
    let mut known = FUNCTIONS.iter();
    let known = known.find(|known| (known.0, known.1) == (layer, function));
    match known.map(|known| known.2) {
        Some(Chatter) => false,
        Some(Launch) => !only_waits,
        Some(Wait) => true,
        None => {
            let waits = [
                "Synchronize",
                "Memcpy",
                "Memset",
                "LaunchHostFunc",
                "cuda_runtime#",
                "cuda_driver#",
            ];
            !only_waits || waits.iter().any(|part| name.contains(part))
        }
    }
}

/// The exported name of a function; `cuda_runtime#N` or `cuda_driver#N` if unknown.
fn name(layer: ApiLayer, function: u32, api: &CuptiApi) -> Cow<'static, str> {
    // `CUPTI_CB_DOMAIN_DRIVER_API` is 1, `_RUNTIME_API` 2: as the layers here.
    if let Some(name) = api.callback_name(layer as u32, function) {
        return Cow::Borrowed(exported(layer, name));
    }
    let mut known = FUNCTIONS.iter();
    let known = known.find(|known| (known.0, known.1) == (layer, function));
    match (known, layer) {
        (Some((_, _, _, name)), _) => Cow::Borrowed(name),
        (None, Driver) => Cow::Owned(format!("cuda_driver#{function}")),
        (None, Runtime) => Cow::Owned(format!("cuda_runtime#{function}")),
    }
}

/// Runtime enumerators carry the CUDA version that introduced the function.
fn exported(layer: ApiLayer, enumerator: &str) -> &str {
    match (layer, enumerator.rsplit_once("_v")) {
        (Runtime, Some((name, version)))
            if version.len() >= 4 && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            name
        }
        _ => enumerator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_stripped_from_functions_of_the_runtime() {
        for (layer, enumerator, name) in [
            (Runtime, "cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            (Runtime, "cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel_ptsz"),
            (Runtime, "cudaGetDeviceProperties_v2_v12000", "cudaGetDeviceProperties_v2"),
            (Driver, "cuMemAlloc_v2", "cuMemAlloc_v2"),
        ] {
            assert_eq!(exported(layer, enumerator), name);
        }
    }

    #[test]
    fn launches_are_dropped_if_only_waits_are_wanted() {
        assert!(is_wanted(Runtime, 211, "cudaLaunchKernel", false));
        assert!(!is_wanted(Runtime, 211, "cudaLaunchKernel", true));
        assert!(is_wanted(Driver, 126, "cuStreamSynchronize", true));
        assert!(is_wanted(Runtime, 32, "cudaMemcpy2D", true));
        assert!(is_wanted(Runtime, 284, "cudaLaunchHostFunc", true));
        assert!(!is_wanted(Runtime, 20, "cudaMalloc", true));
        assert!(!is_wanted(Runtime, 17, "cudaGetDevice", false));
    }

    #[test]
    fn numbers_are_unique() {
        for (at, one) in FUNCTIONS.iter().enumerate() {
            assert!(FUNCTIONS[..at].iter().all(|other| (other.0, other.1) != (one.0, one.1)));
        }
    }
}
