/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: counting the allocations of the one process with an open window. A separate object, loaded
 * for --alloc only; the maps of maps.bpf.h and stack.bpf.h are the session's. Its probes are
 * attached and detached every few hundred milliseconds.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.bpf.h"
#include "arch.bpf.h"
#include "cpython.bpf.h"
#include "stack.bpf.h"

/* Cookies: the number of a register in instructions, or one of these with a constant above it. */
#define COOKIE_CONSTANT 32
#define COOKIE_UNKNOWN 33

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct allocations);
} allocations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct alloc_window);
} alloc_window SEC(".maps");

/* Only one thread at a time holds the GIL, and only one process has a window. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} alloc_walk SEC(".maps");

static __always_inline u32 class_of(u64 size)
{
	u32 class = SMALL_CLASSES;

	if (size <= 512)
		return size ? (u32)(size - 1) / 16 : 0;
	for (u64 limit = 1024; class < SIZE_UNKNOWN - 1 && size > limit; limit *= 2)
		class += 1;
	return class;
}

static __always_inline void count_size(struct allocations *counted, struct pt_regs *registers, u64 cookie)
{
	u32 source = cookie & 0xff, class = SIZE_UNKNOWN;
	u64 size = 0;

	if (source < COOKIE_CONSTANT)
		size = register_value(registers, source);
	else if (source == COOKIE_CONSTANT)
		size = cookie >> 8;
	if (source != COOKIE_UNKNOWN) {
		class = class_of(size);
		counted->bytes += size;
	}
	if (class < SIZE_CLASSES)
		counted->classes[class] += 1;
}

static __noinline int sample_stack(const struct alloc_window *window)
{
	u32 zero = 0, index = window->layout, pid = window->pid;
	const struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	struct layout *layout = bpf_map_lookup_elem(&layouts, &index);
	struct walk *walk = bpf_map_lookup_elem(&alloc_walk, &zero);
	struct allocation_event *event;
	u64 interpreter, stack;

	if (!layout || !walk || !process)
		return 0;
	interpreter = read_pointer(window->runtime + layout->interpreters_head);
	stack = take_stack(walk, layout, index, current_frame(&layout->frames, window->runtime, interpreter),
			   pid, process);
	if (stack <= STACK_LOST)
		return 0;
	event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);
	if (!event)
		return 0;
	event->kind = EVENT_ALLOCATION;
	event->pid = window->pid;
	event->stack = stack;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("uprobe.multi")
int at_allocation(struct pt_regs *context)
{
	u32 zero = 0, pid = bpf_get_current_pid_tgid() >> 32;
	struct allocations *counted = bpf_map_lookup_elem(&allocations, &zero);
	struct alloc_window *window = bpf_map_lookup_elem(&alloc_window, &zero);

	stay_on_thread_stack(context);
	if (!counted || !window)
		return 0;
	if (window->pid != pid) {
		counted->foreign_hits += 1;
		return 0;
	}
	counted->hits += 1;
	count_size(counted, context, bpf_get_attach_cookie(context));
	if (window->stack_every && counted->hits % window->stack_every == 0)
		sample_stack(window);
	return 0;
}

/* Never used: it adds the records to the object's BTF. */
struct alloc_types {
	struct allocations allocations;
	struct alloc_window alloc_window;
};
struct alloc_types alloc_types_in_btf = {};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
