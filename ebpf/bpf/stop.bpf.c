/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: whether a process is stopped, that is, sent SIGSTOP until user space has placed its probes
 * and resumes it. As few processes as possible are stopped, and none whose stop would be noticed
 * (docs/adr/0003).
 */

#define SIGSTOP 19
/* include/uapi/linux/wait.h */
#define WUNTRACED 2
/* include/linux/sched/signal.h */
#define SIGNAL_STOP_STOPPED 1
/* include/linux/pid_types.h; fixed since 4.19 */
enum pid_type {
	PIDTYPE_TGID = 1,
	PIDTYPE_PGID = 2,
	PIDTYPE_SID = 3,
};

/* An executable that contains CPython's collector is larger: the smallest known one has 5.3 MB. */
#define SMALLEST_INTERPRETER (2 << 20)
/* Number of ancestors that are checked. */
#define MOST_ANCESTORS 16
/* Maximum number of a parent's threads that are checked for waiting on children. */
#define MOST_WAITING 4
/* Given by Session::follow to processes that were already running. */
#define ATTACHED 1

/* Library mappings are seen (library.bpf.c): a program that links a libpython is stopped when it
 * maps it, not at exec. */
bool sees_mappings = false;

/* First eight bytes of a command's name, which is shorter, as a little-endian number. */
#define NAMED_SUDO 0x6f647573ull
#define NAMED_SU 0x7573ull
#define NAMED_DOAS 0x73616f64ull
#define NAMED_PKEXEC 0x636578656b70ull
#define NAMED_RUNUSER 0x726573756e7572ull
#define NAMED_SCRIPT 0x747069726373ull
#define NAMED_NSENTER 0x7265746e65736eull
#define NAMED_LOGIN 0x6e69676f6cull
#define NAMED_EXPECT 0x746365707865ull

static __always_inline bool may_hold_collector(struct file *executable)
{
	return !sees_mappings || BPF_CORE_READ(executable, f_inode, i_size) >= SMALLEST_INTERPRETER;
}

/* Programs that stop themselves when their child is stopped, or handle it otherwise. Most of them
 * wait with WUNTRACED, but their child may run before they wait. */
static __always_inline bool is_watcher_by_name(struct task_struct *task)
{
	union {
		char text[16];
		u64 number;
	} name = {};
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	bpf_core_read_str(name.text, sizeof(name.text), &leader->comm);
	switch (name.number) {
	case NAMED_SUDO:
	case NAMED_SU:
	case NAMED_DOAS:
	case NAMED_PKEXEC:
	case NAMED_RUNUSER:
	case NAMED_SCRIPT:
	case NAMED_NSENTER:
	case NAMED_LOGIN:
	case NAMED_EXPECT:
		return true;
	}
	return false;
}

/* Whether a thread of the process is in wait(2) for children that stop. */
static __always_inline bool waits_for_stops(struct task_struct *task)
{
	struct signal_struct *signal = BPF_CORE_READ(task, signal);
	struct list_head *head = &signal->wait_chldexit.head;
	struct list_head *next = BPF_CORE_READ(head, next);
	struct wait_opts *options;
	int waiting;

	if (!bpf_core_type_exists(struct wait_opts))
		return false;
	for (waiting = 0; waiting < MOST_WAITING && next != head; waiting++) {
		options = (void *)next - bpf_core_field_offset(struct wait_queue_entry, entry) -
			  bpf_core_field_offset(struct wait_opts, child_wait);
		if (BPF_CORE_READ(options, wo_flags) & WUNTRACED)
			return true;
		next = BPF_CORE_READ(next, next);
	}
	return false;
}

/*
 * Whether stopping a process would be noticed or do harm: a debugger; a parent that waits for stops; a shell with job control, where a member of the process group has its parent in the
 * same session. If that parent exits while a member is stopped, the kernel kills the whole group
 * (kill_orphaned_pgrp). The group of gctrace itself has a member that stays.
 */
static __always_inline int would_be_seen(struct task_struct *task)
{
	struct task_struct *parent;
	struct pid *group, *session;
	int generation;

	if (BPF_CORE_READ(task, ptrace))
		return 1;
	group = BPF_CORE_READ(task, signal, pids[PIDTYPE_PGID]);
	session = BPF_CORE_READ(task, signal, pids[PIDTYPE_SID]);
	parent = BPF_CORE_READ(task, real_parent);
	if ((u32)BPF_CORE_READ(parent, tgid) == gctrace_pid)
		return 0;
	if (is_watcher_by_name(parent) || waits_for_stops(parent))
		return 1;
	for (generation = 0; generation < MOST_ANCESTORS; generation++) {
		u32 pid = BPF_CORE_READ(parent, tgid);

		if (pid == gctrace_pid || pid <= 1)
			return 0;
		if (BPF_CORE_READ(parent, signal, pids[PIDTYPE_PGID]) != group)
			return BPF_CORE_READ(parent, signal, pids[PIDTYPE_SID]) == session;
		parent = BPF_CORE_READ(parent, real_parent);
	}
	return 1;
}

static __noinline int current_would_be_seen(void)
{
	return would_be_seen((struct task_struct *)bpf_get_current_task());
}

/* Stops the current process, if permitted: enum stop. Never without an event for user space, which
 * alone resumes it. */
static __always_inline u32 stop_program(u32 pid, u64 now)
{
	if (stop_only_user != ANY_USER && (u32)bpf_get_current_uid_gid() != stop_only_user)
		return STOP_OTHER_USER;
	if (now >= stop_until_ns)
		return STOP_NOT_NOW;
	if (current_would_be_seen())
		return STOP_SEEN;
	if (bpf_map_update_elem(&stopped, &pid, &now, BPF_ANY))
		return STOP_FAILED;
	if (bpf_send_signal(SIGSTOP)) {
		bpf_map_delete_elem(&stopped, &pid);
		return STOP_FAILED;
	}
	return STOP_SENT;
}

/* Since 6.13, kernel/trace/bpf_trace.c. `value` is for realtime signals. */
extern int bpf_send_signal_task(struct task_struct *task, int signal, enum pid_type type,
				u64 value) __ksym __weak;

/* The same for a child of the current process that has not run yet. */
static __always_inline u32 stop_child(struct task_struct *child, u32 pid, u64 now)
{
	/* A child has the user of its parent. */
	if (stop_only_user != ANY_USER && (u32)bpf_get_current_uid_gid() != stop_only_user)
		return STOP_OTHER_USER;
	if (now >= stop_until_ns)
		return STOP_NOT_NOW;
	if (would_be_seen(child))
		return STOP_SEEN;
	if (bpf_map_update_elem(&stopped, &pid, &now, BPF_ANY))
		return STOP_FAILED;
	if (bpf_send_signal_task(child, SIGSTOP, PIDTYPE_TGID, 0)) {
		bpf_map_delete_elem(&stopped, &pid);
		return STOP_FAILED;
	}
	return STOP_SENT;
}

/* Whether the parent of the current process is stopped: if so later, its user did not do it. */
static __always_inline u32 parent_is_stopped(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	return BPF_CORE_READ(task, real_parent, signal, flags) & SIGNAL_STOP_STOPPED;
}
