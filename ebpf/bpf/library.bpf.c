/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: noticing that a recorded process maps a library that may be a libpython or PyPy's, or one of
 * CUDA, NCCL or torch. User space determines which library it is. Called from the system call tracepoint
 * of arena.bpf.c: the one place where every kernel exposes a mapping.
 */

/* Also watch for CUDA, NCCL and torch libraries: set for --cuda. */
bool watch_libraries = false;

/* include/uapi/asm-generic/mman-common.h */
#define PROT_EXEC 4

/* First bytes of a file name, as a little-endian number. */
#define NAME_BYTES 6
#define NAME_MASK ((1ull << (8 * NAME_BYTES)) - 1)
#define LIBPYT 0x74797062696cull
#define LIBPYP 0x70797062696cull
#define LIBCUD 0x64756362696cull
#define LIBNCC 0x63636e62696cull
#define LIBC10 0x30316362696cull
#define LIBTOR 0x726f7462696cull
#define LIBNVT 0x74766e62696cull

static __always_inline u32 named_like(struct file *file)
{
	const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	u64 start = 0;

	if (bpf_probe_read_kernel(&start, sizeof(start), name))
		return LIBRARY_NONE;
	/* Also upper-case letters: libnvToolsExt. */
	switch ((start | 0x202020202020ull) & NAME_MASK) {
	case LIBPYT:
	case LIBPYP:
		return LIBRARY_PYTHON;
	case LIBCUD:
	case LIBNCC:
	case LIBC10:
	case LIBTOR:
	case LIBNVT:
		return watch_libraries ? LIBRARY_CUDA : LIBRARY_NONE;
	}
	return LIBRARY_NONE;
}

static __always_inline struct file *file_of(u32 descriptor)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = 0;

	if (descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), files + descriptor);
	return file;
}

/* The mapping does not exist yet. A process that maps a file not seen before is stopped when it
 * does: nothing of the library has run then. Each mapping of a libpython is an event: it shows
 * which interpreter the process has. */
static __noinline int note_library(u32 descriptor)
{
	u64 now = bpf_ktime_get_ns();
	struct file_key key = {};
	u32 pid = bpf_get_current_pid_tgid() >> 32, library;
	struct followed_process *process;
	struct process_event *event;
	struct file *file;
	bool known;

	process = bpf_map_lookup_elem(&followed, &pid);
	if (!process)
		return 0;
	file = file_of(descriptor);
	library = file ? named_like(file) : LIBRARY_NONE;
	if (library == LIBRARY_NONE)
		return 0;
	key.inode = BPF_CORE_READ(file, f_inode, i_ino);
	key.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	known = bpf_map_lookup_elem(&known_files, &key) != 0;
	if (known && library != LIBRARY_PYTHON)
		return 0;
	event = reserve_process_event(EVENT_LIBRARY, pid, now);
	if (!event)
		return 0;
	event->file = key;
	event->known = known;
	event->library = library;
	if (!known)
		stop_for(event, process->incarnation == ATTACHED);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}
