//! Code that depends on the processor; `bpf/arch.bpf.h` has the rest.

use std::arch::naked_asm;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("gctrace reads registers and arguments of x86-64 and arm64 only");

/// Whether the return of a launch is probed too, to know that it is over: a call leaves its return
/// address in a register, so nothing on the stack shows it.
pub(crate) const ENDS_LAUNCHES: bool = cfg!(target_arch = "aarch64");

/// Increments the counter. Starts with a `push`, as `gc_collect_main` does in nearly every build; the kernel emulates
/// it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) extern "C" fn calibration_target(_: *const u64, _generation: i64, _counter: *mut u64) {
    naked_asm!("push rbp", "inc qword ptr [rdx]", "pop rbp", "ret")
}

/// Increments the counter. Starts like most functions, with an instruction that the kernel steps
/// out of line.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) extern "C" fn calibration_target(_: *const u64, _generation: i64, _counter: *mut u64) {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "ldr x3, [x2]",
        "add x3, x3, #1",
        "str x3, [x2]",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}
