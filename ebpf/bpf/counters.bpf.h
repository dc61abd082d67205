/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: performance counters of threads, in pauses and of whole processes.
 *
 * Software counters are those that the kernel keeps in each task; they are read from it. Hardware
 * counters (and the CPU clock, which is handled the same way) belong to a CPU: they are read
 * whenever a recorded thread is scheduled in or out, so that neither other threads nor migrations
 * distort them. None of that exists in the loaded programs if no such counter is requested.
 *
 * Not here: which counters a machine has, and opening them (user space).
 */
#ifndef GCTRACE_COUNTERS_H
#define GCTRACE_COUNTERS_H

/* Set before loading. */
const volatile bool count_software = false;
const volatile u32 hardware_mask = 0;  /* bit: enum hardware_counter                              */
const volatile u32 possible_cpus = 1;

/* Event of counter c on CPU n: index c * possible_cpus + n. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);        /* set before loading                                      */
	__type(key, u32);
	__type(value, u32);
} perf_events SEC(".maps");

/* Recorded processes: pid -> its counts. User space removes them, after the last thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, u32);
	__type(value, struct process_counts);
} process_counts SEC(".maps");

/* The same for hardware counters: in a map of its own, which takes no memory if there are none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);        /* set before loading                                      */
	__type(key, u32);
	__type(value, struct process_hardware);
} process_hardware SEC(".maps");

/* The recorded process running on a CPU, and the counters when it was scheduled in. */
struct cpu_hardware {
	u32 pid;               /* 0: none                                                         */
	u32 valid;             /* bit mask: counters in `base`                                    */
	u32 switches;          /* changes at every context switch                                 */
	u32 tid;               /* of the running thread                                           */
	struct hardware_counts base;
	struct hardware_counts now;     /* scratch space of sched_switch                          */
	struct hardware_counts at_exit; /* scratch space of everything else                       */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_hardware);
} cpu_hardware SEC(".maps");

enum counting {
	COUNTING_NOT = 0,      /* not in a pause, or at its start                                 */
	COUNTING_ON_CPU = 1,   /* since `base`                                                    */
	COUNTING_OFF_CPU = 2,
};

/* A thread inside a pause. */
struct thread_hardware {
	u32 counting;          /* enum counting                                                   */
	u32 switches;          /* times it left a CPU; shows interrupted readings                 */
	u32 valid;             /* bit mask: counters with a valid sum                             */
	u32 cpu;               /* of `base`                                                       */
	struct hardware_counts base;
	struct hardware_counts sum;     /* since the outermost pause began, up to `base`          */
	struct hardware_counts result;  /* of the last pause to end                               */
	u32 result_valid;
	u32 valid_at_begin[MAX_DEPTH];
	struct hardware_counts at_begin[MAX_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);        /* set before loading                                      */
	__type(key, u32);
	__type(value, struct thread_hardware);
} thread_hardware SEC(".maps");

/* Too large for the BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread_hardware);
} empty_thread_hardware SEC(".maps");

static __always_inline void read_software(const struct task_struct *task, struct software_counts *into)
{
	into->page_faults = task->min_flt + task->maj_flt;
	into->major_faults = task->maj_flt;
	into->context_switches = task->nvcsw + task->nivcsw;
	into->cpu_migrations = task->se.nr_migrations;
}

/* ---- hardware counters: arithmetic -------------------------------------------------------- */

/* Reads all counters of this CPU; returns a mask of those that could be read. */
static __always_inline u32 read_hardware(struct hardware_counts *into)
{
	u32 cpu = bpf_get_smp_processor_id(), valid = 0;

	for (u32 i = 0; i < HARDWARE_COUNTERS; i++) {
		if (!(hardware_mask & (1 << i)))
			continue;
		if (!bpf_perf_event_read_value(&perf_events, i * possible_cpus + cpu,
					       (struct bpf_perf_event_value *)&into->of[i], sizeof(into->of[i])))
			valid |= 1 << i;
	}
	return valid;
}

