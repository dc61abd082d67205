/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: what a collection frees. One probe on the instruction that enters the collector's loop over
 * its garbage; the list is walked by kind of object, within a budget. A separate object, loaded for
 * --garbage only: bpf_loop needs Linux 5.17. The maps of maps.bpf.h, stack.bpf.h and thread.bpf.h
 * are the session's.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.bpf.h"
#include "arch.bpf.h"
#include "cpython.bpf.h"
#include "stack.bpf.h"
#include "thread.bpf.h"
#include "budget.bpf.h"
#include "garbage_kinds.bpf.h"
#include "garbage_names.bpf.h"

/* PyGC_Head of 3.8 and later with the GIL: next and previous, whose low two bits are flags; the
 * object follows (cpython/objimpl.h). */
#define HEAD_BYTES 16
#define HEAD_FLAGS 3ull
/* How far above the stack pointer the head of the list can be: a local variable of the collector, or
 * of its caller. */
#define HEAD_DISTANCE 2048

/* Lists that are examined at the same time have one each: memory that is there from the start, as an
 * allocation in a probe can fail. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading: a few for each CPU */
	__type(key, u32);
	__type(value, struct garbage_walk);
} garbage_walks SEC(".maps");

/* Indexes of those that are free, pushed by user space at the start. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, u32);
} free_walks SEC(".maps");

/* Counts one object, and goes to the next. */
static long count_object(u64 index, struct walk_context *context)
{
	struct garbage_walk *walk = context->walk;
	struct garbage_kind *kind;
	u32 at = walk->last;
	u64 type, node = context->node;

	(void)index;
	if (node == context->head)
		return 1;
	if (bpf_probe_read_user(walk->object, sizeof(walk->object), (void *)node) &&
	    bpf_probe_read_user(walk->object, SMALL_WORDS * 8, (void *)node)) {
		context->unreadable = 1;
		return 1;
	}
	context->node = walk->object[0] & ~HEAD_FLAGS;
	context->objects += 1;
	type = walk->object[OBJECT_TYPE];
	kind = kind_at(walk, at);
	if (at >= MAX_GARBAGE_KINDS || kind->type != type) {
		at = place_of(walk, type, 0, NO_OFFSET);
		if (at >= MAX_GARBAGE_KINDS) {
			walk->event.unlisted += 1;
			return 0;
		}
		kind = kind_at(walk, at);
		if (kind->known_type == TYPE_NEW)
			note_type(kind, context->layout, walk->runtime);
		walk->last = at;
	}
	if (leads_to_code(kind->known_type) && has_places(context->layout)) {
		find_place(walk, context->layout, node + HEAD_BYTES, kind->known_type);
		at = walk->place ? place_of(walk, type, walk->place, walk->place_offset) : MAX_GARBAGE_KINDS;
		if (at < MAX_GARBAGE_KINDS) {
			struct garbage_kind *of_code = kind_at(walk, at);

			of_code->known_type = kind->known_type;
			of_code->basic_bytes = kind->basic_bytes;
			of_code->item_bytes = kind->item_bytes;
			of_code->type_identity = walk->last;
			kind = of_code;
		}
	}
	kind->objects += 1;
	add_bytes(walk, context->layout, kind, node + HEAD_BYTES);
	return 0;
}

/* The first node of the list with its head at `address`; 0 if there is no list, or an empty one. */
__noinline u64 first_node(u64 address, u64 stack)
{
	u64 next;

	if (address < stack || address > stack + HEAD_DISTANCE || address & 7)
		return 0;
	next = read_pointer(address);
	if (!next || next == address || (read_pointer(next + 8) & ~HEAD_FLAGS) != address)
		return 0;
	return next & ~HEAD_FLAGS;
}

static __always_inline bool is_head(u64 address, u64 stack, struct walk_context *context)
{
	u64 node = first_node(address, stack);

	context->head = address;
	context->node = node;
	return node != 0;
}

#define TRY_HEAD(number) is_head(register_value(registers, number), stack, context)

/* The head of the list is on the stack, and in some register. */
static __always_inline bool find_head(struct pt_regs *registers, struct walk_context *context)
{
	u64 stack = registers->sp;

#if defined(__TARGET_ARCH_arm64)
	return TRY_HEAD(19) || TRY_HEAD(20) || TRY_HEAD(21) || TRY_HEAD(22) || TRY_HEAD(23) || TRY_HEAD(24) ||
	       TRY_HEAD(25) || TRY_HEAD(26) || TRY_HEAD(27) || TRY_HEAD(28) || TRY_HEAD(0) || TRY_HEAD(1) ||
	       TRY_HEAD(2) || TRY_HEAD(3);
#else
	return TRY_HEAD(3) || TRY_HEAD(12) || TRY_HEAD(13) || TRY_HEAD(14) || TRY_HEAD(15) || TRY_HEAD(5) ||
	       TRY_HEAD(0) || TRY_HEAD(1) || TRY_HEAD(2) || TRY_HEAD(6) || TRY_HEAD(7);
#endif
}

