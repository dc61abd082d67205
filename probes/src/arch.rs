//! Code that depends on the processor of this machine; [`crate::Machine`] has the parts that depend on a file's
//! processor.

use std::ops::Range;

/// Debian's folder of libraries.
pub(crate) const DEBIAN_LIBRARIES: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu"
} else {
    "/usr/lib/x86_64-linux-gnu"
};

/// Addresses of user memory, from the default of vm.mmap_min_addr on.
pub(crate) const USER_ADDRESSES: Range<u64> = 0x1_0000..1 << USER_ADDRESS_BITS;

const USER_ADDRESS_BITS: u32 = if cfg!(target_arch = "aarch64") { 48 } else { 47 };