/* into += to - from */
static __always_inline void add_difference(struct hardware_counts *into, const struct hardware_counts *to,
					   const struct hardware_counts *from)
{
	for (u32 i = 0; i < HARDWARE_COUNTERS; i++) {
		if (!(hardware_mask & (1 << i)))
			continue;
		into->of[i].value += to->of[i].value - from->of[i].value;
		into->of[i].enabled_ns += to->of[i].enabled_ns - from->of[i].enabled_ns;
		into->of[i].running_ns += to->of[i].running_ns - from->of[i].running_ns;
	}
}

/* ---- hardware counters: pauses ------------------------------------------------------------ */

static __always_inline struct thread_hardware *thread_hardware_of(u32 tid)
{
	struct thread_hardware *own = bpf_map_lookup_elem(&thread_hardware, &tid);
	struct thread_hardware *empty;
	u32 zero = 0;

	if (own)
		return own;
	empty = bpf_map_lookup_elem(&empty_thread_hardware, &zero);
	if (!empty || bpf_map_update_elem(&thread_hardware, &tid, empty, BPF_NOEXIST))
		return 0;
	return bpf_map_lookup_elem(&thread_hardware, &tid);
}

/* What sched_switch changes while another program of the same thread reads it. */
#define READ_ONCE(place) (*(volatile typeof(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile typeof(place) *)&(place) = (value))

/* Stores the sum up to now in `result`; returns the mask of valid counters. */
static __always_inline u32 sum_up(struct thread_hardware *own)
{
	u32 switches = READ_ONCE(own->switches);
	u32 valid = read_hardware(&own->result) & own->valid;

	for (u32 i = 0; i < HARDWARE_COUNTERS; i++) {
		struct hardware_value *value = &own->result.of[i];

		if (!(hardware_mask & (1 << i)))
			continue;
		value->value += own->sum.of[i].value - own->base.of[i].value;
		value->enabled_ns += own->sum.of[i].enabled_ns - own->base.of[i].enabled_ns;
		value->running_ns += own->sum.of[i].running_ns - own->base.of[i].running_ns;
	}
	if (READ_ONCE(own->counting) != COUNTING_ON_CPU || own->cpu != bpf_get_smp_processor_id() ||
	    READ_ONCE(own->switches) != switches)
		return 0;
	return valid;
}

/* At the start of a pause. An entry left by an outermost pause that was cut short is reset here. */
static __always_inline void begin_hardware(u32 tid, u32 depth)
{
	struct thread_hardware *own = thread_hardware_of(tid);
	u32 switches;

	if (!own || depth >= MAX_DEPTH)
		return;
	if (depth) {
		own->valid_at_begin[depth] = sum_up(own);
		own->at_begin[depth] = own->result;
		return;
	}
	WRITE_ONCE(own->counting, COUNTING_NOT);
	__builtin_memset(&own->sum, 0, sizeof(own->sum));
	own->valid_at_begin[0] = hardware_mask;
	__builtin_memset(&own->at_begin[0], 0, sizeof(own->at_begin[0]));
	own->cpu = bpf_get_smp_processor_id();
	switches = READ_ONCE(own->switches);
	own->valid = read_hardware(&own->base);
	WRITE_ONCE(own->counting, COUNTING_ON_CPU);
	/* The thread left the CPU between reading and recording: the values include other
	 * threads. */
	if (READ_ONCE(own->switches) != switches)
		own->valid = 0;
}

/* At the end of a pause: stores its counts in `result`. */
static __always_inline void end_hardware(u32 tid, u32 depth)
{
	struct thread_hardware *own = bpf_map_lookup_elem(&thread_hardware, &tid);

	if (!own || depth >= MAX_DEPTH)
		return;
	own->result_valid = sum_up(own) & own->valid_at_begin[depth];
	for (u32 i = 0; i < HARDWARE_COUNTERS; i++) {
		if (!(hardware_mask & (1 << i)))
			continue;
		own->result.of[i].value -= own->at_begin[depth].of[i].value;
		own->result.of[i].enabled_ns -= own->at_begin[depth].of[i].enabled_ns;
		own->result.of[i].running_ns -= own->at_begin[depth].of[i].running_ns;
	}
	if (!depth)
		WRITE_ONCE(own->counting, COUNTING_NOT);
}

