/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: loops, and the turns of each. A thread of Python that waits for input again and again at the same place has a
 * loop there; a turn is what it does from the return of such a wait to the next. Calls that only look whether there is
 * input, and do not wait, end turns too; they are seen at their entry (raw_tp/sys_enter), once user space asks for it.
 * Who takes work from a queue waits for a lock, at another address each time (Condition.wait() makes one): its place is
 * the stack with which it waits. Who starts a thread for each piece of work has a turn for each: the life of the
 * thread. Its place is the stack that started it.
 *
 * Not here: which of the loops of a thread is its own, and what a turn was spent on besides waits and collections
 * (analysis).
 */
#ifndef GCTRACE_LOOP_H
#define GCTRACE_LOOP_H

/* Places where threads of recorded processes wait for input. More are not counted. */
#define MAX_LOOPS 512
#define MAX_WORK_STACKS 4096
/* The highest number of a system call of x86-64 and arm64 is below (469 in Linux 6.17). */
#define SYSTEM_CALLS 512
/* Waits at one place that make it a loop which reads messages. Who polls a place once will do it again. */
#define READ_WAITS 3
/* Who reads a message of several parts reads the next one within this time: 20 us. */
#define SAME_MESSAGE_NS 20000ull
/* Before a message multiprocessing reads its length, in so many bytes (Connection._recv_bytes, Python 3.8 to 3.15). */
#define HEADER_BYTES 4
/* Which turns are sent, set before loading: analysis/units/src/long_turns.rs. */
const volatile u64 long_turn_ns = 0;
const volatile u64 long_pause_ns = 0;
const volatile u64 turns_sent = 0;
const volatile u64 turns_of_one_sent = 1;
const volatile u64 ns_of_one_sent = 1;

/* System calls whose entries are looked at: 1. */
u8 looked_at[SYSTEM_CALLS] = {};

/* User space removes the ones of exited processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOOPS);
	__type(key, struct loop_key);
	__type(value, struct loop_state);
} loops SEC(".maps");

/* Stacks of threads that take work from a queue, if they wait for a lock. User space, which knows the names of functions,
 * adds each when it is first seen. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_WORK_STACKS);
	__type(key, u64);
	__type(value, u8);
} work_stacks SEC(".maps");

/* Too large for the BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct loop_state);
} empty_loop SEC(".maps");

static __always_inline void send_turn(const struct loop_key *key, u32 tid, const struct loop_state *loop,
				      const struct sampled_thread *thread, u64 start, u64 now)
{
	struct turn_event *event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);

	if (!event) {
		count(COUNTER_LOST_TURNS);
		return;
	}
	event->kind = EVENT_TURN;
	event->reserved = 0;
	event->place = *key;
	event->place.tid = tid;
	event->start_ns = start;
	event->end_ns = now;
	for (u32 i = 0; i < SPENT; i++)
		event->spent_ns[i] = thread->spent_ns[i] - loop->spent_ns[i];
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* The place of a length in `lengths`: its leading 7 bits, and how many follow. */
static __always_inline u32 length_bucket(u64 ns)
{
	u64 units = ns >> TURN_SHIFT;
	u32 shift = 0, at;

	if (units >> 32)
		return TURN_BUCKETS - 1;
	if (units >= 1ull << 22) {
		shift += 16;
		units >>= 16;
	}
	if (units >= 1ull << 14) {
		shift += 8;
		units >>= 8;
	}
	if (units >= 1ull << 10) {
		shift += 4;
		units >>= 4;
	}
	if (units >= 1ull << 8) {
		shift += 2;
		units >>= 2;
	}
	if (units >= 1ull << 7) {
		shift += 1;
		units >>= 1;
	}
	at = shift * 64 + units;
	return at < TURN_BUCKETS ? at : TURN_BUCKETS - 1;
}

static __always_inline void begin_turn(struct loop_state *loop, const struct sampled_thread *thread, u64 now)
{
	loop->begin_ns = now;
	for (u32 i = 0; i < SPENT; i++)
		loop->spent_ns[i] = thread->spent_ns[i];
}

/* Whether a long turn is sent: the longest are, some each second. As LoopCounts::is_sent of the library does it. */
static __always_inline bool is_sent(struct loop_state *loop, u64 length, u64 now)
{
	bool sent = length >= loop->limit_ns;
	u64 enough = turns_sent + loop->turns / turns_of_one_sent + (now - loop->since_ns) / ns_of_one_sent;

	loop->sent += sent;
	if (sent && loop->sent > enough)
		loop->limit_ns += loop->limit_ns / 8;
	if (!sent && loop->sent <= enough)
		loop->limit_ns -= loop->limit_ns / 64;
	return sent;
}

