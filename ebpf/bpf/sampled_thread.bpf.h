/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: what samples need to know of a thread before they are taken: its interpreter, and whether it
 * is in a collection.
 */
#ifndef GCTRACE_SAMPLED_THREAD_H
#define GCTRACE_SAMPLED_THREAD_H

/* --sample: off, or the program `at_sample` is attached. */
const volatile bool samples = false;

/* Threads of recorded processes: tid -> struct sampled_thread. `threads` is not for programs of perf
 * events, which use preallocated maps only (check_map_prog_compatibility, kernel/bpf/verifier.c,
 * until 6.1). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, u32);
	__type(value, struct sampled_thread);
} sampled_threads SEC(".maps");

/* Too large for the BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sampled_thread);
} empty_sampled_thread SEC(".maps");

/* A thread of which nothing is known yet; 0 if there is one already and `flags` is BPF_NOEXIST. */
static __always_inline struct sampled_thread *new_thread(u32 tid, u32 pid, u64 flags)
{
	struct sampled_thread *thread;
	u32 zero = 0;

	thread = bpf_map_lookup_elem(&empty_sampled_thread, &zero);
	if (!thread || bpf_map_update_elem(&sampled_threads, &tid, thread, flags))
		return 0;
	thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	if (thread)
		thread->pid = pid;
	return thread;
}

/* A shorter time off the CPU is not recorded. */
#define OFF_CPU_NS 1000000ull

static __always_inline void spend(struct sampled_thread *thread, u64 on, u64 ns)
{
	barrier_var(on);
	if (on < SPENT)
		thread->spent_ns[on] += ns;
}

/* Adds up a time off the CPU, of any length. From its waking on the thread waits for a CPU only. */
static __always_inline void spend_wait(struct sampled_thread *thread, u64 start, u64 now)
{
	u64 woken = thread->woken_ns;

	if (thread->flags & OFF_CPU_IN_PAUSE)
		return;
	if (thread->reason == WAIT_CPU || woken < start || woken > now)
		woken = now;
	spend(thread, thread->reason, woken - start);
	spend(thread, WAIT_CPU, now - woken);
}

/* A thread gets the CPU again. */
static __always_inline void enter_cpu(u32 tid, struct sampled_thread *thread, u64 now)
{
	u64 start = thread->off_cpu_ns;
	struct off_cpu_event *event;

	thread->off_cpu_ns = 0;
	spend_wait(thread, start, now);
	thread->last_was_long = now - start >= OFF_CPU_NS;
	if (!thread->last_was_long)
		return;
	event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);
	if (!event) {
		count(COUNTER_LOST_OFF_CPU);
		return;
	}
	event->kind = EVENT_OFF_CPU;
	event->pid = thread->pid;
	event->tid = tid;
	event->flags = thread->flags;
	event->start_ns = start;
	event->end_ns = now;
	event->stack = thread->stack == STACK_LOST ? 0 : thread->stack;
	event->reason = thread->reason;
	event->woken_by = thread->woken_ns >= start ? thread->woken_by : 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* The current thread runs, and no switch to it was seen: a kernel may hide those from some of its tasks. It came
 * back when it had not run yet for what it has run since it left: that time, or 0. */
static __always_inline u64 came_back_unseen(u32 tid, struct sampled_thread *thread,
					     const struct task_struct *task, u64 now)
{
	u64 ran = BPF_CORE_READ(task, se.sum_exec_runtime) - thread->ran_ns, start = thread->off_cpu_ns;

	if (!start || now <= start)
		return 0;
	start = ran < now - start ? now - ran : start;
	enter_cpu(tid, thread, start);
	return start;
}

/* The current thread exits. */
static __always_inline void sampled_exit(u32 tid, u32 pid, u64 now)
{
	struct sampled_thread *thread = samples ? bpf_map_lookup_elem(&sampled_threads, &tid) : 0;

	if (thread && thread->pid == pid)
		came_back_unseen(tid, thread, bpf_get_current_task_btf(), now);
}

/* The thread enters a collection (1) or leaves one (-1). */
static __always_inline void sampled_in_pause(u32 tid, u32 pid, s32 change)
{
	struct sampled_thread *thread;

	if (!samples)
		return;
	thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	if (!thread && change > 0)
		thread = new_thread(tid, pid, BPF_ANY);
	if (!thread || (change < 0 && !thread->pauses))
		return;
	if (!thread->pauses)
		thread->pause_ns = bpf_ktime_get_ns();
	thread->pauses += change;
	if (!thread->pauses)
		spend(thread, SPENT_IN_PAUSES, bpf_ktime_get_ns() - thread->pause_ns);
}

/* Stores where the interpreter of a process is: a probe knows it, a sample does not. */
static __always_inline void note_interpreter(struct followed_process *process, const struct point *point,
					     u64 probed)
{
	if (!samples || process->runtime || point->layout >= MAX_LAYOUTS)
		return;
	process->layout = point->layout;
	process->runtime = probed + point->runtime_delta;
}

#endif
