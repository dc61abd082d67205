//! CUPTI's ids of the API functions (`cupti_driver_cbid.h`, `cupti_runtime_cbid.h` of CUPTI 12.4;
//! ids are never changed, only added). Functions without an id in CUPTI have none here.

/// The number of an exported function in its layer.
pub(super) fn callback_id(function: &str) -> Option<u32> {
    let found = IDS.binary_search_by_key(&function, |(name, ..)| name);
    found.ok().map(|index| IDS[index].1)
}

/// CUPTI's name of a function of the driver (`CUPTI_CB_DOMAIN_DRIVER_API`, 1) or the runtime (2),
/// with the CUDA version that introduced it.
pub(super) fn callback_name(domain: u32, id: u32) -> Option<String> {
    let is_runtime = match domain {
        1 => false,
        2 => true,
        _ => return None,
    };
    let mut of_domain = IDS.iter().filter(|(_, _, version)| (*version > 0) == is_runtime);
    let (name, _, version) = of_domain.find(|(_, known, _)| *known == id)?;
    Some(if is_runtime { format!("{name}_v{version}") } else { (*name).to_owned() })
}

/// Sorted by name; the last number is the CUDA version in the runtime's enumerators, 0 for the
/// driver's.
const IDS: [(&str, u32, u32); 150] = [
    ("cuCtxCreate_v2", 235, 0),
    ("cuCtxDestroy_v2", 322, 0),
    ("cuCtxGetApiVersion", 296, 0),
    ("cuCtxGetCurrent", 304, 0),
    ("cuCtxGetDevice", 16, 0),
    ("cuCtxPopCurrent_v2", 324, 0),
    ("cuCtxPushCurrent_v2", 323, 0),
    ("cuCtxSetCurrent", 303, 0),
    ("cuCtxSynchronize", 17, 0),
    ("cuDeviceGet", 3, 0),
    ("cuDeviceGetAttribute", 9, 0),
    ("cuDeviceGetCount", 4, 0),
    ("cuDeviceGetName", 5, 0),
    ("cuDeviceGetPCIBusId", 332, 0),
    ("cuDeviceGetUuid", 482, 0),
    ("cuDeviceGetUuid_v2", 647, 0),
    ("cuDevicePrimaryCtxGetState", 392, 0),
    ("cuDevicePrimaryCtxRelease_v2", 544, 0),
    ("cuDevicePrimaryCtxRetain", 386, 0),
    ("cuDevicePrimaryCtxSetFlags_v2", 546, 0),
    ("cuDeviceTotalMem_v2", 259, 0),
    ("cuDriverGetVersion", 2, 0),
    ("cuEventCreate", 118, 0),
    ("cuEventDestroy_v2", 325, 0),
    ("cuEventElapsedTime", 123, 0),
    ("cuEventQuery", 120, 0),
    ("cuEventRecord", 119, 0),
    ("cuEventRecordWithFlags", 587, 0),
    ("cuEventRecord_ptsz", 441, 0),
    ("cuEventSynchronize", 121, 0),
    ("cuGetErrorName", 373, 0),
    ("cuGetErrorString", 372, 0),
    ("cuGetProcAddress", 626, 0),
    ("cuGetProcAddress_v2", 677, 0),
    ("cuGraphDestroy", 517, 0),
    ("cuGraphExecDestroy", 516, 0),
    ("cuGraphInstantiateWithFlags", 643, 0),
    ("cuGraphLaunch", 514, 0),
    ("cuGraphLaunch_ptsz", 515, 0),
    ("cuInit", 1, 0),
    ("cuLaunchCooperativeKernel", 477, 0),
    ("cuLaunchCooperativeKernel_ptsz", 478, 0),
    ("cuLaunchKernel", 307, 0),
    ("cuLaunchKernelEx", 652, 0),
    ("cuLaunchKernelEx_ptsz", 653, 0),
    ("cuLaunchKernel_ptsz", 442, 0),
    ("cuMemAddressFree", 548, 0),
    ("cuMemAddressReserve", 547, 0),
    ("cuMemAllocAsync", 598, 0),
    ("cuMemAllocHost_v2", 294, 0),
    ("cuMemAlloc_v2", 243, 0),
    ("cuMemCreate", 549, 0),
    ("cuMemFreeAsync", 600, 0),
    ("cuMemFreeHost", 38, 0),
    ("cuMemFree_v2", 245, 0),
    ("cuMemGetInfo_v2", 242, 0),
    ("cuMemHostAlloc", 39, 0),
    ("cuMemMap", 551, 0),
    ("cuMemRelease", 550, 0),
    ("cuMemSetAccess", 553, 0),
    ("cuMemUnmap", 552, 0),
    ("cuMemcpy", 305, 0),
    ("cuMemcpyAsync", 306, 0),
    ("cuMemcpyAsync_ptsz", 418, 0),
    ("cuMemcpyDtoDAsync_v2", 281, 0),
    ("cuMemcpyDtoDAsync_v2_ptsz", 423, 0),
    ("cuMemcpyDtoD_v2", 280, 0),
    ("cuMemcpyDtoHAsync_v2", 279, 0),
    ("cuMemcpyDtoHAsync_v2_ptsz", 422, 0),
    ("cuMemcpyDtoH_v2", 278, 0),
    ("cuMemcpyHtoDAsync_v2", 277, 0),
    ("cuMemcpyHtoDAsync_v2_ptsz", 421, 0),
    ("cuMemcpyHtoD_v2", 276, 0),
    ("cuMemcpyPeerAsync", 319, 0),
    ("cuMemsetD16Async", 218, 0),
    ("cuMemsetD32Async", 220, 0),
    ("cuMemsetD32Async_ptsz", 430, 0),
    ("cuMemsetD32_v2", 251, 0),
    ("cuMemsetD8Async", 216, 0),
    ("cuMemsetD8Async_ptsz", 428, 0),
    ("cuMemsetD8_v2", 249, 0),
    ("cuModuleGetFunction", 23, 0),
    ("cuModuleLoad", 18, 0),
    ("cuModuleLoadData", 19, 0),
    ("cuModuleUnload", 22, 0),
    ("cuStreamBeginCapture_v2", 539, 0),
    ("cuStreamCreate", 124, 0),
    ("cuStreamCreateWithPriority", 367, 0),
    ("cuStreamDestroy_v2", 326, 0),
    ("cuStreamEndCapture", 497, 0),
    ("cuStreamIsCapturing", 499, 0),
    ("cuStreamQuery", 125, 0),
    ("cuStreamQuery_ptsz", 439, 0),
    ("cuStreamSynchronize", 126, 0),
    ("cuStreamSynchronize_ptsz", 440, 0),
    ("cuStreamWaitEvent", 295, 0),
    ("cuStreamWaitEvent_ptsz", 436, 0),
    ("cuThreadExchangeStreamCaptureMode", 541, 0),
    ("cudaDeviceSynchronize", 165, 3020),
    ("cudaDriverGetVersion", 1, 3020),
    ("cudaEventCreate", 133, 3020),
    ("cudaEventCreateWithFlags", 134, 3020),
    ("cudaEventDestroy", 136, 3020),
    ("cudaEventElapsedTime", 139, 3020),
    ("cudaEventQuery", 138, 3020),
    ("cudaEventRecord", 135, 3020),
    ("cudaEventRecordWithFlags", 370, 11010),
    ("cudaEventSynchronize", 137, 3020),
    ("cudaFree", 22, 3020),
    ("cudaFreeAsync", 375, 11020),
    ("cudaFreeHost", 26, 3020),
    ("cudaGetDevice", 17, 3020),
    ("cudaGetDeviceCount", 3, 3020),
    ("cudaGetErrorName", 209, 6050),
    ("cudaGetErrorString", 12, 3020),
    ("cudaGetLastError", 10, 3020),
    ("cudaGraphDestroy", 314, 10000),
    ("cudaGraphExecDestroy", 313, 10000),
    ("cudaGraphInstantiate", 443, 12000),
    ("cudaGraphLaunch", 311, 10000),
    ("cudaGraphLaunch_ptsz", 312, 10000),
    ("cudaHostAlloc", 27, 3020),
    ("cudaLaunchCooperativeKernel", 269, 9000),
    ("cudaLaunchKernel", 211, 7000),
    ("cudaLaunchKernelExC", 430, 11060),
    ("cudaLaunchKernelExC_ptsz", 431, 11060),
    ("cudaLaunchKernel_ptsz", 214, 7000),
    ("cudaMalloc", 20, 3020),
    ("cudaMallocAsync", 373, 11020),
    ("cudaMallocHost", 25, 3020),
    ("cudaMemGetInfo", 30, 3020),
    ("cudaMemcpy", 31, 3020),
    ("cudaMemcpyAsync", 41, 3020),
    ("cudaMemcpyAsync_ptsz", 225, 7000),
    ("cudaMemset", 49, 3020),
    ("cudaMemsetAsync", 51, 3020),
    ("cudaPeekAtLastError", 11, 3020),
    ("cudaRuntimeGetVersion", 2, 3020),
    ("cudaSetDevice", 16, 3020),
    ("cudaStreamBeginCapture", 315, 10000),
    ("cudaStreamCreate", 129, 3020),
    ("cudaStreamCreateWithFlags", 198, 5000),
    ("cudaStreamCreateWithPriority", 202, 5050),
    ("cudaStreamDestroy", 201, 5050),
    ("cudaStreamEndCapture", 319, 10000),
    ("cudaStreamIsCapturing", 317, 10000),
    ("cudaStreamQuery", 132, 3020),
    ("cudaStreamSynchronize", 131, 3020),
    ("cudaStreamSynchronize_ptsz", 239, 7000),
    ("cudaStreamWaitEvent", 147, 3020),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(IDS.is_sorted_by_key(|(name, ..)| *name));
        assert_eq!(callback_id("cuLaunchKernel"), Some(307));
        assert_eq!(callback_id("ncclAllReduce"), None);
        let reported = |domain, id| callback_name(domain, id).unwrap_or_default();
        assert_eq!(reported(1, 307), "cuLaunchKernel");
        assert_eq!(reported(2, 211), "cudaLaunchKernel_v7000");
        assert_eq!(callback_name(2, 307), None);
    }
}
