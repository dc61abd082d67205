/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: which collections' garbage is examined. Examining may cost a share of the CPU time of each
 * process. Full collections come first; of the others each is examined with the same probability,
 * which follows their number and cost: every k-th would miss or meet always the same ones where they
 * repeat.
 */
#ifndef GCTRACE_BUDGET_H
#define GCTRACE_BUDGET_H

/* --garbage-budget in millionths of the CPU time, from EVERYTHING on without a limit. */
#define EVERYTHING 1000000
const volatile u64 garbage_budget_ppm = 10000;

/* CPU time after which the probability is computed anew: several ticks of the scheduler, by which the
 * kernel measures it. */
#define WINDOW_NS 50000000ull
/* What a hit costs without examining anything: trap, registers, clock (measured on Linux 6.18). */
#define HIT_NS 1000
/* CPU time whose budget is there at the start, that is kept at most, and that full collections may
 * use in advance. */
#define FIRST_NS 200000000ull
#define KEPT_NS 2000000000ull
#define ADVANCE_NS 1000000000ull
/* Longest CPU time that is added at once: products fit into 64 bits. */
#define MAX_EARNED_NS 1000000000000ull
#define ALWAYS 65536u
/* _PyGC_Reason of CPython 3.13 and later */
#define REASON_SHUTDOWN 1

struct garbage_budget {
	s64 credit_ns;
	u64 window_ns;         /* CPU time in this window                                         */
	u64 window_hits;       /* collections that freed something, except full ones              */
	u64 window_full_ns;    /* cost of full ones                                               */
	u64 cost_ns;           /* moving average of the cost of the others                        */
	u32 probability;       /* of ALWAYS                                                       */
	u32 incarnation;
};

/* An entry that is dropped for lack of room starts over. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_INTERPRETERS);
	__type(key, u32);
	__type(value, struct garbage_budget);
} garbage_budgets SEC(".maps");

/* The share of a CPU time, which is at most MAX_EARNED_NS. */
static __always_inline u64 share_of(u64 cpu_ns)
{
	return cpu_ns * garbage_budget_ppm / 1000000;
}

static __always_inline struct garbage_budget *budget_of(u32 pid, u32 incarnation)
{
	struct garbage_budget *budget = bpf_map_lookup_elem(&garbage_budgets, &pid);
	struct garbage_budget first = {
		.credit_ns = share_of(FIRST_NS), .probability = ALWAYS, .incarnation = incarnation
	};

	if (budget && budget->incarnation == incarnation)
		return budget;
	bpf_map_update_elem(&garbage_budgets, &pid, &first, BPF_ANY);
	return bpf_map_lookup_elem(&garbage_budgets, &pid);
}

static __always_inline void close_window(struct garbage_budget *budget)
{
	u64 allowed = share_of(budget->window_ns);
	u64 used = budget->window_full_ns, needed = budget->cost_ns * budget->window_hits;

	allowed = allowed > used ? allowed - used : 0;
	budget->probability = needed <= allowed ? ALWAYS : allowed * ALWAYS / needed;
	budget->window_ns = 0;
	budget->window_hits = 0;
	budget->window_full_ns = 0;
}

/* Adds the CPU time of this thread since its last collection. */
static __always_inline void earn(struct garbage_budget *budget, struct thread *thread)
{
	u64 ran = 0, earned;
	s64 most = share_of(KEPT_NS);

	bpf_probe_read_kernel(&ran, sizeof(ran), (void *)bpf_get_current_task() + thread->ran_at);
	earned = ran > thread->ran_ns ? ran - thread->ran_ns : 0;
	thread->ran_ns = ran;
	if (earned > MAX_EARNED_NS)
		earned = MAX_EARNED_NS;
	budget->credit_ns += share_of(earned);
	budget->credit_ns -= HIT_NS;
	if (budget->credit_ns > most)
		budget->credit_ns = most;
	budget->window_ns += earned;
	if (budget->window_ns >= WINDOW_NS)
		close_window(budget);
}

/* Whether the collection is of the oldest generation. Where the collector itself chooses: collecting
 * a generation increments the count of the next older one and clears the others, before its list of
 * garbage exists. */
static __always_inline bool is_full(const struct open_pause *pause, const struct layout *layout)
{
	u64 counts = pause->gc.address + pause->gc.shift + 4;

	if (pause->generation_argument >= 0)
		return pause->generation_argument == GENERATIONS - 1;
	if (!pause->gc.address || layout->thresholds[1] == NO_OFFSET || layout->thresholds[2] == NO_OFFSET)
		return false;
	return !read_u32(counts + layout->thresholds[1]) && !read_u32(counts + layout->thresholds[2]);
}

/* While the interpreter exits, modules become garbage: hundreds of kinds, about which nothing can be
 * done, whose names would fill the ring where many processes exit. */
static __always_inline bool is_exiting(const struct open_pause *pause)
{
	return (pause->flags & (PAUSE_FINALIZING | PAUSE_NOFAIL)) || pause->reason_argument == REASON_SHUTDOWN;
}

static __always_inline bool affords(struct garbage_budget *budget, const struct open_pause *pause, bool full)
{
	s64 advance = share_of(ADVANCE_NS);

	if (garbage_budget_ppm >= EVERYTHING)
		return true;
	if (is_exiting(pause))
		return false;
	if (full)
		return budget->credit_ns + advance > 0;
	budget->window_hits += 1;
	return budget->credit_ns > 0 && (bpf_get_prandom_u32() & (ALWAYS - 1)) < budget->probability;
}

static __always_inline void spend(struct garbage_budget *budget, u64 took_ns, bool full)
{
	budget->credit_ns -= took_ns;
	if (full)
		budget->window_full_ns += took_ns;
	else
		budget->cost_ns = budget->cost_ns ? (budget->cost_ns * 7 + took_ns) / 8 : took_ns;
}

#endif
