/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: pauses. Probes at the entry and the return of the collector's main function; a pause is the
 * change of the interpreter's own statistics in between. Not here: which processes are recorded
 * (process.bpf.c), where the probes are placed (user space).
 */

/* The count of a generation follows its threshold (struct gc_generation, every version). */
#define COUNT_AFTER_THRESHOLD 4

static __always_inline u32 reason_flags(struct pt_regs *registers, const struct point *point,
					const struct layout *layout, const struct thread *thread)
{
	u64 runtime = registers->PROGRAM_COUNTER + point->runtime_delta;
	u32 flags = 0;

	if (thread->in_gc_collect)
		flags |= PAUSE_IN_GC_COLLECT;
	if (thread->in_pygc_collect)
		flags |= PAUSE_IN_PYGC_COLLECT;
	if (layout->finalizing != NO_OFFSET && read_pointer(runtime + layout->finalizing))
		flags |= PAUSE_FINALIZING;
	if (point->nofail_register != REGISTER_NONE && (s32)argument(registers, point->nofail_register) == 1)
		flags |= PAUSE_NOFAIL;
	return flags;
}

/* Reads the gc state at the start: its counts and statistics. */
static __always_inline void note_state(struct thread *thread, struct open_pause *pause, const struct layout *layout)
{
	const struct block *block = &thread->block;

	for (u32 i = 0; i < GENERATIONS; i++)
		pause->counts[i] = layout->thresholds[i] == NO_OFFSET ? -1 :
			block_int(block, layout->thresholds[i] + pause->gc.shift + COUNT_AFTER_THRESHOLD);
	pause->nothing_to_do = layout->collecting_guards && block_int(block, layout->collecting) > 0;
	if (!read_statistics(layout, block, &pause->before))
		pause->flags |= PAUSE_NO_STATS;
}

/* The current stack; not taken for calls that have nothing to do. */
static __always_inline void note_stack(struct pt_regs *registers, const struct point *point, struct thread *thread,
				       struct open_pause *pause, const struct layout *layout,
				       const struct followed_process *process)
{
	u64 frame = pause->gc.frame;

	if (pause->nothing_to_do)
		return;
	if (!frame)
		frame = current_frame(&layout->frames, registers->PROGRAM_COUNTER + point->runtime_delta, pause->gc.interpreter);
	pause->stack = take_stack(&thread->walk, layout, point->layout, frame, thread->pid, process);
	if (pause->stack == STACK_LOST)
		pause->stack = 0;
}

/* MM_ANONPAGES (include/linux/mm_types_task.h) */
#define ANONYMOUS 1

/* Resident anonymous pages of the running process; -1 if they are unknown. */
static __always_inline s64 anonymous_pages(void)
{
	struct mm_struct *mm = BPF_CORE_READ((struct task_struct *)bpf_get_current_task_btf(), mm);
	struct mm_struct___summed *summed = (void *)mm;
	struct mm_struct___counted *counted = (void *)mm;

	if (bpf_core_field_exists(summed->rss_stat[ANONYMOUS].count))
		return BPF_CORE_READ(summed, rss_stat[ANONYMOUS].count);
	if (bpf_core_field_exists(counted->rss_stat.count[ANONYMOUS].counter))
		return BPF_CORE_READ(counted, rss_stat.count[ANONYMOUS].counter);
	return -1;
}

static __always_inline void begin_pause(struct pt_regs *registers, const struct point *point, u32 point_index,
					u32 tid, u32 pid, const struct followed_process *process)
{
	struct layout *layout = bpf_map_lookup_elem(&layouts, &point->layout);
	struct thread *thread = thread_of(tid, pid);
	struct open_pause *pause;
	u32 depth;

	if (!thread || !layout)
		return;
	depth = thread->depth;
	thread->depth = depth + 1;
	if (depth >= MAX_DEPTH) {
		count(COUNTER_LOST_DEPTH);
		return;
	}
	__sync_fetch_and_add(&threads_in_pause, 1);
	sampled_in_pause(tid, pid, 1);
	pause = &thread->pauses[depth];
	pause->stack = 0;
	for (u32 i = 0; i < GENERATIONS; i++)
		pause->counts[i] = -1;
	thread->switched_out_ns = 0;
	pause->off_cpu_at_begin = thread->off_cpu_ns;
	pause->missed_at_begin = thread->switches_missed;
	pause->stopped_ns = 0;
	pause->point = point_index;
	pause->generation_argument = point->generation_register == REGISTER_NONE ?
		point->fixed_generation : int_argument(registers, point->generation_register);
	pause->reason_argument = int_argument(registers, point->reason_register);
	pause->flags = reason_flags(registers, point, layout, thread);
	find_gc_state(registers, point, layout, &pause->gc, &thread->block);
	pause->nothing_to_do = 0;
	pause->incarnation = 0;
	if (pause->gc.address)
		note_state(thread, pause, layout);
	else
		pause->flags |= PAUSE_NO_STATS;
	/* If the interpreter was passed, or all share one collector; not the collector of another
	 * interpreter. */
	if (!(pause->flags & PAUSE_NO_STATS) && !pause->nothing_to_do &&
	    (point->tstate_register != REGISTER_NONE || layout->gc_in_runtime != NO_OFFSET))
		enter_collector(pause, pid, process);
	if (stack_depth)
		note_stack(registers, point, thread, pause, layout, process);
	if (count_software)
		read_software(bpf_get_current_task_btf(), &pause->software);
	if (hardware_mask)
		begin_hardware(tid, depth);
	pause->pages = anonymous_pages();
	/* Our own overhead is not part of the pause. */
	pause->start_ns = bpf_ktime_get_ns();
}

