/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: samples of what the threads of recorded processes execute, taken by a clock of each CPU
 * (perf_event_open(2), PERF_COUNT_SW_CPU_CLOCK), and where they were for how long off the CPU. A
 * separate object, loaded for --sample only; the maps of maps.bpf.h, stack.bpf.h and sampled_thread.bpf.h are
 * the session's.
 *
 * A sample is taken in an interrupt of the thread: its Python frames do not change meanwhile. While
 * another program of this CPU runs, there is none (bpf_prog_active in the kernel).
 *
 * The stack of a thread that leaves the CPU is taken at the switch: its memory is not the current one
 * any more when it comes back. Whether the wait will be long is unknown then: a budget limits the time
 * for stacks of short ones. Interrupts are off during a switch, so that both programs use the same
 * scratch space.
 *
 * A thread that waits already when the recording of its process begins left the CPU unseen: it is found among
 * the tasks, and its wait begins then.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.bpf.h"
#include "arch.bpf.h"
#include "cpython.bpf.h"
#include "stack.bpf.h"
#include "sampled_thread.bpf.h"
#include "loop.bpf.h"

/* The kernel has bpf_loop (5.17), whose body the verifier checks once: of 29,000 instructions that it
 * checks in each program here, 22,000 are a search in a loop of C. */
const volatile bool has_loops = false;

/* Thread states and interpreters that are searched for a thread; a thread beyond has no stack. */
#define MAX_SEARCHED 256
/* A thread without a thread state is searched for again after this time: a native one, or one that
 * Python has only just started. */
#define SEARCH_AGAIN_NS 100000000ull
/* One part of this many of a CPU's time goes into stacks of threads that leave it: 0.2 %. */
#define SWITCH_BUDGET 500
/* One switch of this many, a power of two, is measured. */
#define COST_SAMPLED 64
/* What it may save up. */
#define SWITCH_BUDGET_NS 10000000ull
/* A native thread that wakes another one so soon after it was woken passes something on: 1 ms. */
#define PASSES_ON_NS 1000000ull
/* include/linux/sched.h: bits of a task's state */
#define TASK_STOPPED_OR_TRACED (4 | 8)
/* those, TASK_INTERRUPTIBLE and TASK_UNINTERRUPTIBLE */
#define TASK_WAITS (TASK_STOPPED_OR_TRACED | 1 | 2)
#define TASK_DEAD 0x80
/* A GIL of CPython 3.12 and newer has 208 bytes, PyMutex included; the older ones lie in the first of
 * _PyRuntime. Pages hold nothing else that is waited for by futex. */
#define GIL_BYTES 256
#define RUNTIME_BYTES 4096

/* A struct walk is too large for the BPF stack. One for each CPU: interrupts do not nest. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} sample_walk SEC(".maps");

/* The same for calls, in which samples and switches come. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} launch_walk SEC(".maps");

/* The same for threads that start another one. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} start_walk SEC(".maps");

/* What is left of the budget of a CPU, and since when. */
struct switch_budget {
	u64 earned_ns;
	s64 left_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct switch_budget);
} switch_budgets SEC(".maps");

/* What pthread_self() returns in a thread; 0 if unknown. glibc and musl on x86-64: the base of
 * its fs segment. On arm64 it lies below the thread pointer, by the size of the library's struct. */
