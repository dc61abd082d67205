/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Owns: the collections that were not recorded: of each interpreter those that no probe saw, of each
 * process all of them. */
#ifndef GCTRACE_COLLECTOR_H
#define GCTRACE_COLLECTOR_H

/* The collector of one interpreter, by its own statistics. They grow with every collection,
 * including those in a function that is not probed (a copy of the collector, as in Nuitka's
 * programs). */
struct collector_key {
	u64 gc;                /* address of its state                                            */
	u32 pid;
	u32 incarnation;
};

struct collector {
	u64 collections;       /* at the end of the last pause                                    */
	u32 open;              /* pauses that have started and not ended                          */
	u32 reserved;
};

/* An entry dropped for lack of room starts over: fewer collections are reported missing, never too
 * many. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_INTERPRETERS);
	__type(key, struct collector_key);
	__type(value, struct collector);
} collectors SEC(".maps");

/* Collections of each process that were not recorded: pid -> number. Kept when it ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u64);
} unrecorded SEC(".maps");

/* `which`: the counter of what became of them. Of processes that find no room only that is known. */
static __always_inline void lose_collections(u32 which, u32 pid, u64 many)
{
	u64 none = 0, *number = bpf_map_lookup_elem(&unrecorded, &pid);

	count_many(which, many);
	if (!number) {
		bpf_map_update_elem(&unrecorded, &pid, &none, BPF_NOEXIST);
		number = bpf_map_lookup_elem(&unrecorded, &pid);
	}
	if (number)
		__sync_fetch_and_add(number, many);
}

static __always_inline u64 all_collections(const struct statistics *statistics)
{
	return statistics->collections[0] + statistics->collections[1] + statistics->collections[2];
}

/* Counts this interpreter's collections since its last pause that no probe saw. In free-threaded
 * builds another thread's collection may have ended without having returned: nothing is compared
 * while one is open. */
static __always_inline void enter_collector(struct open_pause *pause, u32 pid,
					    const struct followed_process *process)
{
	struct collector_key key = { .gc = pause->gc.address, .pid = pid, .incarnation = process->incarnation };
	struct collector *known = bpf_map_lookup_elem(&collectors, &key);
	u64 before = all_collections(&pause->before);
	struct collector first = { .collections = before, .open = 1 };

	pause->incarnation = key.incarnation;
	if (!known) {
		/* The first pause of a program that is recorded from its start. */
		if (process->from_exec && before)
			lose_collections(COUNTER_UNPROBED, pid, before);
		bpf_map_update_elem(&collectors, &key, &first, BPF_NOEXIST);
		return;
	}
	/* Read before it is incremented: kernels before 5.12 have no atomic operation that returns
	 * a value. */
	if (!known->open) {
		if (before > known->collections)
			lose_collections(COUNTER_UNPROBED, pid, before - known->collections);
		/* Smaller: a new interpreter at the address of a previous one. */
		known->collections = before;
	}
	__sync_fetch_and_add(&known->open, 1);
}

/* `moved`: collections since the start of this pause. */
static __always_inline void leave_collector(const struct open_pause *pause, u32 pid, u64 moved)
{
	struct collector_key key = { .gc = pause->gc.address, .pid = pid, .incarnation = pause->incarnation };
	u64 after = all_collections(&pause->before) + moved;
	struct collector *known;

	if (!key.incarnation)
		return;
	known = bpf_map_lookup_elem(&collectors, &key);
	if (!known)
		return;
	if (after > known->collections)
		known->collections = after;
	__sync_fetch_and_add(&known->open, -1);
}

#endif
