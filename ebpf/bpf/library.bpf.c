/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: noticing that a recorded process maps a library that may be one of CUDA, NCCL or torch.
 * Attached for --cuda only. Which library it is, user space finds out.
 */

/* include/uapi/asm-generic/mman-common.h */
#define PROT_EXEC 4

/* First bytes of a file name, as a little-endian number. */
#define NAME_BYTES 6
#define NAME_MASK ((1ull << (8 * NAME_BYTES)) - 1)
#define LIBCUD 0x64756362696cull
#define LIBNCC 0x63636e62696cull
#define LIBC10 0x30316362696cull
#define LIBTOR 0x726f7462696cull
#define LIBNVT 0x74766e62696cull

static __always_inline bool may_be_wanted(struct file *file)
{
	const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	u64 start = 0;

	if (bpf_probe_read_kernel(&start, sizeof(start), name))
		return false;
	/* Upper-case letters too: libnvToolsExt. */
	start = (start | 0x202020202020ull) & NAME_MASK;
	return start == LIBCUD || start == LIBNCC || start == LIBC10 || start == LIBTOR || start == LIBNVT;
}

/* security/security.c: security_mmap_file(file, prot, flags), before the mapping is made. */
SEC("kprobe/security_mmap_file")
int on_library(struct pt_regs *context)
{
	struct file *file = (struct file *)context->di;
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct process_event *event;

	if (!file || !(context->si & PROT_EXEC) || !is_followed(pid) || !may_be_wanted(file))
		return 0;
	event = reserve_process_event(EVENT_LIBRARY, pid, bpf_ktime_get_ns());
	if (!event)
		return 0;
	event->file.inode = BPF_CORE_READ(file, f_inode, i_ino);
	event->file.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}
