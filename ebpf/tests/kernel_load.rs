//! Kernel tier: this kernel's verifier takes every program, whatever is switched on in it.

use gctrace_ebpf::Allocations;
use gctrace_ebpf::Attach;
use gctrace_ebpf::Config;
use gctrace_ebpf::CounterSet;
use gctrace_ebpf::Cuda;
use gctrace_ebpf::KernelSupport;
use gctrace_ebpf::MAX_STACK_DEPTH;
use gctrace_ebpf::Session;
use gctrace_event::Counter;

const RING_BYTES: u32 = 1 << 20;

/// Parts of the programs are cut out by switches: with everything, with nothing, and in between.
fn configurations() -> Vec<Config> {
    let counters = [
        CounterSet::default(),
        CounterSet::new([Counter::PageFaults]),
        CounterSet::new(Counter::ALL),
    ];
    let mut configurations = Vec::new();
    for counters in counters {
        for (stack_depth, follow_children) in [(0, true), (16, true), (MAX_STACK_DEPTH, false)] {
            configurations.push(Config {
                follow_children,
                ring_bytes: RING_BYTES,
                stack_depth,
                counters,
            });
        }
    }
    configurations
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
        let mut session = Session::open(config, &support).expect("gctrace.bpf.c");
        session.count_arenas().expect("tracepoints of system calls");
        let shared = session.shared_maps().expect("shared maps");
        Cuda::load(&session, RING_BYTES).expect("cuda.bpf.c");
        if support.attach() == Attach::Multi {
            Allocations::load(&shared, config.stack_depth).expect("alloc.bpf.c");
        }
        drop(session);
    }
}