static __always_inline u64 thread_id(const struct task_struct *task)
{
#if defined(__TARGET_ARCH_arm64)
	return 0;
#else
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

/* Reasons of waits by system call, set before loading: enum wait_reason. */
const volatile u8 reasons_of_calls[SYSTEM_CALLS] = {};

/* A search for the state of a thread, in all interpreters of the process. */
struct search {
	const struct layout *layout;
	u64 thread_id;
	u64 interpreter;
	u64 tstate;            /* the next that is compared, or that of the thread if it is found  */
	bool is_found;
};

/* Compares a thread state, or goes on to the next interpreter; 1 ends the search. */
static long search_on(u32 index, struct search *search)
{
	const struct layout *layout = search->layout;

	(void)index;
	if (!search->interpreter)
		return 1;
	if (!search->tstate) {
		search->interpreter = read_pointer(search->interpreter + layout->frames.interpreter_next);
		if (search->interpreter)
			search->tstate = read_pointer(search->interpreter + layout->frames.interpreter_threads);
		return 0;
	}
	if (read_pointer(search->tstate + layout->frames.tstate_thread_id) == search->thread_id) {
		search->is_found = true;
		return 1;
	}
	search->tstate = read_pointer(search->tstate + layout->frames.tstate_next);
	return 0;
}

/* The thread state of the thread, in any interpreter of the process. */
__noinline u64 find_thread_state(u64 runtime, const struct layout *layout, u64 thread_id)
{
	struct search search = { .layout = layout, .thread_id = thread_id };

	if (!layout || !thread_id)
		return 0;
	search.interpreter = read_pointer(runtime + layout->interpreters_head);
	if (search.interpreter)
		search.tstate = read_pointer(search.interpreter + layout->frames.interpreter_threads);
	if (has_loops)
		bpf_loop(MAX_SEARCHED, search_on, &search, 0);
	else
		for (u32 i = 0; i < MAX_SEARCHED; i++)
			if (search_on(i, &search))
				break;
	return search.is_found ? search.tstate : 0;
}

/* The same, remembered while it belongs to the thread. */
static __always_inline u64 thread_state(u32 tid, u32 pid, const struct followed_process *process,
					const struct layout *layout, u64 now)
{
	struct sampled_thread *known = bpf_map_lookup_elem(&sampled_threads, &tid);
	u64 tstate, id = thread_id((const struct task_struct *)bpf_get_current_task());

	if (known && known->pid == pid) {
		if (known->tstate && read_pointer(known->tstate + layout->frames.tstate_thread_id) == id)
			return known->tstate;
		if (!known->tstate && now - known->searched_ns < SEARCH_AGAIN_NS)
			return 0;
	}
	tstate = find_thread_state(process->runtime, layout, id);
	if (!known || known->pid != pid)
		known = new_thread(tid, pid, BPF_ANY);
	if (known) {
		known->tstate = tstate;
		known->searched_ns = now;
	}
	return tstate;
}

/* The stack of the current thread; 0: no Python frame, STACK_LOST: it could not be sent. */
static __always_inline u64 current_stack(void *walks, u32 tid, u32 pid, const struct followed_process *process,
					 const struct layout *layout, u64 now, u64 *tstate)
{
	u32 zero = 0;
	struct walk *walk = bpf_map_lookup_elem(walks, &zero);

	if (walk && layout && layout->frames.tstate_frame != NO_OFFSET)
		*tstate = thread_state(tid, pid, process, layout, now);
	if (!*tstate)
		return 0;
	return take_stack(walk, layout, process->layout, read_pointer(*tstate + layout->frames.tstate_frame), pid,
			  process);
}

SEC("perf_event")
int at_sample(struct bpf_perf_event_data *context)
{
	u64 ids = bpf_get_current_pid_tgid(), now, stack, tstate = 0;
	u32 pid = ids >> 32, tid = ids, flags = 0;
	const struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	const struct layout *layout;
	struct sampled_thread *thread;
	struct sample_event *event;

	if (!process)
		return 0;
	now = bpf_ktime_get_ns();
	count(COUNTER_SAMPLES);
	layout = process->runtime ? bpf_map_lookup_elem(&layouts, &process->layout) : 0;
	stack = current_stack(&sample_walk, tid, pid, process, layout, now, &tstate);
	thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	if (thread && thread->pid == pid) {
		came_back(tid, thread, now);
		if (thread->pauses)
			flags |= SAMPLE_IN_PAUSE;
	}
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
	event->stack = stack == STACK_LOST ? 0 : stack;
	event->instruction = flags & SAMPLE_IN_KERNEL ? 0 : context->regs.PROGRAM_COUNTER;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	count_many(COUNTER_SAMPLE_NS, bpf_ktime_get_ns() - now);
	return 0;
}

static __always_inline u32 task_state(const struct task_struct *task)
{
	const struct task_struct___int *with_int = (const void *)task;
	const struct task_struct___long *with_long = (const void *)task;

	if (bpf_core_field_exists(with_int->__state))
		return BPF_CORE_READ(with_int, __state);
	return BPF_CORE_READ(with_long, state);
}

/* Whether a futex is that of the GIL. */
static __always_inline bool is_gil(u64 futex, const struct followed_process *process, const struct layout *layout,
				   u64 tstate)
{
	u64 interpreter;

	if (!layout || !tstate)
		return false;
	if (layout->frames.interpreter_gil == NO_OFFSET)
		return futex - process->runtime < RUNTIME_BYTES;
	interpreter = read_pointer(tstate + layout->tstate_interpreter);
	return futex - read_pointer(interpreter + layout->frames.interpreter_gil) < GIL_BYTES;
}

/* Whether the stack of a thread that leaves the CPU is taken; `budget` is what pays for it. */
static __always_inline bool has_budget(struct switch_budget *budget, const struct sampled_thread *thread, u64 now)
{
	u64 earned = (now - budget->earned_ns) / SWITCH_BUDGET;

	/* a nanosecond of budget at least, so that none is lost by rounding */
	if (earned) {
		budget->earned_ns = now;
		budget->left_ns += earned > SWITCH_BUDGET_NS ? SWITCH_BUDGET_NS : earned;
		if (budget->left_ns > (s64)SWITCH_BUDGET_NS)
			budget->left_ns = SWITCH_BUDGET_NS;
	}
	return budget->left_ns > 0 || thread->last_was_long;
}

/* What a thread that is not runnable waits for. `system_call` is negative in a fault. */
static __always_inline u32 wait_reason(const struct task_struct *task, u32 state, s64 system_call,
				       u64 first_argument)
{
	u32 reason = WAIT_OTHER;
	u64 number = system_call;

	if (state & TASK_STOPPED_OR_TRACED)
		return WAIT_STOPPED;
	if (system_call < 0)
		return WAIT_PAGE_FAULT;
	if (BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
		return WAIT_DISK;
	/* One register for the comparison and the use; otherwise the verifier of 6.1 does not connect them. */
	barrier_var(number);
	if (number < SYSTEM_CALLS)
		reason = reasons_of_calls[number];
	/* no files to select: time.sleep() until Python 3.10 */
	return reason == WAIT_POLL && !first_argument ? WAIT_SLEEP : reason;
}

/* The system call that a thread is in, by the registers with which it entered the kernel. */
static __always_inline bool read_system_call(const struct pt_regs *registers, s64 *system_call,
					     u64 *first_argument)
{
	u64 number = 0;

	if (bpf_probe_read_kernel(&number, sizeof(registers->SYSTEM_CALL), &registers->SYSTEM_CALL) ||
	    bpf_probe_read_kernel(first_argument, sizeof(*first_argument), &registers->FIRST_ARGUMENT))
		return false;
	*system_call = sizeof(registers->SYSTEM_CALL) == 4 ? (s64)(s32)number : (s64)number;
	return true;
}

/* The current thread leaves the CPU. */
static __always_inline void leave_cpu(u32 tid, u32 pid, const struct followed_process *process, bool preempted,
				      u64 now)
{
	struct sampled_thread *thread = bpf_map_lookup_elem(&sampled_threads, &tid);
	struct task_struct *task = bpf_get_current_task_btf();
	u32 state = task_state(task), reason = WAIT_CPU, zero = 0;
	u64 stack = STACK_LOST, tstate = 0;
	struct switch_budget *budget;
	const struct layout *layout;
	u64 first_argument = 0;
	s64 system_call = -1;

	if (state & TASK_DEAD)
		return;
	if (thread && thread->pid == pid)
		came_back(tid, thread, now);
	if (!thread || thread->pid != pid)
		thread = new_thread(tid, pid, BPF_ANY);
	if (!thread)
		return;
	budget = bpf_map_lookup_elem(&switch_budgets, &zero);
	if (preempted || !state) {
		/* it may be anywhere */
		stack = 0;
	} else if (read_system_call((struct pt_regs *)bpf_task_pt_regs(task), &system_call, &first_argument)) {
		layout = process->runtime ? bpf_map_lookup_elem(&layouts, &process->layout) : 0;
		if (budget && has_budget(budget, thread, now)) {
			stack = current_stack(&sample_walk, tid, pid, process, layout, now, &tstate);
			budget->left_ns -= bpf_ktime_get_ns() - now;
		} else if (layout && layout->frames.tstate_frame != NO_OFFSET) {
			thread_state(tid, pid, process, layout, now);
		}
		/* the entry may be another one now */
		thread = bpf_map_lookup_elem(&sampled_threads, &tid);
		if (!thread)
			return;
		reason = wait_reason(task, state, system_call, first_argument);
		if (system_call == FUTEX && is_gil(first_argument, process, layout, thread->tstate))
			reason = WAIT_GIL;
		first_argument = place_argument(system_call, first_argument);
	} else {
		reason = WAIT_OTHER;
	}
	thread->flags = thread->pauses ? OFF_CPU_IN_PAUSE : 0;
	thread->off_cpu_ns = now;
	thread->woken_ns = 0;
	thread->ran_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
	thread->stack = stack;
	thread->system_call = system_call < 0 ? -1 : system_call;
	thread->first_argument = first_argument;
	thread->reason = reason;
	loop_waits(tid, thread, now);
}

/* The arguments: whether it is a preemption, the current task, and the next one. */
SEC("raw_tp/sched_switch")
int at_switch(struct bpf_raw_tracepoint_args *context)
{
	u64 ids = bpf_get_current_pid_tgid(), now = 0;
	const struct task_struct *next = (const struct task_struct *)context->args[2];
	u32 pid = ids >> 32, tid = ids, next_tid = BPF_CORE_READ(next, pid);
	const struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	struct sampled_thread *thread;

	/* the idle task is no thread */
	thread = next_tid ? bpf_map_lookup_elem(&sampled_threads, &next_tid) : 0;
	if (!process && (!thread || !thread->off_cpu_ns))
		return 0;
	now = bpf_ktime_get_ns();
	if (thread && thread->off_cpu_ns && thread->pid == (u32)BPF_CORE_READ(next, tgid))
		back_on_cpu(next_tid, thread, now);
	if (process && tid)
		leave_cpu(tid, pid, process, context->args[0], now);
	/* reading the clock costs as much as a lookup: one of COST_SAMPLED is measured */
	if (!((now >> 4) & (COST_SAMPLED - 1))) {
		count_many(COUNTER_SWITCHES, COST_SAMPLED);
		count_many(COUNTER_SWITCH_NS, COST_SAMPLED * (bpf_ktime_get_ns() - now));
	}
	return 0;
}

/* The process that wakes a thread now: of the current thread. A thread without Python that was woken just before
 * passes on what it was woken for, as the threads for input and output of libzmq do. 0 in an interrupt, which may come
 * from anywhere. */
static __always_inline u32 waking_process(u64 now)
{
	u64 ids = bpf_get_current_pid_tgid(), first_argument;
	u32 tid = ids;
	struct sampled_thread *waker = bpf_map_lookup_elem(&sampled_threads, &tid);
	s64 system_call = -1;

	if (!read_system_call((struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf()), &system_call,
			      &first_argument) || system_call < 0)
		return 0;
	if (waker && !waker->tstate && now - waker->woken_ns < PASSES_ON_NS)
		return waker->woken_by;
	return ids >> 32;
}

/* A thread is woken. The argument: its task. */
SEC("raw_tp/sched_waking")
int at_waking(struct bpf_raw_tracepoint_args *context)
{
	u32 tid = BPF_CORE_READ((const struct task_struct *)context->args[0], pid);
	struct sampled_thread *thread = bpf_map_lookup_elem(&sampled_threads, &tid);

	if (!thread || !thread->off_cpu_ns || thread->woken_ns)
		return 0;
	thread->woken_ns = bpf_ktime_get_ns();
	thread->woken_by = waking_process(thread->woken_ns);
	return 0;
}

/* A thread starts another one; the arguments: both tasks. Before it runs, it has the stack that started it. */
SEC("raw_tp/sched_process_fork")
int at_thread_start(struct bpf_raw_tracepoint_args *context)
{
	const struct task_struct *child = (const struct task_struct *)context->args[1];
	u32 pid = BPF_CORE_READ(child, tgid), tid = BPF_CORE_READ(child, pid);
	u64 ids = bpf_get_current_pid_tgid(), now, stack, tstate = 0;
	const struct followed_process *process = tid == pid ? 0 : bpf_map_lookup_elem(&followed, &pid);
	struct sampled_thread *thread;

	if (!process || !process->runtime)
		return 0;
	now = bpf_ktime_get_ns();
	stack = current_stack(&start_walk, ids, pid, process, bpf_map_lookup_elem(&layouts, &process->layout), now,
			      &tstate);
	thread = stack && stack != STACK_LOST ? new_thread(tid, pid, BPF_ANY) : 0;
	if (thread) {
		thread->started_ns = now;
		thread->started_by = stack;
	}
	return 0;
}

/* The current thread exits. */
SEC("raw_tp/sched_process_exit")
int at_thread_end(void *context)
{
	u64 ids = bpf_get_current_pid_tgid(), now;
	u32 pid = ids >> 32, tid = ids;
	struct sampled_thread *thread = bpf_map_lookup_elem(&sampled_threads, &tid);

	(void)context;
	if (!thread || thread->pid != pid || !thread->started_by)
		return 0;
	now = bpf_ktime_get_ns();
	came_back(tid, thread, now);
	thread_ends(tid, thread, now);
	return 0;
}

/* A thread launches a function of the host (cuLaunchHostFunc), for which a stream will wait: the call is too
 * short for samples, so its stack is taken here, as of a time off the CPU without a length. */
SEC("uprobe.multi")
int at_host_launch(struct pt_regs *context)
{
	u64 ids = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), stack, tstate = 0;
	u32 pid = ids >> 32, tid = ids;
	const struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	struct off_cpu_event *event;

	stay_on_thread_stack(context);
	if (!process || !process->runtime)
		return 0;
	stack = current_stack(&launch_walk, tid, pid, process, bpf_map_lookup_elem(&layouts, &process->layout), now,
			      &tstate);
	if (!stack || stack == STACK_LOST)
		return 0;
	event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);
	if (!event) {
		count(COUNTER_LOST_OFF_CPU);
		return 0;
	}
	event->kind = EVENT_OFF_CPU;
	event->pid = pid;
	event->tid = tid;
	event->flags = OFF_CPU_AT_LAUNCH;
	event->start_ns = now;
	event->end_ns = now;
	event->stack = stack;
	event->reason = WAIT_DRIVER;
	event->woken_by = 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Begins the wait of each thread of recorded processes that waits already and of which no switch was seen, and
 * writes it: its start is now. */
SEC("iter/task")
int list_waits(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct sampled_thread *thread;
	struct earlier_wait wait = {};
	u64 first_argument = 0;
	s64 system_call = -1;
	u32 state;

	if (!task)
		return 0;
	wait.pid = task->tgid;
	wait.tid = task->pid;
	state = task_state(task);
	if (!(state & TASK_WAITS) || !bpf_map_lookup_elem(&followed, &wait.pid))
		return 0;
	read_system_call((struct pt_regs *)bpf_task_pt_regs(task), &system_call, &first_argument);
	wait.start_ns = bpf_ktime_get_ns();
	wait.thread_id = thread_id(task);
	thread = new_thread(wait.tid, wait.pid, BPF_NOEXIST);
	if (!thread)
		return 0;
	thread->ran_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
	thread->stack = STACK_LOST;
	thread->system_call = system_call < 0 ? -1 : system_call;
	thread->first_argument = first_argument;
	thread->reason = wait_reason(task, state, system_call, first_argument);
	thread->off_cpu_ns = wait.start_ns;
	/* It may have come back before its wait was noted: it was woken before then. */
	if (!(task_state(task) & TASK_WAITS)) {
		thread->off_cpu_ns = 0;
		return 0;
	}
	bpf_seq_write(context->meta->seq, &wait, sizeof(wait));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
