/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: CUDA, NCCL and torch calls. A separate object, loaded for --cuda once such a library is
 * found; the maps of maps.bpf.h are the session's, the ring is its own, so that a burst of launches
 * displaces no pauses. The cookie of a probe describes its function (event.h).
 *
 * Layers call each other: cudaLaunchKernel calls cuLaunchKernel, ncclAllReduce launches kernels.
 * Only the outermost call of a thread is recorded. Calls nest like their stack frames, so a call is
 * nested in an open one if its stack pointer is lower. That needs no counter that a missed return
 * (longjmp, a C++ exception) could corrupt.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.bpf.h"
#include "arch.bpf.h"

struct open_call {
	u64 stack_pointer;     /* at the function's first instruction; 0: none is open            */
	u64 start_ns;
	u64 cookie;
	u64 stream;
	u64 bytes;
	u64 cpu_ns;
};

/* The open calls of a thread. */
struct calls {
	struct open_call call;
	struct open_call step;
	/* The last launch whose end is not probed: it is open while its return address is in
	 * place. Where calls leave that in a register, its return ends it. */
	u64 launch_stack_pointer;
	u64 launch_return;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct calls);
} calls_of_thread SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24); /* set from --ring-size before loading */
} call_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CALL_COUNTERS);
	__type(key, u32);
	__type(value, u64);
} call_counters SEC(".maps");

static __always_inline void count_call(u32 which, u32 kind)
{
	u32 index = which + kind;
	u64 *value = bpf_map_lookup_elem(&call_counters, &index);

	if (value)
		*value += 1;
}

