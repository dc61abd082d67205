/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: what samples need to know of a thread before they are taken: its interpreter, and whether it
 * is in a collection.
 */
#ifndef GCTRACE_SAMPLE_H
#define GCTRACE_SAMPLE_H

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

/* The thread enters a collection (1) or leaves one (-1). */
static __always_inline void sampled_in_pause(u32 tid, u32 pid, s32 change)
{
	struct sampled_thread *thread, new = { .pid = pid };

	if (!samples)
		return;
	thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	if (!thread && change > 0) {
		bpf_map_update_elem(&sampled_threads, &tid, &new, BPF_ANY);
		thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	}
	if (thread && (change > 0 || thread->pauses))
		thread->pauses += change;
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
