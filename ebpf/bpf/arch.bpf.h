/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: what depends on the processor: the registers of a probed thread, and the calling convention
 * (x86-64: System V; arm64: AAPCS64). Include after vmlinux.h.
 */
#ifndef GCTRACE_ARCH_H
#define GCTRACE_ARCH_H

/* Each register is loaded where it is selected: otherwise the compiler selects an address first and
 * loads afterwards, which the verifier rejects for the context. */
#define LOADED(field) ({ u64 loaded = registers->field; barrier_var(loaded); loaded; })

#if defined(__TARGET_ARCH_arm64)

#define PROGRAM_COUNTER pc
#define SYSTEM_CALL syscallno
#define FIRST_ARGUMENT orig_x0
#define THIRD_ARGUMENT regs[2]
#define FUTEX 98
#define POLL PPOLL
#define PPOLL 73
#define RESULT regs[0]
/* Integer arguments in registers; further ones are on the stack. */
#define REGISTER_ARGUMENTS 8
/* A call pushes nothing: the return address is in x30. */
#define RETURN_ADDRESS_BYTES 0
#define REGISTER(number, place) case number: return LOADED(regs[place]);

/* An integer argument in a register, from 1. */
static __always_inline u64 argument(struct pt_regs *registers, u32 which)
{
	switch (which) {
	REGISTER(1, 0) REGISTER(2, 1) REGISTER(3, 2) REGISTER(4, 3)
	REGISTER(5, 4) REGISTER(6, 5) REGISTER(7, 6) REGISTER(8, 7)
	default: return 0;
	}
}

/* A register by its number in instructions. */
static __always_inline u64 register_value(struct pt_regs *registers, u32 number)
{
	switch (number) {
	REGISTER(0, 0) REGISTER(1, 1) REGISTER(2, 2) REGISTER(3, 3) REGISTER(4, 4) REGISTER(5, 5)
	REGISTER(6, 6) REGISTER(7, 7) REGISTER(8, 8) REGISTER(9, 9) REGISTER(10, 10) REGISTER(11, 11)
	REGISTER(12, 12) REGISTER(13, 13) REGISTER(14, 14) REGISTER(15, 15) REGISTER(16, 16)
	REGISTER(17, 17) REGISTER(18, 18) REGISTER(19, 19) REGISTER(20, 20) REGISTER(21, 21)
	REGISTER(22, 22) REGISTER(23, 23) REGISTER(24, 24) REGISTER(25, 25) REGISTER(26, 26)
	REGISTER(27, 27) REGISTER(28, 28) REGISTER(29, 29) REGISTER(30, 30)
	default: return 0;
	}
}

#else

#define PROGRAM_COUNTER ip
/* Of the registers at the entry to the kernel: the number of the system call, negative in interrupts
 * and faults, its first argument, and the numbers of futex(2) and poll(2). */
#define SYSTEM_CALL orig_ax
#define FIRST_ARGUMENT di
#define THIRD_ARGUMENT dx
#define FUTEX 202
#define POLL 7
#define PPOLL 271
#define RESULT ax
#define REGISTER_ARGUMENTS 6
#define RETURN_ADDRESS_BYTES 8

static __always_inline u64 argument(struct pt_regs *registers, u32 which)
{
	switch (which) {
	case 1: return LOADED(di);
	case 2: return LOADED(si);
	case 3: return LOADED(dx);
	case 4: return LOADED(cx);
	case 5: return LOADED(r8);
	case 6: return LOADED(r9);
	default: return 0;
	}
}

static __always_inline u64 register_value(struct pt_regs *registers, u32 number)
{
	switch (number) {
	case 0: return LOADED(ax);
	case 1: return LOADED(cx);
	case 2: return LOADED(dx);
	case 3: return LOADED(bx);
	case 5: return LOADED(bp);
	case 6: return LOADED(si);
	case 7: return LOADED(di);
	case 8: return LOADED(r8);
	case 9: return LOADED(r9);
	case 10: return LOADED(r10);
	case 11: return LOADED(r11);
	case 12: return LOADED(r12);
	case 13: return LOADED(r13);
	case 14: return LOADED(r14);
	case 15: return LOADED(r15);
	default: return 0;
	}
}

#endif
#endif
