//! Any bytes as a record of the kernel's rings must decode to a valid event, or to none.

#![no_main]

use gctrace_ebpf::{KernelEvent, MAX_STACK_DEPTH, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match decode(bytes) {
        Some(KernelEvent::Pause(event)) => {
            let pause = &event.pause;
            assert!(pause.start_ns <= pause.end_ns);
            let length = pause.end_ns - pause.start_ns;
            assert!(pause.cpu_ns.is_none_or(|cpu| cpu <= length));
            assert!(pause.stop_the_world_ns.is_none_or(|time| time <= length));
            assert!(event.thresholds.is_none_or(|all| all.iter().all(|one| *one >= 0)));
        }
        Some(KernelEvent::Stack(stack)) => assert!(stack.frames.len() <= MAX_STACK_DEPTH as usize),
        Some(KernelEvent::Code(code)) => {
            let read = code.file_name.len() + code.function_name.len() + code.line_table.len();
            assert!(read <= bytes.len());
        }
        // Decoding them must not panic.
        Some(_) | None => {}
    }
});
