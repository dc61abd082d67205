/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Owns: the threads that collect, and their open pauses. */
#ifndef GCTRACE_THREAD_H
#define GCTRACE_THREAD_H

/* A collection that has started and not ended. */
struct open_pause {
	u64 start_ns;
	struct gc_state gc;
	u64 off_cpu_at_begin;
	u64 missed_at_begin;
	u64 stopped_ns;
	struct statistics before;
	s32 generation_argument;
	s32 reason_argument;
	u32 flags;
	u32 point;
	u32 nothing_to_do;     /* another collection was running: the call returns at once        */
	u32 incarnation;       /* of its entry in `collectors`; 0: none                           */
	s32 counts[GENERATIONS];
	u64 stack;
	s64 pages;             /* anonymous ones at the start, or -1                              */
	struct software_counts software;
};

struct thread {
	u64 switched_out_ns;
	u64 switches_missed;   /* times it was scheduled in unseen                                */
	u64 off_cpu_ns;        /* grows while the thread is off the CPU in a pause                */
	u64 world_stopped_ns;  /* when this thread requested it, 0 if it did not                  */
	u32 depth;             /* open pauses                                                     */
	u32 in_gc_collect;
	u32 in_pygc_collect;
	u32 pid;
	u64 main_interpreter;  /* its address, once seen; it never moves                          */
	u64 ran_ns;            /* its CPU time when its garbage was last considered               */
	u64 ran_at;            /* where a task_struct has that time. garbage.bpf.c relocates nothing
				* itself: libbpf would parse the kernel's BTF for it, 5 ms of CPU */
	/* Scratch space. Not per CPU: a program on a preemptible kernel can be preempted by
	 * another thread's.                                                                      */
	struct statistics after;
	struct block block;
	struct walk walk;
	struct open_pause pauses[MAX_DEPTH];
};

/* Threads that have collected: tid -> struct thread. Kept until the thread exits, because creating
 * an entry costs more than the rest of the probe. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* 5 KB each */
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

/* A struct thread is too large for the 512-byte BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread);
} empty_thread SEC(".maps");

static __always_inline struct thread *thread_of(u32 tid, u32 pid)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct thread *empty;
	u32 zero = 0;

	if (thread)
		return thread;
	empty = bpf_map_lookup_elem(&empty_thread, &zero);
	if (!empty || bpf_map_update_elem(&threads, &tid, empty, BPF_NOEXIST)) {
		count(COUNTER_LOST_THREADS);
		return 0;
	}
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread) {
		thread->pid = pid;
		thread->ran_at = bpf_core_field_offset(struct task_struct, se.sum_exec_runtime);
	}
	return thread;
}

#endif