static __always_inline void put_hardware(struct counted_pause_event *event, u32 tid)
{
	struct thread_hardware *own = bpf_map_lookup_elem(&thread_hardware, &tid);

	event->asked = hardware_mask;
	event->valid = 0;
	if (own) {
		event->valid = own->result_valid;
		event->hardware = own->result;
	} else {
		__builtin_memset(&event->hardware, 0, sizeof(event->hardware));
	}
}

static __always_inline void thread_leaves_cpu(u32 tid, const struct cpu_hardware *here)
{
	struct thread_hardware *own = bpf_map_lookup_elem(&thread_hardware, &tid);

	if (!own)
		return;
	own->switches += 1;
	/* Leaves without having been scheduled in: a switch was missed. */
	if (own->counting == COUNTING_OFF_CPU)
		own->valid = 0;
	if (own->counting != COUNTING_ON_CPU)
		return;
	if (own->cpu != bpf_get_smp_processor_id())
		own->valid = 0;
	own->valid &= here->valid;
	add_difference(&own->sum, &here->now, &own->base);
	own->counting = COUNTING_OFF_CPU;
}

static __always_inline void thread_comes_to_cpu(u32 tid, const struct cpu_hardware *here)
{
	struct thread_hardware *own = bpf_map_lookup_elem(&thread_hardware, &tid);

	if (!own || own->counting == COUNTING_NOT)
		return;
	if (own->counting == COUNTING_ON_CPU)
		own->valid = 0;
	own->base = here->now;
	own->valid &= here->valid;
	own->cpu = bpf_get_smp_processor_id();
	own->counting = COUNTING_ON_CPU;
}

/* ---- hardware counters: processes --------------------------------------------------------- */

/* Adds the counts up to now to the process that the CPU runs. */
static __always_inline void account(const struct cpu_hardware *here, const struct hardware_counts *now, u32 valid)
{
	u32 pid = here->pid;
	struct process_hardware *process = bpf_map_lookup_elem(&process_hardware, &pid);

	valid &= here->valid;
	for (u32 i = 0; process && i < HARDWARE_COUNTERS; i++) {
		const struct hardware_value *from = &here->base.of[i], *to = &now->of[i];
		struct hardware_value *sum = &process->counts.of[i];
		s64 value = to->value - from->value;

		if (!(valid & (1 << i)) || value < 0)
			continue;
		__sync_fetch_and_add(&sum->value, value);
		__sync_fetch_and_add(&sum->enabled_ns, to->enabled_ns - from->enabled_ns);
		__sync_fetch_and_add(&sum->running_ns, to->running_ns - from->running_ns);
	}
}

/* The thread that leaves is not the one that was scheduled in: what ran since then is unknown, so
 * it is not attributed. */
static __always_inline void drop_interval(u32 pid)
{
	struct process_hardware *process = bpf_map_lookup_elem(&process_hardware, &pid);

	if (process)
		__sync_fetch_and_add(&process->dropped, 1);
}

/* At a switch: interrupts are off, so nothing else on this CPU accesses its entry. */
static __always_inline void switch_hardware(u32 previous, u32 previous_pid, u32 next, u32 next_pid)
{
	bool recorded = next_pid && is_followed(next_pid);
	struct cpu_hardware *here;
	u32 zero = 0, valid;

	here = bpf_map_lookup_elem(&cpu_hardware, &zero);
	if (!here)
		return;
	here->switches += 1;
	if (here->tid != previous)
		drop_interval(previous_pid);
	if (!here->pid && !recorded && !threads_in_pause) {
		here->tid = next;
		return;
	}
	valid = read_hardware(&here->now);
	if (here->pid && here->tid == previous)
		account(here, &here->now, valid);
	here->tid = next;
	here->valid = valid;
	here->pid = recorded ? next_pid : 0;
	here->base = here->now;
	if (!threads_in_pause)
		return;
	if (previous)
		thread_leaves_cpu(previous, here);
	if (next)
		thread_comes_to_cpu(next, here);
}

