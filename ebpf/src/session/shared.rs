//! The session's maps, for the programs of other objects.

use super::BpfSession;
use crate::error::Error;
use crate::support::AttachMethod;
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{MapCore as _, MapHandle, OpenObject};
use std::os::fd::AsFd as _;

/// The maps declared by `maps.bpf.h`, `stack.bpf.h`, `thread.bpf.h` and `sampled_thread.bpf.h`, in each object that
/// includes them.
const SHARED: [&str; 12] = [
    "points",
    "layouts",
    "followed",
    "stopped",
    "known_files",
    "pause_ring",
    "process_ring",
    "counters",
    "seen_stacks",
    "seen_codes",
    "threads",
    "sampled_threads",
];

/// Handles of the maps that objects share; can be sent to another thread.
#[derive(Debug)]
pub struct SharedMaps {
    handles: Vec<MapHandle>,
    /// How probes are attached on this kernel.
    pub(crate) attach: AttachMethod,
    /// Whether links can be limited to one process.
    pub(crate) filters_processes: bool,
}

impl BpfSession {
    /// Handles of the maps that another object should use instead of its own.
    ///
    /// # Errors
    /// [`Error::Map`] if a descriptor cannot be duplicated.
    pub fn shared_maps(&self) -> Result<SharedMaps, Error> {
        let shared = self.skeleton.object().maps().filter(|map| {
            let name = map.name().to_str().unwrap_or_default();
            SHARED.contains(&name)
        });
        let handles = shared.map(|map| MapHandle::try_from(&map)).collect::<Result<_, _>>();
        handles
            .map(|handles| SharedMaps {
                handles,
                attach: self.method,
                filters_processes: self.filters_processes,
            })
            .map_err(|source| Error::Map { map: "pause_ring", source })
    }
}

impl BpfSession {
    /// How probes are attached on this kernel.
    pub(crate) fn attach_kind(&self) -> AttachMethod {
        self.method
    }
}

impl SharedMaps {
    /// Makes an object that is not loaded yet use these maps in place of its own of the same name.
    pub(crate) fn lend(&self, object: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in object.maps_mut() {
            if let Some(shared) = self.handles.iter().find(|shared| shared.name() == map.name()) {
                map.reuse_fd(shared.as_fd())?;
            }
        }
        Ok(())
    }
}
