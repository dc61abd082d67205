/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: other events of a thread during a pause: it leaves the CPU, exits, or forks. Not here:
 * pauses themselves (gc.bpf.c), counting at a switch (counters.bpf.h).
 */

/* Time off the CPU during a pause. */
SEC("raw_tp/sched_switch")
int on_switch(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *previous, *next;
	struct thread *thread;
	u64 now;
	u32 tid;

	previous = (struct task_struct *)context->args[1];
	next = (struct task_struct *)context->args[2];
	if (hardware_mask)
		switch_hardware(BPF_CORE_READ(previous, pid), BPF_CORE_READ(previous, tgid),
				BPF_CORE_READ(next, pid), BPF_CORE_READ(next, tgid));
	if (!threads_in_pause)
		return 0;
	now = bpf_ktime_get_ns();
	tid = BPF_CORE_READ(previous, pid);
	thread = tid ? bpf_map_lookup_elem(&threads, &tid) : 0;
	if (thread && thread->depth) {
		/* Leaves without having been scheduled in: the tracepoint does not report every
		 * switch. */
		if (thread->switched_out_ns)
			thread->switches_missed += 1;
		thread->switched_out_ns = now;
	}
	tid = BPF_CORE_READ(next, pid);
	thread = tid ? bpf_map_lookup_elem(&threads, &tid) : 0;
	if (thread && thread->switched_out_ns) {
		thread->off_cpu_ns += now - thread->switched_out_ns;
		thread->switched_out_ns = 0;
	}
	return 0;
}

/* A thread exits during a pause: the pause ends with it; its statistics are unknown. */
static __always_inline void abandon_pauses(u32 tid, u64 now)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	const struct layout *layout;
	u32 top;

	if (!thread)
		return;
	top = thread->depth - 1;
	if (thread->depth)
		__sync_fetch_and_add(&threads_in_pause, -(u64)thread->depth);
	if (thread->depth && top < MAX_DEPTH && !thread->pauses[top].nothing_to_do) {
		layout = layout_of(&thread->pauses[top]);
		__builtin_memset(&thread->after, 0, sizeof(thread->after));
		if (layout)
			send_pause(thread, &thread->pauses[top], layout, tid, now, PAUSE_UNFINISHED, false);
	}
	bpf_map_delete_elem(&threads, &tid);
	if (hardware_mask)
		bpf_map_delete_elem(&thread_hardware, &tid);
}

/* A process forked during a pause returns from the collector too, at its own time. */
static __always_inline void copy_pauses_to_child(u32 parent_tid, u32 child, u64 now)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &parent_tid);

	if (!thread || (!thread->depth && !thread->in_gc_collect && !thread->in_pygc_collect) ||
	    bpf_map_update_elem(&threads, &child, thread, BPF_ANY))
		return;
	thread = bpf_map_lookup_elem(&threads, &child);
	if (!thread)
		return;
	thread->pid = child;
	thread->off_cpu_ns = 0;
	thread->switched_out_ns = 0;
	for (u32 i = 0; i < MAX_DEPTH; i++) {
		if (i >= thread->depth)
			break;
		thread->pauses[i].start_ns = now;
		thread->pauses[i].off_cpu_at_begin = 0;
		thread->pauses[i].missed_at_begin = thread->switches_missed;
		thread->pauses[i].flags |= PAUSE_FORKED;
		__builtin_memset(&thread->pauses[i].software, 0, sizeof(thread->pauses[i].software));
		__sync_fetch_and_add(&threads_in_pause, 1);
	}
}
