/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: reading CPython's own memory: argument registers, the gc state and its statistics, by the
 * offsets of `struct layout`. A failed read is a value that says so, never an error of the program.
 */
#ifndef GCTRACE_CPYTHON_H
#define GCTRACE_CPYTHON_H

static __always_inline u64 read_pointer(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

static __always_inline s32 read_int(u64 base, u32 offset)
{
	s32 value = -1;

	if (offset == NO_OFFSET || bpf_probe_read_user(&value, sizeof(value), (void *)(base + offset)))
		return -1;
	return value;
}

static __always_inline s64 read_count(u64 base, u32 offset)
{
	s64 value = -1;

	if (offset == NO_OFFSET || bpf_probe_read_user(&value, sizeof(value), (void *)(base + offset)))
		return -1;
	return value;
}

/* Each argument is loaded where it is chosen: left alone, the compiler chooses an address first and
 * loads after, which the verifier refuses for the context. */
#define LOADED(field) ({ u64 loaded = registers->field; barrier_var(loaded); loaded; })

/* The first to fifth integer argument of the x86-64 calling convention. */
static __always_inline u64 argument(struct pt_regs *registers, u32 which)
{
	switch (which) {
	case 1: return LOADED(di);
	case 2: return LOADED(si);
	case 3: return LOADED(dx);
	case 4: return LOADED(cx);
	case 5: return LOADED(r8);
	default: return 0;
	}
}

static __always_inline s32 int_argument(struct pt_regs *registers, u32 which)
{
	return which == REGISTER_NONE ? ARGUMENT_UNKNOWN : (s32)argument(registers, which);
}

struct gc_state {
	u64 address;           /* 0 if it could not be found                                      */
	u64 interpreter;       /* address of PyInterpreterState                                   */
	s32 shift;             /* bytes by which the generations lie elsewhere than the layout says */
	u32 reserved;
};

/* Takes `gc` for the gc state if it is one. CPython sets gc.generation0 to point into the gc state
 * itself: a wrong offset or a shifted argument does not survive this. */
static __always_inline bool take_gc_state(const struct layout *layout, u64 gc, struct gc_state *state)
{
	s64 shift = 0;

	if (layout->check_pointer != NO_OFFSET)
		shift = read_pointer(gc + layout->check_pointer) - (gc + layout->check_target);
	if (shift > MAX_SHIFT || shift < -MAX_SHIFT)
		return false;
	state->address = gc;
	state->shift = shift;
	return true;
}

/* Finds the gc state: through the thread state the function was given, or else in the main interpreter. */
static __always_inline void find_gc_state(struct pt_regs *registers, const struct point *point,
					  const struct layout *layout, struct gc_state *state)
{
	u64 runtime = registers->ip + point->runtime_delta;

	state->address = 0;
	state->shift = 0;
	if (layout->gc_in_runtime != NO_OFFSET) {
		state->interpreter = read_pointer(runtime + layout->interpreters_head);
		take_gc_state(layout, runtime + layout->gc_in_runtime, state);
		return;
	}
	if (point->tstate_register != REGISTER_NONE) {
		u64 tstate = argument(registers, point->tstate_register);

		state->interpreter = read_pointer(tstate + layout->tstate_interpreter);
		if (state->interpreter &&
		    take_gc_state(layout, state->interpreter + layout->gc_in_interpreter, state))
			return;
	}
	state->interpreter = read_pointer(runtime + layout->interpreters_head);
	if (state->interpreter)
		take_gc_state(layout, state->interpreter + layout->gc_in_interpreter, state);
}

static __always_inline bool read_generation(const struct layout *layout, u64 base, u32 generation,
					    struct statistics *into)
{
	const struct generation_stats *where = &layout->generations[generation];
	u64 item = base + where->base;

	if (where->index != NO_OFFSET) {
		u8 index = 0;

		if (bpf_probe_read_user(&index, sizeof(index), (void *)(base + where->index)))
			return false;
		item += (u64)index * where->stride;
	}
	return !bpf_probe_read_user(&into->collections[generation], 8,
				    (void *)(item + layout->item_collections)) &&
	       !bpf_probe_read_user(&into->collected[generation], 8,
				    (void *)(item + layout->item_collected)) &&
	       !bpf_probe_read_user(&into->uncollectable[generation], 8,
				    (void *)(item + layout->item_uncollectable));
}

struct stats_item {
	u64 collections, collected, uncollectable;
};

/* The statistics up to 3.14: an array of three items, read in one go. */
static __always_inline bool read_array(u64 base, struct statistics *into)
{
	struct stats_item items[GENERATIONS];

	if (bpf_probe_read_user(items, sizeof(items), (void *)base))
		return false;
	for (int i = 0; i < GENERATIONS; i++) {
		into->collections[i] = items[i].collections;
		into->collected[i] = items[i].collected;
		into->uncollectable[i] = items[i].uncollectable;
	}
	return true;
}

static __always_inline bool read_statistics(const struct layout *layout, u64 gc, struct statistics *into)
{
	u64 base = gc + layout->stats;

	if (!gc)
		return false;
	if (layout->stats_is_array)
		return read_array(base, into);
	if (layout->stats_is_pointer)
		base = read_pointer(base);
	return base && read_generation(layout, base, 0, into) && read_generation(layout, base, 1, into) &&
	       read_generation(layout, base, 2, into);
}

#endif
