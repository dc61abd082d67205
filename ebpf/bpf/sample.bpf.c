/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: samples of what the threads of recorded processes execute, taken by a clock of each CPU
 * (perf_event_open(2), PERF_COUNT_SW_CPU_CLOCK). A thread that does not run is not sampled. A separate
 * object, loaded for --sample only; the maps of maps.bpf.h, stack.bpf.h and sample.bpf.h are the
 * session's.
 *
 * Runs in an interrupt of the sampled thread: its Python frames do not change meanwhile. While another
 * program of this CPU runs, there is no sample (bpf_prog_active in the kernel).
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.bpf.h"
#include "arch.bpf.h"
#include "cpython.bpf.h"
#include "stack.bpf.h"
#include "sample.bpf.h"

/* Thread states and interpreters that are searched for a thread; a thread beyond has no stack. */
#define MAX_SEARCHED 256
/* A thread without a thread state is searched for again after this time: a native one, or one that
 * Python has only just started. */
#define SEARCH_AGAIN_NS 100000000ull

/* A struct walk is too large for the BPF stack. One for each CPU: interrupts do not nest. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} sample_walk SEC(".maps");

/* What pthread_self() returns in the current thread; 0 if unknown. glibc and musl on x86-64: the base of
 * its fs segment. On arm64 it lies below the thread pointer, by the size of the library's struct. */
static __always_inline u64 thread_id(void)
{
#if defined(__TARGET_ARCH_arm64)
	return 0;
#else
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread.fsbase);
#endif
}

static __always_inline bool is_in_kernel(const struct bpf_perf_event_data *context)
{
#if defined(__TARGET_ARCH_arm64)
	return (context->regs.pstate & 0xf) != 0; /* PSR_MODE_EL0t */
#else
	return (context->regs.cs & 3) != 3;
#endif
}

/* The thread state of the thread, in any interpreter of the process. */
__noinline u64 find_thread_state(u64 runtime, const struct layout *layout, u64 thread_id)
{
	u64 interpreter, tstate;

	if (!layout || !thread_id)
		return 0;
	interpreter = read_pointer(runtime + layout->interpreters_head);
	tstate = interpreter ? read_pointer(interpreter + layout->frames.interpreter_threads) : 0;
	for (u32 i = 0; i < MAX_SEARCHED && interpreter; i++) {
		if (!tstate) {
			interpreter = read_pointer(interpreter + layout->frames.interpreter_next);
			tstate = interpreter ? read_pointer(interpreter + layout->frames.interpreter_threads) : 0;
			continue;
		}
		if (read_pointer(tstate + layout->frames.tstate_thread_id) == thread_id)
			return tstate;
		tstate = read_pointer(tstate + layout->frames.tstate_next);
	}
	return 0;
}

/* The same, remembered while it belongs to the thread. */
static __always_inline u64 thread_state(u32 tid, u32 pid, const struct followed_process *process,
					const struct layout *layout, u64 now)
{
	struct sampled_thread *known = bpf_map_lookup_elem(&sampled_threads, &tid), new = { .pid = pid };
	u64 id = thread_id();

	if (known && known->pid == pid) {
		if (known->tstate && read_pointer(known->tstate + layout->frames.tstate_thread_id) == id)
			return known->tstate;
		if (!known->tstate && now - known->searched_ns < SEARCH_AGAIN_NS)
			return 0;
	}
	new.tstate = find_thread_state(process->runtime, layout, id);
	new.searched_ns = now;
	if (known && known->pid == pid) {
		known->tstate = new.tstate;
		known->searched_ns = now;
	} else {
		bpf_map_update_elem(&sampled_threads, &tid, &new, BPF_ANY);
	}
	return new.tstate;
}

SEC("perf_event")
int at_sample(struct bpf_perf_event_data *context)
{
	u64 ids = bpf_get_current_pid_tgid(), now, stack = 0, tstate = 0;
	u32 pid = ids >> 32, tid = ids, zero = 0, flags = 0;
	const struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	const struct sampled_thread *thread;
	const struct layout *layout;
	struct sample_event *event;
	struct walk *walk;

	if (!process)
		return 0;
	now = bpf_ktime_get_ns();
	count(COUNTER_SAMPLES);
	walk = bpf_map_lookup_elem(&sample_walk, &zero);
	layout = process->runtime ? bpf_map_lookup_elem(&layouts, &process->layout) : 0;
	if (walk && layout && layout->frames.tstate_frame != NO_OFFSET)
		tstate = thread_state(tid, pid, process, layout, now);
	if (tstate) {
		flags |= SAMPLE_HAS_PYTHON;
		stack = take_stack(walk, layout, process->layout, read_pointer(tstate + layout->frames.tstate_frame),
				   pid, process);
	}
	if (stack == STACK_LOST) {
		stack = 0;
		flags |= SAMPLE_STACK_LOST;
	}
	thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	if (thread && thread->pid == pid && thread->pauses)
		flags |= SAMPLE_IN_PAUSE;
	if (is_in_kernel(context))
		flags |= SAMPLE_IN_KERNEL;
	event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);
	if (!event) {
		count(COUNTER_LOST_SAMPLES);
		return 0;
	}
	event->kind = EVENT_SAMPLE;
	event->pid = pid;
	event->tid = tid;
	event->flags = flags;
	event->at_ns = now;
	event->stack = stack;
	event->instruction = flags & SAMPLE_IN_KERNEL ? 0 : context->regs.PROGRAM_COUNTER;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	count_many(COUNTER_SAMPLE_NS, bpf_ktime_get_ns() - now);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
