/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: which processes are recorded, and their lifecycle events.
 */

static __always_inline struct process_event *reserve_process_event(u32 kind, u32 pid, u64 now)
{
	struct process_event *event = bpf_ringbuf_reserve(&process_ring, sizeof(*event), 0);

	if (!event) {
		count(COUNTER_LOST_PROCESS_EVENTS);
		return 0;
	}
	event->kind = kind;
	event->pid = pid;
	event->parent = 0;
	event->stop = STOP_NOT_NEEDED;
	event->at_ns = now;
	event->file.inode = 0;
	event->file.device = 0;
	event->exit_code = 0;
	event->known = 0;
	event->library = LIBRARY_NONE;
	event->parent_stopped = 0;
	event->by_thread = 0;
	event->reserved = 0;
	return event;
}

/* Stops the process of an event, and stores the result in the event. */
static __always_inline void stop_for(struct process_event *event, bool attached)
{
	event->parent_stopped = parent_is_stopped();
	event->stop = attached ? STOP_SEEN : stop_program(event->pid, event->at_ns);
}

static __always_inline void stop_at_program_entry(u32 pid, u64 now)
{
	struct process_event *event = reserve_process_event(EVENT_PROGRAM_ENTRY, pid, now);

	if (!event)
		return;
	stop_for(event, false);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

/* include/linux/sched/coredump.h; TASK_DUMPABLE_OWNER of 7.x is the same number */
#define DUMPABLE_MASK 3
#define DUMPABLE_BY_USER 1

/* Whether a process can be inspected by its own user: not one that runs a setuid program, or a
 * program that its user may not read. The name of the field in kernels after those of vmlinux.h is
 * unknown: user space asks the kernel. */
static __always_inline bool is_dumpable(struct task_struct *task)
{
	struct task_struct___state *with_state = (void *)task;
	struct mm_struct___word *word = (void *)BPF_CORE_READ(task, mm);
	struct mm_struct___bitmap *bitmap = (void *)word;
	unsigned long flags = DUMPABLE_BY_USER;

	if (bpf_core_field_exists(with_state->exec_state))
		flags = BPF_CORE_READ(with_state, exec_state, dumpable);
	else if (bpf_core_field_exists(word->flags))
		flags = BPF_CORE_READ(word, flags);
	else if (bpf_core_field_exists(bitmap->flags.__mm_flags))
		bpf_core_read(&flags, sizeof(flags), &bitmap->flags.__mm_flags);
	return (flags & DUMPABLE_MASK) == DUMPABLE_BY_USER;
}

/* The checks of __ptrace_may_access (kernel/ptrace.c) and cap_ptrace_access_check
 * (security/commoncap.c) for a user without capabilities. A process in a user namespace may have
 * any capability in it: user space checks those of its own user. */
static __always_inline bool may_follow(struct task_struct *task)
{
	const struct cred *cred;
	u64 permitted = 0; /* two words until 6.2 */
	u32 user = follow_only_user, group = follow_only_group;

	if (user == ANY_USER)
		return true;
	cred = BPF_CORE_READ(task, real_cred);
	if (BPF_CORE_READ(cred, uid.val) != user || BPF_CORE_READ(cred, euid.val) != user ||
	    BPF_CORE_READ(cred, suid.val) != user || BPF_CORE_READ(cred, gid.val) != group ||
	    BPF_CORE_READ(cred, egid.val) != group || BPF_CORE_READ(cred, sgid.val) != group)
		return false;
	bpf_core_read(&permitted, sizeof(permitted), &cred->cap_permitted);
	if (permitted && !BPF_CORE_READ(cred, user_ns, level))
		return false;
	return is_dumpable(task);
}

static __always_inline void abandon_pauses(u32 tid, u64 now);
static __always_inline void copy_pauses_to_child(u32 parent_tid, u32 child, u64 now);

/* The event of a new child that is recorded, not yet sent; 0 if there is none. */
static __always_inline struct process_event *forked(struct task_struct *parent,
						    struct task_struct *child)
{
	u32 parent_pid = BPF_CORE_READ(parent, tgid);
	u32 child_pid = BPF_CORE_READ(child, tgid);
	u32 child_tid = BPF_CORE_READ(child, pid);
	bool launched = launcher_pid && parent_pid == launcher_pid;
	struct process_event *event;
	struct followed_process process = {}, *known;
	u64 now;

	if (child_pid != child_tid) /* a thread */
		return 0;
	known = bpf_map_lookup_elem(&followed, &parent_pid);
	if (!launched && (parent_pid == gctrace_pid || !follow_children || !known))
		return 0;
	now = bpf_ktime_get_ns();
	process.incarnation = incarnation_at(now);
	if (known) {
		process.layout = known->layout;
		process.runtime = known->runtime;
	}
	if (bpf_map_update_elem(&followed, &child_pid, &process, BPF_ANY)) {
		count(COUNTER_LOST_PROCESSES);
		return 0;
	}
	count(COUNTER_FORKS);
	begin_process_counts(child_pid, now, launched);
	copy_pauses_to_child(BPF_CORE_READ(parent, pid), child_pid, now);
	event = reserve_process_event(EVENT_FORK, child_pid, now);
	if (event)
		event->parent = parent_pid;
	return event;
}

SEC("raw_tp/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *context)
{
	struct process_event *event = forked((struct task_struct *)context->args[0],
					     (struct task_struct *)context->args[1]);

	if (event)
		bpf_ringbuf_submit(event, 0);
	return 0;
}

/* In place of on_fork where children can be stopped: as long as others wait for probes, they are. A
 * child that runs in its parent's memory (vfork) is stopped at its exec: until then it runs no
 * Python, and its parent waits. */
SEC("tp_btf/sched_process_fork")
int on_fork_stopping(u64 *context)
{
	struct task_struct *parent = (struct task_struct *)context[0];
	struct task_struct *child = (struct task_struct *)context[1];
	struct process_event *event = forked(parent, child);
	u64 wakes = 0;

	if (!event)
		return 0;
	if (others_wait && event->parent != gctrace_pid && child->mm != parent->mm) {
		event->stop = stop_child(child, event->pid, event->at_ns);
		wakes = BPF_RB_FORCE_WAKEUP;
	}
	bpf_ringbuf_submit(event, wakes);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int on_exec(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *task = (struct task_struct *)context->args[0];
	u32 old_tid = context->args[1];
	u32 pid = BPF_CORE_READ(task, tgid);
	struct process_event *event;
	struct followed_process process = {}, *before;
	struct file_key key = {};
	struct file *executable;
	bool attached, was_executed;
	u64 now;

	before = bpf_map_lookup_elem(&followed, &pid);
	if (!before)
		return 0;
	attached = before->incarnation == ATTACHED;
	was_executed = before->from_exec;
	count(COUNTER_EXECS);
	now = bpf_ktime_get_ns();
	abandon_pauses(old_tid, now);
	if (!may_follow(task)) {
		bpf_map_delete_elem(&followed, &pid);
		event = reserve_process_event(EVENT_FOREIGN, pid, now);
		if (event)
			bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
		return 0;
	}
	process.incarnation = incarnation_at(now);
	process.from_exec = 1;
	bpf_map_update_elem(&followed, &pid, &process, BPF_EXIST);
	if (count_software || hardware_mask)
		restart_process_counts(pid, now);
	executable = BPF_CORE_READ(task, mm, exe_file);
	key.inode = BPF_CORE_READ(executable, f_inode, i_ino);
	key.device = BPF_CORE_READ(executable, f_inode, i_sb, s_dev);
	event = reserve_process_event(EVENT_EXEC, pid, now);
	if (!event)
		return 0;
	event->file = key;
	event->by_thread = old_tid != pid;
	event->known = !may_hold_collector(executable) || bpf_map_lookup_elem(&known_files, &key) != 0;
	/* Its probes were those of its former main thread; or it is the second program to record. */
	if (pid == probed_alone ? event->by_thread || (others_wait && was_executed) : others_wait)
		event->known = 0;
	if (!event->known)
		stop_for(event, attached);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int on_exit(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *task = (struct task_struct *)context->args[0];
	u64 ids = bpf_get_current_pid_tgid();
	u32 pid = ids >> 32, tid = ids;
	struct process_event *event;
	u64 now;

	/* Threads may get here after the one that finds itself the last: they count as well. */
	if (count_software || hardware_mask)
		end_thread_counts(pid);
	if (!is_followed(pid))
		return 0;
	now = bpf_ktime_get_ns();
	abandon_pauses(tid, now);
	sampled_exit(tid, pid, now);
	/* `live` is decremented before this tracepoint: 0 means that the last thread is exiting */
	if (BPF_CORE_READ(task, signal, live.counter) != 0)
		return 0;
	bpf_map_delete_elem(&followed, &pid);
	bpf_map_delete_elem(&stopped, &pid);
	event = reserve_process_event(EVENT_EXIT, pid, now);
	if (!event)
		return 0;
	event->exit_code = BPF_CORE_READ(task, signal, group_exit_code);
	if (!event->exit_code)
		event->exit_code = BPF_CORE_READ(task, exit_code);
	bpf_ringbuf_submit(event, 0);
	return 0;
}
