//! Kernel tier: this kernel's verifier takes every program, whatever is switched on in it.

use gctrace_ebpf::AllocationPrograms;
use gctrace_ebpf::AttachMethod;
use gctrace_ebpf::BpfSession;
use gctrace_ebpf::CounterSet;
use gctrace_ebpf::CudaPrograms;
use gctrace_ebpf::KernelSupport;
use gctrace_ebpf::MAX_STACK_DEPTH;
use gctrace_ebpf::SessionConfig;
use gctrace_event::Counter;

const RING_BYTES: u32 = 1 << 20;

/// Switches cut parts out of the programs: everything, nothing, and what is recorded by default.
fn configurations() -> [SessionConfig; 3] {
    let config = |follow_children, stack_depth, counters| SessionConfig {
        follow_children,
        ring_bytes: RING_BYTES,
        stack_depth,
        counters,
    };
    [
        config(true, MAX_STACK_DEPTH, CounterSet::new(Counter::ALL)),
        config(false, 0, CounterSet::default()),
        config(true, 16, CounterSet::new([Counter::PageFaults])),
    ]
}

#[test]
fn the_verifier_takes_every_program() {
    let support = KernelSupport::probe();
    if !support.permitted || !support.missing().is_empty() {
        eprintln!(
            "skipped the_verifier_takes_every_program: recording needs root and a kernel with BPF ({support:?})"
        );
        return;
    }
    for config in configurations() {
        let mut session = BpfSession::open(config, &support).expect("gctrace.bpf.c");
        session.count_arenas().expect("tracepoints of system calls");
        let shared = session.shared_maps().expect("shared maps");
        CudaPrograms::load(&session, RING_BYTES).expect("cuda.bpf.c");
        if support.attach() == AttachMethod::Multi {
            AllocationPrograms::load(&shared, config.stack_depth).expect("alloc.bpf.c");
        }
    }
}
