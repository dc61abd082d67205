//! Sums over the CPUs of a per-CPU map.

use crate::error::Error;
use libbpf_rs::{MapCore, MapFlags};

/// The sum of one 64-bit number over all CPUs.
///
/// # Errors
/// [`Error::Map`].
pub(crate) fn sum(map: &impl MapCore, name: &'static str, index: u32) -> Result<u64, Error> {
    let per_cpu = map
        .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| Error::Map { map: name, source })?
        .unwrap_or_default();
    Ok(per_cpu
        .iter()
        .filter_map(|value| Some(u64::from_ne_bytes(value.as_slice().try_into().ok()?)))
        .sum())
}
