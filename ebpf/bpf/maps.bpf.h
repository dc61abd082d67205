/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Owns: the maps that the programs share, and small helpers for them. */
#ifndef GCTRACE_MAPS_H
#define GCTRACE_MAPS_H

/* Set before loading; the verifier prunes what they disable. */
const volatile bool follow_children = true;
const volatile u64 ring_bytes = 1 << 24;
/* An ordinary user with capabilities may not resume other users' processes: then only this user's
 * are stopped. ANY_USER: root, which may. */
#define ANY_USER 0xffffffffu
const volatile u32 stop_only_user = ANY_USER;

/* With file capabilities gctrace has rights that its user lacks: then only processes that this user
 * could inspect are followed. ANY_USER: all. */
const volatile u32 follow_only_user = ANY_USER;
const volatile u32 follow_only_group = 0;

/* gctrace itself: neither it nor its children are recorded, except the command. */
const volatile u32 gctrace_pid = 0;

/* Until when programs may be stopped, in nanoseconds of CLOCK_MONOTONIC. User space advances it
 * while it polls the rings, and sets it to 0 when the recording starts to end: no program is
 * stopped that would not be resumed. */
u64 stop_until_ns = 0;
/* If not 0: children of this process are recorded (gctrace itself, while it starts the command). */
u32 launcher_pid = 0;
/* If not 0: the process in which alone probes were placed. */
u32 probed_alone = 0;
/* No other process has probes yet: the first one to be recorded must not run before. */
bool others_wait = false;
/* Each hit of a probe is timed: while probes are measured. */
bool time_every_hit = false;
/* Threads in a pause, system-wide: lets sched_switch return at once if there are none. */
u64 threads_in_pause = 0;

/* Never set. */
const volatile bool has_tail_call = false;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} no_programs SEC(".maps"), no_session_programs SEC(".maps");

/*
 * Keeps a uprobe program on the stack of its thread. Since 6.13 the kernel gives large programs a
 * private stack, one per CPU (bpf_enable_priv_stack, kernel/bpf/verifier.c), but runs those of
 * uprobe multi links preemptible and without a guard against recursion (uprobe_prog_run,
 * kernel/trace/bpf_trace.c): a second thread on the CPU overwrites the stack of the one that was
 * preempted, and the kernel then follows corrupted pointers. Seen as an oops on 7.3 with
 * PREEMPT_LAZY. A program with a tail call gets no private stack (check_max_stack_depth); this tail
 * call is pruned.
 */
static __always_inline void stay_on_thread_stack(void *context)
{
	if (has_tail_call)
		bpf_tail_call(context, &no_programs, 0);
}

/* Programs that share such a map must be attached in the same way (6.18,
 * __bpf_prog_map_compatible in kernel/bpf/core.c). */
static __always_inline void stay_on_thread_stack_in_session(void *context)
{
	if (has_tail_call)
		bpf_tail_call(context, &no_session_programs, 0);
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_POINTS);
	__type(key, u32);
	__type(value, struct point);
} points SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LAYOUTS);
	__type(key, u32);
	__type(value, struct layout);
} layouts SEC(".maps");

/* Recorded processes, by pid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, u32);
	__type(value, struct followed_process);
} followed SEC(".maps");

/* Processes that we stopped and that were not resumed yet: pid -> time of the stop. The guardian
 * keeps this map open, so that they are resumed even if gctrace is killed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, u32);
	__type(value, u64);
} stopped SEC(".maps");

/* Executables that user space has examined: not stopped again. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FILES);
	__type(key, struct file_key);
	__type(value, u32);
} known_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24); /* set from --ring-size before loading */
} pause_ring SEC(".maps");

/* A separate ring: a burst of pauses must not displace the event that a process was stopped. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} process_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

static __always_inline void count_many(u32 which, u64 many)
{
	u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value)
		*value += many;
}

static __always_inline void count(u32 which)
{
	count_many(which, 1);
}

/* Microseconds, nearly: within one, no pid is reused and no process execs twice. */
static __always_inline u32 incarnation_at(u64 now)
{
	return (u32)(now >> 10) | 1;
}

static __always_inline bool is_followed(u32 pid)
{
	return bpf_map_lookup_elem(&followed, &pid) != 0;
}

#endif
