//! Measures the cost of a probe on a CUDA call on this machine: the real programs, on a function of
//! our own.

use super::{CallProbe, CudaPrograms};
use crate::calibrate::{Caches, ProbeTimes, TargetCalls, own_file_offset};
use crate::error::Error;
use crate::session::BpfSession;
use gctrace_abi::{BytesArgument, CallKind, GridArgument, StreamArgument};
use std::path::Path;

/// Time of the probes of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CudaCalibration {
    /// A call with its entry probed: a launch with its stream and grid.
    pub entry: ProbeTimes,
    /// A call with entry and return probed: a copy.
    pub both: ProbeTimes,
}

impl CudaPrograms {
    /// Measures the cost of the probes on this machine. Its events are discarded, and so is
    /// anything else still in the ring: call it last. Takes two grace periods of the kernel (about
    /// 35 ms each).
    ///
    /// # Errors
    /// If our own executable cannot be read or probed.
    pub fn calibrate(&mut self, session: &BpfSession) -> Result<CudaCalibration, Error> {
        let pid = std::process::id();
        let offset = own_file_offset()?;
        session.follow(pid)?;
        let result = self.measure(offset);
        session.unfollow(pid);
        result
    }

    fn measure(&mut self, offset: u64) -> Result<CudaCalibration, Error> {
        let file = Path::new("/proc/self/exe");
        let mut bench = TargetCalls::new();
        let launch = CallProbe {
            function: 0,
            kind: CallKind::Launch,
            entry: offset,
            on_return: false,
            returns: Vec::new(),
            encloses: false,
            stream: StreamArgument::Argument(9),
            bytes: BytesArgument::None,
            grid: GridArgument::Arguments,
        };
        let at_entry = self.attach(file, std::slice::from_ref(&launch))?;
        let entry = self.time(&mut bench)?;
        let copy = CallProbe {
            kind: CallKind::Copy,
            on_return: true,
            stream: StreamArgument::Argument(4),
            bytes: BytesArgument::Argument(3),
            grid: GridArgument::None,
            ..launch
        };
        // Two probes at one place share their trap: one at a time, and none is left for other
        // calibrations.
        drop(at_entry);
        let at_both = self.attach(file, std::slice::from_ref(&copy))?;
        let both = self.time(&mut bench)?;
        drop(at_both);
        Ok(CudaCalibration { entry, both })
    }

    /// Time of the current probes.
    fn time(&mut self, bench: &mut TargetCalls) -> Result<ProbeTimes, Error> {
        let warm_ns = bench.probes_ns(Caches::Warm, || self.poll().map(drop))?;
        let cold_ns = bench.probes_ns(Caches::Cold, || self.poll().map(drop))?;
        Ok(ProbeTimes::new(warm_ns, cold_ns))
    }
}
