//! Kernel tier: this kernel's verifier accepts every program, whatever is enabled in it.

use gctrace_ebpf::{
    AllocationPrograms, AttachMethod, BpfSession, CounterSet, CudaPrograms, GarbagePrograms,
    KernelSupport, MAX_STACK_DEPTH, SamplePrograms, SessionConfig,
};
use gctrace_event::Counter;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

const RING_BYTES: u32 = 1 << 20;

/// Options that enable parts of the programs: everything, nothing, and the default.
fn configurations() -> [SessionConfig; 3] {
    let config = |follow_children, stack_depth, counters| SessionConfig {
        follow_children,
        ring_bytes: RING_BYTES,
        stack_depth,
        counters,
        samples: true,
    };
    [
        config(true, MAX_STACK_DEPTH, CounterSet::new(Counter::ALL.iter().copied())),
        config(false, 0, CounterSet::default()),
        config(true, 16, CounterSet::new([Counter::PageFaults])),
    ]
}

/// Loads (`add %gs:..., %r9`) at the start of a program on a private stack
/// (`arch/x86/net/bpf_jit_comp.c`).
const PRIVATE_STACK: [u8; 5] = [0x65, 0x4c, 0x03, 0x0c, 0x25];

/// Probe programs stay on the stack of their thread: the kernel's private stacks are per CPU, and
/// it runs these programs preemptible.
fn none_has_a_private_stack() {
    let options = ProgInfoQueryOptions::default().include_jited_prog_insns(true);
    let mut seen = 0;
    for program in ProgInfoIter::with_query_opts(options) {
        let name = program.name.to_string_lossy().into_owned();
        if name.starts_with("at_") {
            seen += 1;
            let code = program.jited_prog_insns;
            assert!(!code.is_empty(), "{name} is not compiled");
            let has_one = code.windows(PRIVATE_STACK.len()).any(|at| at == PRIVATE_STACK);
            assert!(!has_one, "{name} has a private stack");
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn the_verifier_accepts_every_program() {
    let support = KernelSupport::probe();
    if !support.permitted || !support.missing().is_empty() {
        eprintln!(
            "skipped the_verifier_accepts_every_program: recording needs root and a kernel with BPF ({support:?})"
        );
        return;
    }
    for config in configurations() {
        let mut session = BpfSession::open(config, &support).expect("gctrace.bpf.c");
        session.count_arenas().expect("tracepoints of system calls");
        let shared = session.shared_maps().expect("shared maps");
        let _cuda = CudaPrograms::load(&session, RING_BYTES).expect("cuda.bpf.c");
        let _allocations = (support.attach() != AttachMethod::Single)
            .then(|| AllocationPrograms::load(&shared, config.stack_depth).expect("alloc.bpf.c"));
        let _garbage =
            support.loops.then(|| GarbagePrograms::load(&session, 0.01).expect("garbage.bpf.c"));
        none_has_a_private_stack();
        // Its programs for clocks and tracepoints may have one: nothing preempts them.
        let _samples = SamplePrograms::load(&session, config.stack_depth).expect("sample.bpf.c");
    }
}
