//! libcuda: the functions that gctrace probes and those that a training loop needs.

pub(crate) mod context;
mod copy;
mod device;
mod event;
mod graph;
mod init;
pub(crate) mod launch;
mod memory;
mod stream;

pub(crate) use device::{NAME, bus_id, uuid};
pub(crate) use init::CUDA_VERSION;