static __always_inline u64 read_word(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* CUlaunchConfig of cuda.h and cudaLaunchConfig_t of driver_types.h: grid at 0, stream at 32. */
#define CONFIGURATION_STREAM 32

static __always_inline u64 stream_of(struct pt_regs *registers, u32 place)
{
	if (place >= STREAM_IN_CONFIGURATION)
		return read_word(argument(registers, 1) + CONFIGURATION_STREAM);
	if (place <= REGISTER_ARGUMENTS)
		return argument(registers, place);
	return read_word(registers->sp + RETURN_ADDRESS_BYTES + 8 * (place - REGISTER_ARGUMENTS - 1));
}

/* ncclDataType_t of nccl.h 2.x: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16
 * and two of 8 bits. */
static __always_inline u32 nccl_size(u32 type)
{
	switch (type) {
	case 2: case 3: case 7: return 4;
	case 4: case 5: case 8: return 8;
	case 6: case 9: return 2;
	default: return 1;
	}
}

static __always_inline u64 bytes_of(struct pt_regs *registers, u32 place)
{
	u32 which = place & 7;
	u64 count = argument(registers, which) << ((place >> BYTES_SHIFT_SHIFT) & 3);

	if (place & BYTES_NCCL)
		return count * nccl_size(argument(registers, which + 1));
	if (place & BYTES_ROWS)
		return count * argument(registers, which + 1);
	return count;
}

static __always_inline void put_grid(struct cuda_call_event *event, struct pt_regs *registers, u32 place)
{
	u64 first, second;

	event->grid[0] = event->grid[1] = event->grid[2] = 0;
	if (place == GRID_ARGUMENTS) {
		event->grid[0] = argument(registers, 2);
		event->grid[1] = argument(registers, 3);
		event->grid[2] = argument(registers, 4);
	} else if (place == GRID_DIM3) {
		first = argument(registers, 2);
		second = argument(registers, 3);
		event->grid[0] = first;
		event->grid[1] = first >> 32;
		event->grid[2] = second;
	} else if (place == GRID_CONFIGURATION) {
		bpf_probe_read_user(event->grid, sizeof(event->grid), (void *)argument(registers, 1));
	}
}

/* CPU time of the thread. The kernel adds to it when the thread is switched out and at ticks: it may be
 * that much too low, but the error does not add up over steps. */
static __always_inline u64 thread_cpu_ns(void)
{
	return BPF_CORE_READ(bpf_get_current_task_btf(), se.sum_exec_runtime);
}

static __always_inline struct cuda_call_event *reserve_call(u64 cookie)
{
	u32 kind = (cookie >> CALL_KIND_SHIFT) & 0xff;
	struct cuda_call_event *event = bpf_ringbuf_reserve(&call_ring, sizeof(*event), 0);
	u64 ids = bpf_get_current_pid_tgid();

	if (!event) {
		count_call(CALL_LOST, kind);
		return 0;
	}
	event->kind = EVENT_CUDA_CALL;
	event->pid = ids >> 32;
	event->tid = ids;
	event->function = cookie;
	event->call_kind = kind;
	return event;
}

static __always_inline void send_entry(struct pt_regs *registers, u64 cookie, u64 now, u64 cpu_ns)
{
	struct cuda_call_event *event = reserve_call(cookie);

	if (!event)
		return;
	event->start_ns = now;
	event->end_ns = now;
	event->stream = stream_of(registers, (cookie >> CALL_STREAM_SHIFT) & 0xff);
	event->bytes = bytes_of(registers, (cookie >> CALL_BYTES_SHIFT) & 0xff);
	event->cpu_ns = cpu_ns;
	put_grid(event, registers, (cookie >> CALL_GRID_SHIFT) & 0xff);
	event->result = 0;
	/* The ring is polled every few tens of milliseconds; waking its reader would cost the
	 * program time. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline void send_whole(const struct open_call *call, u64 now, s32 result)
{
	struct cuda_call_event *event = reserve_call(call->cookie);

	if (!event)
		return;
	event->start_ns = call->start_ns;
	event->end_ns = now;
	event->stream = call->stream;
	event->bytes = call->bytes;
	event->cpu_ns = call->cpu_ns;
	event->grid[0] = event->grid[1] = event->grid[2] = 0;
	event->result = result;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device) */
static __always_inline void send_memory(struct pt_regs *registers, u64 now)
{
	struct device_memory_event *event = bpf_ringbuf_reserve(&call_ring, sizeof(*event), 0);
	u64 ids = bpf_get_current_pid_tgid();

	if (!event) {
		count_call(CALL_LOST, CALL_MEMORY);
		return;
	}
	event->kind = EVENT_DEVICE_MEMORY;
	event->pid = ids >> 32;
	event->tid = ids;
	event->device = argument(registers, 5) & 0xffff;
	event->at_ns = now;
	event->bytes = argument(registers, 2);
	event->allocated = argument(registers, 3);
	event->reserved = argument(registers, 4);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline void open_call(struct open_call *call, struct pt_regs *registers, u64 cookie, u64 now,
				      u64 cpu_ns)
{
	call->stack_pointer = registers->sp;
	call->start_ns = now;
	call->cookie = cookie;
	call->stream = stream_of(registers, (cookie >> CALL_STREAM_SHIFT) & 0xff);
	call->bytes = bytes_of(registers, (cookie >> CALL_BYTES_SHIFT) & 0xff);
	call->cpu_ns = cpu_ns;
}

/* Whether a call entered with this stack pointer is nested in another. */
static __always_inline bool is_nested(struct calls *calls, u64 stack_pointer)
{
	if (stack_pointer < calls->call.stack_pointer)
		return true;
	calls->call.stack_pointer = 0;
	if (stack_pointer < calls->launch_stack_pointer &&
	    (!RETURN_ADDRESS_BYTES ||
	     read_word(calls->launch_stack_pointer) == calls->launch_return))
		return true;
	calls->launch_stack_pointer = 0;
	return false;
}

static __always_inline void step(struct calls *calls, struct pt_regs *registers, u64 cookie, u32 flags, u64 now)
{
	u64 stack_pointer = registers->sp, cpu_ns;

	if (flags & CALL_AT_RET) {
		/* The return address is exactly there, as at the first instruction. */
		if (calls->step.stack_pointer == stack_pointer) {
			calls->step.stack_pointer = 0;
			send_whole(&calls->step, now, 0);
		}
	} else if (stack_pointer < calls->step.stack_pointer) {
		count_call(CALL_NESTED, CALL_STEP);
	} else {
		/* This is the only way to notice one that an exception ended. */
		cpu_ns = thread_cpu_ns();
		send_entry(registers, cookie, now, cpu_ns);
		open_call(&calls->step, registers, cookie, now, cpu_ns);
	}
}

static __always_inline void enter(struct calls *calls, struct pt_regs *registers, u64 cookie, u32 kind, u32 flags,
				  u64 now)
{
	u64 stack_pointer = registers->sp;

	if (is_nested(calls, stack_pointer)) {
		count_call(CALL_NESTED, kind);
		return;
	}
	if (flags & CALL_BOTH_ENDS) {
		open_call(&calls->call, registers, cookie, now, 0);
		return;
	}
	if (flags & CALL_ENCLOSES) {
		calls->launch_stack_pointer = stack_pointer;
		if (RETURN_ADDRESS_BYTES)
			calls->launch_return = read_word(stack_pointer);
	}
	send_entry(registers, cookie, now, 0);
}

SEC("uprobe.multi")
int at_call(struct pt_regs *context)
{
	u64 now = bpf_ktime_get_ns();
	u64 cookie = bpf_get_attach_cookie(context);
	u32 kind = (cookie >> CALL_KIND_SHIFT) & 0xff, flags = (cookie >> CALL_FLAGS_SHIFT) & 0xff;
	struct calls *calls;

	stay_on_thread_stack(context);
	if (kind >= CALL_KINDS)
		return 0;
	if (!is_followed(bpf_get_current_pid_tgid() >> 32)) {
		count_call(CALL_FOREIGN, kind);
		return 0;
	}
	if (!(flags & CALL_AT_RET))
		count_call(CALL_HITS, kind);
	if (kind == CALL_MEMORY) {
		send_memory(context, now);
		return 0;
	}
	calls = bpf_task_storage_get(&calls_of_thread, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!calls) {
		count_call(CALL_LOST, kind);
		return 0;
	}
	if (kind == CALL_STEP)
		step(calls, context, cookie, flags, now);
	else
		enter(calls, context, cookie, kind, flags, now);
	return 0;
}

SEC("uprobe.multi")
int at_call_return(struct pt_regs *context)
{
	u64 now = bpf_ktime_get_ns();
	struct calls *calls = bpf_task_storage_get(&calls_of_thread, bpf_get_current_task_btf(), 0, 0);

	stay_on_thread_stack(context);
	if (!calls)
		return 0;
	if (!RETURN_ADDRESS_BYTES && calls->launch_stack_pointer == context->sp) {
		calls->launch_stack_pointer = 0;
		return 0;
	}
	/* The return address is popped. */
	if (!calls->call.stack_pointer ||
	    calls->call.stack_pointer + RETURN_ADDRESS_BYTES != context->sp)
		return 0;
	calls->call.stack_pointer = 0;
	send_whole(&calls->call, now, context->RESULT);
	return 0;
}

/* Never used: it adds the records to the object's BTF. */
struct cuda_types {
	struct cuda_call_event cuda_call_event;
	struct device_memory_event device_memory_event;
	enum event_kind event_kind;
	enum call_kind call_kind;
	enum call_flag call_flag;
	enum call_counter call_counter;
	enum grid_place grid_place;
};
struct cuda_types cuda_types_in_btf = {};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