static __always_inline u64 moved(struct statistics *after, const struct statistics *before)
{
	u64 collections = 0;

	for (int i = 0; i < GENERATIONS; i++) {
		after->collections[i] -= before->collections[i];
		after->collected[i] -= before->collected[i];
		after->uncollectable[i] -= before->uncollectable[i];
		collections += after->collections[i];
	}
	return collections;
}

/* The ring is polled every few tens of milliseconds anyway: waking its reader for each pause would
 * cost the traced program more than the rest of the probe. */
static __always_inline u64 wake_flags(void)
{
	u64 filled = bpf_ringbuf_query(&pause_ring, BPF_RB_AVAIL_DATA);

	return filled > ring_bytes / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Only the main interpreter, with id 0, is remembered by address: a new one is often at the address
 * of the previous one. */
static __always_inline s64 interpreter_id(struct thread *thread, const struct layout *layout, u64 interpreter)
{
	s64 id = -1;

	if (!interpreter || layout->interpreter_id == NO_OFFSET)
		return -1;
	if (interpreter == thread->main_interpreter)
		return 0;
	bpf_probe_read_user(&id, sizeof(id), (void *)(interpreter + layout->interpreter_id));
	if (!id)
		thread->main_interpreter = interpreter;
	return id;
}

/* Fills in the fields from the copy of the gc state in `thread`; leaves them unknown without a
 * copy. */
static __always_inline void describe_heap(struct pause_event *event, const struct thread *thread,
					  const struct layout *layout, const struct open_pause *pause, bool copied)
{
	const struct block *block = &thread->block;

	event->oldest_objects = copied ? block_count(block, layout->long_lived_total) : -1;
	event->heap_objects = copied ? block_count(block, layout->heap_size) : -1;
	for (u32 i = 0; i < GENERATIONS; i++)
		event->thresholds[i] = copied ? block_int(block, layout->thresholds[i] + pause->gc.shift) : -1;
	event->enabled = copied ? block_int(block, layout->enabled) : -1;
}

static __always_inline struct pause_event *reserve_pause_event(u32 tid)
{
	struct counted_pause_event *counted;

	if (!hardware_mask)
		return bpf_ringbuf_reserve(&pause_ring, sizeof(struct pause_event), 0);
	counted = bpf_ringbuf_reserve(&pause_ring, sizeof(*counted), 0);
	if (!counted)
		return 0;
	put_hardware(counted, tid);
	return &counted->pause;
}

/* The thread's own counters minus those at the start. */
static __always_inline void count_pause(struct pause_event *event, const struct open_pause *pause)
{
	read_software(bpf_get_current_task_btf(), &event->software);
	event->software.page_faults -= pause->software.page_faults;
	event->software.major_faults -= pause->software.major_faults;
	event->software.context_switches -= pause->software.context_switches;
	event->software.cpu_migrations -= pause->software.cpu_migrations;
	event->flags |= PAUSE_COUNTED;
}

static __always_inline void send_pause(struct thread *thread, const struct open_pause *pause,
				       const struct layout *layout, u32 tid, u64 now, u32 flags, bool copied)
{
	struct pause_event *event = reserve_pause_event(tid);

	if (!event) {
		lose_collections(COUNTER_LOST_PAUSES, thread->pid, 1);
		return;
	}
	event->kind = EVENT_PAUSE;
	event->pid = thread->pid;
	event->tid = tid;
	event->flags = pause->flags | flags;
	event->start_ns = pause->start_ns;
	event->end_ns = now;
	event->off_cpu_ns = thread->off_cpu_ns - pause->off_cpu_at_begin;
	/* It is running: if it is recorded as off the CPU, it was scheduled in unseen. */
	if (thread->switched_out_ns || thread->switches_missed != pause->missed_at_begin)
		event->flags |= PAUSE_SWITCH_MISSED;
	event->stopped_ns = pause->stopped_ns;
	event->moved = thread->after;
	event->generation_argument = pause->generation_argument;
	event->reason_argument = pause->reason_argument;
	event->point = pause->point;
	event->stack = pause->stack;
	event->freed_pages = pause->pages < 0 ? 0 : pause->pages - anonymous_pages();
	for (u32 i = 0; i < GENERATIONS; i++)
		event->counts[i] = pause->counts[i];
	event->interpreter = interpreter_id(thread, layout, pause->gc.interpreter);
	describe_heap(event, thread, layout, pause, copied);
	if (count_software)
		count_pause(event, pause);
	else
		__builtin_memset(&event->software, 0, sizeof(event->software));
	bpf_ringbuf_submit(event, wake_flags());
}

static __always_inline const struct layout *layout_of(const struct open_pause *pause)
{
	struct point *point = bpf_map_lookup_elem(&points, &pause->point);

	return point ? bpf_map_lookup_elem(&layouts, &point->layout) : 0;
}

/* Sends the pause unless the call did nothing. */
static __always_inline void close_pause(struct thread *thread, struct open_pause *pause, u32 tid, u64 now)
{
	const struct layout *layout = layout_of(pause);
	u64 collections = 0;
	bool copied;

	if (!layout)
		return;
	if (pause->nothing_to_do) {
		count(COUNTER_NOTHING_DONE);
		return;
	}
	__builtin_memset(&thread->after, 0, sizeof(thread->after));
	copied = pause->gc.address &&
		 !bpf_probe_read_user(&thread->block, sizeof(thread->block), (void *)pause->gc.address);
	if (!copied || (pause->flags & PAUSE_NO_STATS) || !read_statistics(layout, &thread->block, &thread->after)) {
		pause->flags |= PAUSE_NO_STATS;
	} else {
		collections = moved(&thread->after, &pause->before);
	}
	leave_collector(pause, thread->pid, collections);
	if (!(pause->flags & PAUSE_NO_STATS) && !collections && !layout->stats_incomplete) {
		count(COUNTER_NOTHING_DONE);
		return;
	}
	send_pause(thread, pause, layout, tid, now, 0, copied);
}

static __always_inline void end_pause(struct thread *thread, u32 tid, u64 now)
{
	u32 open = thread->depth;
	u64 depth;

	if (!open)
		return;
	thread->depth = open - 1;
	depth = open - 1;
	/* One register for the comparison and the uses; otherwise the verifier does not connect
	 * them. */
	asm volatile("" : "+r"(depth));
	if (depth < MAX_DEPTH) {
		__sync_fetch_and_add(&threads_in_pause, -1);
		sampled_in_pause(tid, thread->pid, -1);
		if (hardware_mask)
			end_hardware(tid, depth);
		close_pause(thread, &thread->pauses[depth], tid, now);
	}
}

static __always_inline void enter_explicit(u32 kind, u32 tid, u32 pid)
{
	struct thread *thread = thread_of(tid, pid);

	if (!thread)
		return;
	if (kind == POINT_GC_COLLECT)
		thread->in_gc_collect += 1;
	else
		thread->in_pygc_collect += 1;
}

static __always_inline void leave_explicit(u32 kind, struct thread *thread)
{
	if (kind == POINT_GC_COLLECT && thread->in_gc_collect)
		thread->in_gc_collect -= 1;
	else if (kind == POINT_PYGC_COLLECT && thread->in_pygc_collect)
		thread->in_pygc_collect -= 1;
}

/* From the request to the release: the time that other threads lose to this collection. */
static __always_inline void world(u32 kind, u32 tid, u64 now)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	u32 depth;

	if (!thread || !thread->depth)
		return;
	if (kind == POINT_STOP_WORLD) {
		if (!thread->world_stopped_ns)
			thread->world_stopped_ns = now;
		return;
	}
	depth = thread->depth - 1;
	if (thread->world_stopped_ns && depth < MAX_DEPTH)
		thread->pauses[depth].stopped_ns += now - thread->world_stopped_ns;
	thread->world_stopped_ns = 0;
}

