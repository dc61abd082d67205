/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Owns: the maps that the programs share, and the small helpers on them. */
#ifndef GCTRACE_MAPS_H
#define GCTRACE_MAPS_H

/* Chosen before loading; the verifier prunes what they switch off. */
const volatile bool follow_children = true;
const volatile u64 ring_bytes = 1 << 24;
/* An ordinary user with capabilities may not continue other users' processes: only this user's are
 * held then. ANY_USER: root, who may. */
#define ANY_USER 0xffffffffu
const volatile u32 hold_only_user = ANY_USER;

/* With file capabilities gctrace has rights that its user lacks: only processes that this user could inspect are
 * followed then. ANY_USER: all. */
const volatile u32 follow_only_user = ANY_USER;
const volatile u32 follow_only_group = 0;

/* gctrace itself: neither it nor what it starts is recorded, the command excepted. */
const volatile u32 gctrace_pid = 0;

/* Until when programs may be held, in nanoseconds of CLOCK_MONOTONIC. User space moves it on as long as it looks at
 * the rings, and sets it to 0 when the recording begins to end: no hold is made that nobody waits for. */
u64 hold_until_ns = 0;
/* While not 0: children of this process are recorded (gctrace itself, while it starts the command). */
u32 launcher_pid = 0;
/* Threads inside a pause, on the whole machine: lets sched_switch return at once when there is none. */
u64 threads_in_pause = 0;

/* Never set. */
const volatile bool has_tail_call = false;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} no_programs SEC(".maps");

/*
 * Keeps a uprobe program on the stack of its thread. Since 6.13 the kernel gives large programs a private stack, one
 * per CPU (bpf_enable_priv_stack, kernel/bpf/verifier.c), but runs those of uprobe multi links preemptible and without
 * a guard against recursion (uprobe_prog_run, kernel/trace/bpf_trace.c): a second thread on the CPU overwrites the
 * stack of the one that was preempted, and the kernel follows what it finds there. Seen as an oops on 7.3 with
 * PREEMPT_LAZY. A program with a tail call gets none (check_max_stack_depth); this one is pruned.
 */
static __always_inline void stay_on_thread_stack(void *context)
{
	if (has_tail_call)
		bpf_tail_call(context, &no_programs, 0);
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

/* Processes that we stopped and that nobody has continued yet: pid -> time of the stop. The
 * guardian holds this map, so that they go on even if gctrace is killed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, u32);
	__type(value, u64);
} held SEC(".maps");

/* Executables that user space has looked at: not held again. */
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

/* Its own ring: a storm of pauses must not lose the news that a process was held. */
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

/* Microseconds, nearly: no pid comes again, and no program execs another, within one. */
static __always_inline u32 incarnation_at(u64 now)
{
	return (u32)(now >> 10) | 1;
}

static __always_inline bool is_followed(u32 pid)
{
	return bpf_map_lookup_elem(&followed, &pid) != 0;
}

#endif