/* Counts a turn of a thread. Threads of one place may end at once; then the longest of them may be left out. */
static __always_inline void count_turn(const struct loop_key *key, u32 tid, struct loop_state *loop,
				       const struct sampled_thread *thread, u64 start, u64 now)
{
	u64 length = now - start;
	u64 at = length_bucket(length);
	bool has_pause;

	barrier_var(at);
	if (at < TURN_BUCKETS)
		__sync_fetch_and_add(&loop->lengths[at], 1);
	__sync_fetch_and_add(&loop->turns, 1);
	__sync_fetch_and_add(&loop->turns_ns, length);
	if (length > loop->longest_ns)
		loop->longest_ns = length;
	if (length < long_turn_ns)
		return;
	has_pause = thread->spent_ns[SPENT_IN_PAUSES] - loop->spent_ns[SPENT_IN_PAUSES] >= long_pause_ns;
	if (has_pause || is_sent(loop, length, now))
		send_turn(key, tid, loop, thread, start, now);
}

/* Ends the turn of a loop, if one has begun. */
static __always_inline void end_turn(const struct loop_key *key, struct loop_state *loop,
				     const struct sampled_thread *thread, u64 now)
{
	if (loop->begin_ns)
		count_turn(key, key->tid, loop, thread, loop->begin_ns, now);
}

/* Has the loop's calls looked at by user space. */
static __always_inline void announce(const struct loop_key *key, struct loop_state *loop)
{
	struct loop_event *event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);

	if (!event)
		return;
	event->kind = EVENT_LOOP;
	event->reserved = 0;
	event->place = *key;
	/* turns that end at a look are counted from then on */
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	loop->announced = 1;
}

/* Whether the thread waits for work from another thread. */
static __always_inline bool is_for_work(const struct sampled_thread *thread)
{
	u64 stack = thread->stack;

	return thread->tstate && thread->reason == WAIT_LOCK && bpf_map_lookup_elem(&work_stacks, &stack);
}

static __always_inline bool is_for_input(const struct sampled_thread *thread)
{
	return thread->tstate && (thread->reason == WAIT_POLL || thread->reason == WAIT_PIPE);
}

/* The argument that identifies a place. A thread may poll the same descriptors with a new array each time. */
static __always_inline u64 place_argument(s64 system_call, u64 first_argument)
{
	s32 descriptor;

	if (system_call != POLL && system_call != PPOLL)
		return first_argument;
	if (bpf_probe_read_user(&descriptor, sizeof(descriptor), (void *)first_argument))
		return first_argument;
	return (u32)descriptor;
}

static __always_inline struct loop_key key_of(u32 tid, const struct sampled_thread *thread, bool is_work)
{
	struct loop_key key = {
		.pid = thread->pid,
		.tid = tid,
		.system_call = thread->system_call,
		.first_argument = is_work ? thread->stack : thread->first_argument,
	};

	return key;
}

/* A new place of a thread; 0 if there are too many. */
static __always_inline struct loop_state *new_loop(const struct loop_key *key, u64 now)
{
	u32 zero = 0;
	struct loop_state *loop = bpf_map_lookup_elem(&empty_loop, &zero);

	if (!loop || bpf_map_update_elem(&loops, key, loop, BPF_NOEXIST)) {
		count(COUNTER_LOST_LOOPS);
		return 0;
	}
	loop = bpf_map_lookup_elem(&loops, key);
	if (loop) {
		loop->limit_ns = long_turn_ns;
		loop->since_ns = now;
	}
	return loop;
}

static __always_inline bool is_looked_at(u64 system_call)
{
	barrier_var(system_call);
	return system_call < SYSTEM_CALLS && looked_at[system_call];
}

/* A thread ends that Python started, perhaps for one piece of work: user space knows from the stack. */
static __always_inline void thread_ends(u32 tid, const struct sampled_thread *thread, u64 now)
{
	struct loop_key key = {
		.pid = thread->pid,
		.tid = thread->pid,
		.system_call = CALL_THREAD,
		.first_argument = thread->started_by,
	};
	struct loop_state *loop = bpf_map_lookup_elem(&loops, &key);

	if (!loop)
		loop = new_loop(&key, now);
	if (!loop)
		return;
	loop->stack = thread->started_by;
	__sync_fetch_and_add(&loop->waits, 1);
	count_turn(&key, tid, loop, thread, thread->started_ns, now);
}