/* One hit of this many, a power of two, is timed: reading the clock costs as much as a lookup. */
#define HITS_TIMED 8

/* What the program takes of the thread's time at one end of a probed function. */
struct timed_hit {
	u64 since_ns; /* 0: it is not timed */
	u64 switches;
};

static __always_inline u64 own_switches(void)
{
	const struct task_struct *task = bpf_get_current_task_btf();

	return task->nvcsw + task->nivcsw;
}

static __always_inline void begin_timed(struct timed_hit *hit, u64 now)
{
	hit->since_ns = time_every_hit || !((now >> 4) & (HITS_TIMED - 1)) ? now : 0;
	hit->switches = hit->since_ns ? own_switches() : 0;
}

/* Time in which others ran is no cost. */
static __always_inline void end_timed(const struct timed_hit *hit, u32 kind)
{
	if (!hit->since_ns || kind >= POINT_KINDS || hit->switches != own_switches())
		return;
	count(COUNTER_TIMED + kind);
	count_many(COUNTER_TIMED_NS + kind, bpf_ktime_get_ns() - hit->since_ns);
}

static __always_inline struct point *point_of(struct pt_regs *context, u32 *index, u32 pid,
					      struct followed_process **process)
{
	struct point *point;
	u32 kind;

	*index = bpf_get_attach_cookie(context);
	point = bpf_map_lookup_elem(&points, index);
	if (!point)
		return 0;
	kind = point->kind;
	if (kind >= POINT_KINDS || point->except == pid)
		return 0;
	*process = bpf_map_lookup_elem(&followed, &pid);
	if (!*process) {
		count(COUNTER_FOREIGN_HITS + kind);
		return 0;
	}
	count(COUNTER_HITS + kind);
	return point;
}