static __always_inline void send_garbage(struct walk_context *context)
{
	struct garbage_event *event = &context->walk->event;
	u64 bytes = event->kinds;

	barrier_var(bytes);
	if (bytes > MAX_GARBAGE_KINDS)
		bytes = MAX_GARBAGE_KINDS;
	bytes = sizeof(*event) + bytes * sizeof(struct garbage_kind);
	event->cost_ns = bpf_ktime_get_ns() - event->at_ns;
	if (bpf_ringbuf_output(&pause_ring, event, bytes, BPF_RB_NO_WAKEUP))
		count(COUNTER_LOST_GARBAGE);
	else
		count(COUNTER_GARBAGE_WALKED);
}

/* Walks the list and sends what is in it. */
static __always_inline void examine(struct walk_context *context, u32 layout_index, u32 pid, u32 tid, u64 now)
{
	struct garbage_walk *walk = context->walk;

	walk->last = MAX_GARBAGE_KINDS;
	__builtin_memset(walk->index, 0, sizeof(walk->index));
	walk->event.kind = EVENT_GARBAGE;
	walk->event.pid = pid;
	walk->event.tid = tid;
	walk->event.kinds = 0;
	walk->event.at_ns = now;
	walk->event.layout = layout_index;
	walk->event.unlisted = 0;
	bpf_loop(MAX_GARBAGE_OBJECTS, count_object, context, 0);
	if (context->unreadable) {
		count(COUNTER_GARBAGE_UNREADABLE);
		return;
	}
	if (context->node != context->head) {
		count(COUNTER_GARBAGE_TOO_LONG);
		return;
	}
	walk->event.objects = context->objects;
	/* As take_stack leaves them for the stacks of this thread. */
	context->codes->pid = pid;
	context->codes->incarnation = walk->incarnation;
	context->codes->layout = layout_index;
	bpf_loop(MAX_GARBAGE_KINDS, describe_kind, context, 0);
	send_garbage(context);
}

SEC("uprobe.multi")
int at_garbage(struct pt_regs *registers)
{
	u64 ids = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), took;
	u32 pid = ids >> 32, tid = ids, index = bpf_get_attach_cookie(registers);
	const struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	struct point *point = bpf_map_lookup_elem(&points, &index);
	struct walk_context context = {};
	struct garbage_budget *budget;
	struct open_pause *pause;
	struct thread *thread;
	u32 free = 0;
	u64 depth;
	bool full;

	stay_on_thread_stack(registers);
	if (!point || point->except == pid)
		return 0;
	if (!process) {
		count(COUNTER_FOREIGN_HITS + POINT_GARBAGE);
		return 0;
	}
	count(COUNTER_HITS + POINT_GARBAGE);
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread)
		return 0;
	context.layout = bpf_map_lookup_elem(&layouts, &point->layout);
	depth = thread->depth - 1ull;
	barrier_var(depth);
	if (!context.layout || depth >= MAX_DEPTH)
		return 0;
	pause = &thread->pauses[depth];
	budget = budget_of(pid, process->incarnation);
	if (!budget)
		return 0;
	earn(budget, thread);
	if (!find_head(registers, &context)) {
		count(COUNTER_GARBAGE_EMPTY);
		return 0;
	}
	full = is_full(pause, context.layout);
	if (!affords(budget, pause, full)) {
		count(COUNTER_GARBAGE_SKIPPED);
		return 0;
	}
	if (bpf_map_pop_elem(&free_walks, &free)) {
		count(COUNTER_GARBAGE_AT_ONCE);
		return 0;
	}
	context.walk = bpf_map_lookup_elem(&garbage_walks, &free);
	if (context.walk) {
		context.walk->runtime = registers->PROGRAM_COUNTER + point->runtime_delta;
		context.walk->incarnation = process->incarnation;
		context.codes = &thread->walk;
		examine(&context, point->layout, pid, tid, now);
	}
	bpf_map_push_elem(&free_walks, &free, BPF_ANY);
	took = bpf_ktime_get_ns() - now;
	count_many(COUNTER_GARBAGE_NS, took);
	spend(budget, took, full);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
