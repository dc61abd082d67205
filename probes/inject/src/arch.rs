//! Code that depends on the processor: functions that look at a call and pass it on unchanged.

/// The body of a naked function that stands before another: calls `before` with its first two
/// arguments and its caller's address, and jumps to the address that this returns, with arguments,
/// stack and return address as they were: the real function sees the real caller, and exceptions
/// pass.
macro_rules! stand_before {
    ($before:path) => {
        $crate::arch::stand_before_here!($before)
    };
}

/// Six registers with arguments and one word keep the stack 16-byte aligned for the call; the
/// seventh word is the caller.
#[cfg(target_arch = "x86_64")]
macro_rules! stand_before_here {
    ($before:path) => {
        std::arch::naked_asm!(
            "endbr64",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "mov rdx, [rsp + 48]",
            "sub rsp, 8",
            "call {before}",
            "add rsp, 8",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            before = sym $before,
        )
    };
}

/// `bti c`, by its number, is a no-op on older processors; a branch through x16 may land on one.
/// x8 is where a result in memory goes.
#[cfg(target_arch = "aarch64")]
macro_rules! stand_before_here {
    ($before:path) => {
        std::arch::naked_asm!(
            "hint #34",
            "stp x29, x30, [sp, #-96]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "str x8, [sp, #80]",
            "mov x2, x30",
            "bl {before}",
            "mov x16, x0",
            "ldr x8, [sp, #80]",
            "ldp x6, x7, [sp, #64]",
            "ldp x4, x5, [sp, #48]",
            "ldp x2, x3, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #96",
            "br x16",
            before = sym $before,
        )
    };
}

pub(crate) use stand_before;
pub(crate) use stand_before_here;