/* A thread exits, or execs another program: accounts for it up to now. */
static __always_inline void settle_hardware(u32 pid)
{
	struct cpu_hardware *here;
	u32 zero = 0, valid, switches;

	here = bpf_map_lookup_elem(&cpu_hardware, &zero);
	if (!here)
		return;
	switches = READ_ONCE(here->switches);
	valid = read_hardware(&here->at_exit);
	if (READ_ONCE(here->switches) != switches || here->pid != pid)
		return;
	account(here, &here->at_exit, valid);
	here->base = here->at_exit;
	here->valid = valid;
}

/* ---- processes ---------------------------------------------------------------------------- */

/* A process is forked: all of its tasks' counters start at 0. `until_exec`: work before its first
 * exec is not counted (gctrace starting the command). */
static __always_inline void begin_process_counts(u32 pid, u64 now, bool until_exec)
{
	struct process_counts counts = {};

	counts.since_ns = now;
	counts.until_exec = until_exec;
	if (count_software || hardware_mask)
		bpf_map_update_elem(&process_counts, &pid, &counts, BPF_ANY);
	if (hardware_mask) {
		struct process_hardware none = {};

		bpf_map_update_elem(&process_hardware, &pid, &none, BPF_ANY);
	}
}

/* The command execs: counting starts here. */
static __always_inline void restart_process_counts(u32 pid, u64 now)
{
	struct process_counts *counts = bpf_map_lookup_elem(&process_counts, &pid);
	const struct task_struct *task = bpf_get_current_task_btf();

	if (!counts || !counts->until_exec)
		return;
	counts->until_exec = 0;
	counts->since_ns = now;
	read_software(task, &counts->base);
	counts->base_run_ns = task->se.sum_exec_runtime;
	if (hardware_mask) {
		struct process_hardware none = {};

		settle_hardware(pid);
		bpf_map_update_elem(&process_hardware, &pid, &none, BPF_ANY);
	}
}

/* A thread exits: its task's counters are added to the sum. The kernel's own sum of exited threads
 * is complete only after they are reaped. */
static __always_inline void end_thread_counts(u32 pid)
{
	struct process_counts *counts = bpf_map_lookup_elem(&process_counts, &pid);
	const struct task_struct *task = bpf_get_current_task_btf();
	struct software_counts own;

	if (!counts)
		return;
	read_software(task, &own);
	__sync_fetch_and_add(&counts->ended.page_faults, own.page_faults);
	__sync_fetch_and_add(&counts->ended.major_faults, own.major_faults);
	__sync_fetch_and_add(&counts->ended.context_switches, own.context_switches);
	__sync_fetch_and_add(&counts->ended.cpu_migrations, own.cpu_migrations);
	__sync_fetch_and_add(&counts->ended_run_ns, task->se.sum_exec_runtime);
	if (hardware_mask)
		settle_hardware(pid);
}

#define PF_EXITING 4u /* include/linux/sched.h */

/* Writes one task_counts for each live thread of the processes in `process_counts`. */
SEC("iter/task")
int list_tasks(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct task_counts counts = {};

	/* An exiting thread is, or will shortly be, in its process's sum. */
	if (!task || (task->flags & PF_EXITING))
		return 0;
	counts.pid = task->tgid;
	if (!bpf_map_lookup_elem(&process_counts, &counts.pid))
		return 0;
	counts.tid = task->pid;
	read_software(task, &counts.software);
	counts.run_ns = task->se.sum_exec_runtime;
	bpf_seq_write(context->meta->seq, &counts, sizeof(counts));
	return 0;
}

#endif
