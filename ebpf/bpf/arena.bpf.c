/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: counting the arenas that CPython's allocator maps and unmaps, by the size of the mapping.
 * Any other private anonymous mapping of exactly that size counts too.
 */

/* ARENA_SIZE of obmalloc.c: 1 MiB from 3.10 on (ARENA_BITS 20), 256 KiB before. */
#define LARGE_ARENA (1ul << 20)
#define SMALL_ARENA (1ul << 18)
/* include/uapi/asm-generic/mman-common.h */
#define PROT_READ_WRITE 3
#define MAP_PRIVATE_ANONYMOUS 0x22

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct arenas);
} arenas SEC(".maps");

/* kernel/trace/trace_syscalls.c, struct syscall_trace_enter as perf passes it */
struct syscall_enter {
	u64 common;
	u64 number;
	u64 arguments[6];
};

static __always_inline void count_arena(u64 length, bool mapped)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct arenas none = {}, *found;

	if ((length != LARGE_ARENA && length != SMALL_ARENA) || !is_followed(pid))
		return;
	found = bpf_map_lookup_elem(&arenas, &pid);
	if (!found) {
		bpf_map_update_elem(&arenas, &pid, &none, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&arenas, &pid);
		if (!found)
			return;
	}
	if (length == LARGE_ARENA)
		__sync_fetch_and_add(mapped ? &found->large_mapped : &found->large_unmapped, 1);
	else
		__sync_fetch_and_add(mapped ? &found->small_mapped : &found->small_unmapped, 1);
}

SEC("tp/syscalls/sys_enter_mmap")
int on_mmap(struct syscall_enter *call)
{
	if (call->arguments[2] == PROT_READ_WRITE && call->arguments[3] == MAP_PRIVATE_ANONYMOUS)
		count_arena(call->arguments[1], true);
	else if (call->arguments[2] & PROT_EXEC)
		note_library(call->arguments[4]);
	return 0;
}

SEC("tp/syscalls/sys_enter_munmap")
int on_munmap(struct syscall_enter *call)
{
	count_arena(call->arguments[1], false);
	return 0;
}