/* Whether the function's return is of interest as well. */
static __always_inline bool entered(struct pt_regs *context, u64 now)
{
	u64 ids = bpf_get_current_pid_tgid();
	u32 pid = ids >> 32, tid = ids, index;
	struct followed_process *process;
	struct point *point = point_of(context, &index, pid, &process);
	struct timed_hit hit;
	bool has_return = false;

	if (!point)
		return false;
	begin_timed(&hit, now);
	note_interpreter(process, point, context->PROGRAM_COUNTER);
	switch (point->kind) {
	case POINT_COLLECT:
		begin_pause(context, point, index, tid, pid, process);
		has_return = true;
		break;
	case POINT_USDT_START:
		begin_pause(context, point, index, tid, pid, process);
		break;
	case POINT_USDT_DONE: {
		struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

		if (thread)
			end_pause(thread, tid, bpf_ktime_get_ns());
		break;
	}
	case POINT_GC_COLLECT:
	case POINT_PYGC_COLLECT:
		enter_explicit(point->kind, tid, pid);
		has_return = true;
		break;
	case POINT_STOP_WORLD:
	case POINT_START_WORLD:
		world(point->kind, tid, bpf_ktime_get_ns());
		break;
	case POINT_CODE_DEALLOC:
		forget_code(argument(context, 1), pid);
		break;
	case POINT_PROGRAM_ENTRY:
		stop_at_program_entry(pid, bpf_ktime_get_ns());
		break;
	}
	end_timed(&hit, point->kind);
	return has_return;
}

static __always_inline void returned(struct pt_regs *context, u64 now)
{
	u64 ids = bpf_get_current_pid_tgid();
	u32 pid = ids >> 32, tid = ids;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct timed_hit hit;
	struct point *point;
	u32 index;

	if (!thread)
		return;
	begin_timed(&hit, now);
	index = bpf_get_attach_cookie(context);
	point = bpf_map_lookup_elem(&points, &index);
	if (!point || point->except == pid)
		return;
	if (point->kind == POINT_COLLECT)
		end_pause(thread, tid, now);
	else
		leave_explicit(point->kind, thread);
	end_timed(&hit, point->kind);
}

SEC("uprobe.multi")
int at_entry(struct pt_regs *context)
{
	u64 now = bpf_ktime_get_ns();

	stay_on_thread_stack(context);
	entered(context, now);
	return 0;
}

SEC("uprobe.multi")
int at_return(struct pt_regs *context)
{
	u64 now = bpf_ktime_get_ns();

	stay_on_thread_stack(context);
	returned(context, now);
	return 0;
}

/* Both ends of a function. If it returns 1 at the entry, the kernel places no return probe for this
 * call: a process that is not recorded pays for one trap instead of two. */
SEC("uprobe.session")
int at_both_ends(struct pt_regs *context)
{
	u64 now = bpf_ktime_get_ns();

	stay_on_thread_stack_in_session(context);
	/* The address of the probe; at the return the program counter is that of the caller. */
	if (bpf_get_func_ip(context) == context->PROGRAM_COUNTER)
		return !entered(context, now);
	returned(context, now);
	return 0;
}
