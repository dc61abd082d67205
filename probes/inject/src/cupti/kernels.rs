//! Names of kernels: CUPTI's memory, read as soon as a record that points there arrives.

use crate::process_ring::ProcessRing;
use gctrace_ring::{NO_TEXT, TextId};
use std::collections::HashMap;
use std::ffi::{CStr, c_char};

/// Names of one buffer, by address: in the next buffer the same address may have another name.
#[derive(Default)]
pub(super) struct KernelNames(HashMap<u64, TextId>);

impl KernelNames {
    /// The text number of the name at an address; address 0 is no name.
    ///
    /// # Safety
    /// The address is 0 or a C string's.
    pub(super) unsafe fn text(&mut self, address: u64, ring: &ProcessRing) -> TextId {
        if address == 0 {
            return NO_TEXT;
        }
        if let Some(known) = self.0.get(&address) {
            return *known;
        }
        let pointer = std::ptr::with_exposed_provenance::<c_char>(address as usize);
        // SAFETY: as the caller promises.
        let name = unsafe { CStr::from_ptr(pointer) };
        let text = ring.text(&name.to_string_lossy());
        self.0.insert(address, text);
        text
    }
}
