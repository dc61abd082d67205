/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The few kernel types that our programs use, reduced by hand from the kernel's headers. Fields of
 * kernel structs are located at load time through BTF (CO-RE), so only their names and types matter
 * here, not their order or what is left out. A full dump of a kernel's types is 130,000 lines.
 */
#ifndef GCTRACE_VMLINUX_H
#define GCTRACE_VMLINUX_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef signed short __s16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;
enum { false = 0, true = 1 };

/* include/uapi/linux/bpf.h, values fixed by the kernel's ABI */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};
enum {
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

/* arch/ARCH/include/asm/ptrace.h: the context of a uprobe. Read directly, so the order is the ABI's. */
#if defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long regs[31], sp, pc, pstate;
	/* of system calls, arch/arm64/include/asm/ptrace.h */
	unsigned long orig_x0;
	int syscallno;
};
#else
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#endif

/* include/uapi/linux/bpf_perf_event.h: the context of a perf event */
struct bpf_perf_event_data {
	struct pt_regs regs;
	__u64 sample_period;
	__u64 addr;
};

/* include/trace/events: the context of a raw tracepoint */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

/* include/uapi/linux/bpf.h */
struct bpf_perf_event_value {
	__u64 counter;
	__u64 enabled;
	__u64 running;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct super_block {
	u32 s_dev;
};

struct inode {
	long long i_size;
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct mm_struct {
	struct file *exe_file;
};

struct list_head {
	struct list_head *next;
};

struct wait_queue_head {
	struct list_head head;
};

struct wait_queue_entry {
	struct list_head entry;
};

/* kernel/exit.c, kernel/exit.h: a thread in wait(2) */
struct wait_opts {
	int wo_flags;
	struct wait_queue_entry child_wait;
};

struct pid;

/* Since 6.2 counters per CPU with their sum, off by some dozens of pages per CPU; until then one for all. */
struct percpu_counter {
	s64 count;
};
struct mm_struct___summed {
	struct percpu_counter rss_stat[4];
} __attribute__((preserve_access_index));
struct page_count {
	s64 counter;
};
struct mm_rss_stat {
	struct page_count count[4];
} __attribute__((preserve_access_index));
struct mm_struct___counted {
	struct mm_rss_stat rss_stat;
} __attribute__((preserve_access_index));

/* Until 6.17, and from 6.18 on. */
struct mm_struct___word {
	unsigned long flags;
};
typedef struct {
	unsigned long __mm_flags[1];
} mm_flags_t;
struct mm_struct___bitmap {
	mm_flags_t flags;
};
/* Since 7.x (seen in 7.3). */
enum task_dumpable { TASK_DUMPABLE_OWNER = 1 };
struct task_exec_state {
	enum task_dumpable dumpable;
} __attribute__((preserve_access_index));
struct task_struct___state {
	struct task_exec_state *exec_state;
} __attribute__((preserve_access_index));

typedef struct {
	u32 val;
} kuid_t;
typedef struct {
	u32 val;
} kgid_t;
/* Two words of 32 bits until 6.2. */
typedef struct {
	u64 val;
} kernel_cap_t;

struct user_namespace {
	int level;
};

struct cred {
	kuid_t uid;
	kgid_t gid;
	kuid_t suid;
	kgid_t sgid;
	kuid_t euid;
	kgid_t egid;
	kernel_cap_t cap_permitted;
	struct user_namespace *user_ns;
};

struct signal_struct {
	atomic_t live;
	struct wait_queue_head wait_chldexit;
	int group_exit_code;
	unsigned int flags;
	struct pid *pids[4];
};

struct sched_entity {
	u64 sum_exec_runtime;
	u64 nr_migrations;
};

struct thread_struct {
	unsigned long fsbase; /* x86-64 */
};

/* Until 5.13, and from 5.14 on. */
struct task_struct___long {
	long state;
};
struct task_struct___int {
	unsigned int __state;
};

struct task_struct {
	unsigned int flags;
	unsigned in_iowait : 1;
	unsigned int ptrace;
	struct mm_struct *mm;
	struct files_struct *files;
	int exit_code;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	char comm[16];
	const struct cred *real_cred;
	struct signal_struct *signal;
	struct sched_entity se;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct thread_struct thread;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

/* kernel/bpf/task_iter.c: the context of an iterator over tasks */
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