/* A thread leaves the CPU. */
static __always_inline void loop_waits(u32 tid, const struct sampled_thread *thread, u64 now)
{
	bool is_input = is_for_input(thread), is_work = is_for_work(thread);
	struct loop_key key = key_of(tid, thread, is_work);
	struct loop_state *loop;

	if (!is_input && !is_work)
		return;
	loop = bpf_map_lookup_elem(&loops, &key);
	if (!loop)
		loop = new_loop(&key, now);
	if (!loop)
		return;
	/* Its entry has ended the turn, if entries are seen. Otherwise this does. */
	if (!loop->entered && !is_looked_at(key.system_call))
		end_turn(&key, loop, thread, now);
	if (loop->busy_ns && now - loop->busy_ns > loop->longest_busy_ns)
		loop->longest_busy_ns = now - loop->busy_ns;
	loop->begin_ns = 0;
	loop->entered = 0;
	if (thread->stack != STACK_LOST)
		loop->stack = thread->stack;
	loop->waits += 1;
	loop->reads = thread->reason == WAIT_PIPE;
	if (is_input && !loop->announced && (!loop->reads || loop->waits >= READ_WAITS))
		announce(&key, loop);
}

/* A thread comes back from a time off the CPU that began at `start`. */
static __always_inline void loop_returns(u32 tid, const struct sampled_thread *thread, u64 start, u64 now)
{
	bool is_work = is_for_work(thread);
	struct loop_key key = key_of(tid, thread, is_work);
	struct loop_state *loop;

	if (!is_work && !is_for_input(thread))
		return;
	loop = bpf_map_lookup_elem(&loops, &key);
	if (!loop)
		return;
	loop->waited_ns += now - start;
	loop->busy_ns = now;
	begin_turn(loop, thread, now);
}

/* A thread gets the CPU again, and perhaps returns to a loop. */
static __always_inline void back_on_cpu(u32 tid, struct sampled_thread *thread, u64 now)
{
	u64 start = thread->off_cpu_ns;

	enter_cpu(tid, thread, now);
	loop_returns(tid, thread, start, now);
}

/* The current thread runs: it may have come back unseen. */
static __always_inline void came_back(u32 tid, struct sampled_thread *thread, u64 now)
{
	u64 start = thread->off_cpu_ns, back = came_back_unseen(tid, thread, bpf_get_current_task_btf(), now);

	if (back)
		loop_returns(tid, thread, start, back);
}

/* The current thread enters a system call in which a loop looks for input. */
static __always_inline void loop_looks(struct pt_regs *registers, u64 number)
{
	u64 ids = bpf_get_current_pid_tgid(), first_argument, bytes = 0, now;
	u32 pid = ids >> 32, tid = ids;
	struct loop_key key = { .pid = pid, .tid = tid, .system_call = number };
	struct sampled_thread *thread;
	struct loop_state *loop;

	if (!is_followed(pid))
		return;
	if (bpf_probe_read_kernel(&first_argument, sizeof(first_argument), &registers->FIRST_ARGUMENT))
		return;
	key.first_argument = place_argument(number, first_argument);
	loop = bpf_map_lookup_elem(&loops, &key);
	thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	if (!loop || !thread || thread->pid != pid)
		return;
	now = bpf_ktime_get_ns();
	/* its last wait belongs to the turn that ends here */
	came_back(tid, thread, now);
	if (!loop->reads || (!loop->header && now - loop->begin_ns >= SAME_MESSAGE_NS))
		end_turn(&key, loop, thread, now);
	if (loop->reads) {
		bpf_probe_read_kernel(&bytes, sizeof(bytes), &registers->THIRD_ARGUMENT);
		loop->header = !loop->header && bytes == HEADER_BYTES;
	}
	/* if the call does not wait, the next turn has begun with it */
	begin_turn(loop, thread, now);
	loop->entered = 1;
	count(COUNTER_LOOKS);
	count_many(COUNTER_LOOK_NS, bpf_ktime_get_ns() - now);
}

/* A system call is entered, by any thread of the machine: attached only while a loop looks whether there is input, as
 * asyncio's does while callbacks are ready, because such a call does not wait. The arguments: the registers, and the
 * number of the call. */
SEC("raw_tp/sys_enter")
int at_system_call(struct bpf_raw_tracepoint_args *context)
{
	if (is_looked_at(context->args[1]))
		loop_looks((struct pt_regs *)context->args[0], context->args[1]);
	return 0;
}

#endif
