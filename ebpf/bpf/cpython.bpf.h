/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: reading CPython's memory: the gc state and its statistics, by the offsets of
 * `struct layout`. A failed read yields a value that marks it, never an error of the
 * program.
 */
#ifndef GCTRACE_CPYTHON_H
#define GCTRACE_CPYTHON_H

static __always_inline u64 read_pointer(u64 address)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* A copy of the gc state: one read of user memory instead of ten. */
struct block {
	u8 bytes[BLOCK_BYTES];
};

static __always_inline s64 block_count(const struct block *block, u64 offset)
{
	if (offset > BLOCK_BYTES - 8) /* NO_OFFSET too */
		return -1;
	return *(const s64 *)(block->bytes + offset);
}

static __always_inline s32 block_int(const struct block *block, u64 offset)
{
	if (offset > BLOCK_BYTES - 4)
		return -1;
	return *(const s32 *)(block->bytes + offset);
}

static __always_inline s32 int_argument(struct pt_regs *registers, u32 which)
{
	return which == REGISTER_NONE ? ARGUMENT_UNKNOWN : (s32)argument(registers, which);
}

struct gc_state {
	u64 address;           /* 0 if it could not be found                                      */
	u64 interpreter;       /* address of PyInterpreterState                                   */
	u64 frame;             /* of the thread state, see `tstate_frame`; 0 if not passed         */
	s32 shift;             /* offset of the generations from their place in the layout          */
	u32 reserved;
};

/* Copies the memory at `gc` and accepts it if it is the gc state. CPython sets gc.generation0 to
 * point into the gc state itself: a wrong offset or a shifted argument does not pass this check. */
static __always_inline bool take_gc_state(const struct layout *layout, u64 gc, struct gc_state *state,
					  struct block *block)
{
	s64 shift = 0;

	if (bpf_probe_read_user(block, sizeof(*block), (void *)gc))
		return false;
	if (layout->check_pointer != NO_OFFSET)
		shift = block_count(block, layout->check_pointer) - (gc + layout->check_target);
	if (shift > MAX_SHIFT || shift < -MAX_SHIFT)
		return false;
	state->address = gc;
	state->shift = shift;
	return true;
}

/* The fields of PyThreadState that are read are below this: the last is `current_frame` of 3.13 at
 * 72. */
#define TSTATE_BYTES 80

static __always_inline u64 tstate_word(const u64 *fields, u32 offset)
{
	/* selected one by one: the verifier accepts no variable offset into the stack */
	switch (offset) {
	case 16: return fields[2];
	case 24: return fields[3];
	case 56: return fields[7];
	case 72: return fields[9];
	default: return 0;
	}
}

/* Finds the gc state: through the thread state that was passed to the function, or in the main
 * interpreter. */
static __always_inline void find_gc_state(struct pt_regs *registers, const struct point *point,
					  const struct layout *layout, struct gc_state *state, struct block *block)
{
	u64 runtime = registers->PROGRAM_COUNTER + point->runtime_delta;

	state->address = 0;
	state->frame = 0;
	state->shift = 0;
	if (layout->gc_in_runtime != NO_OFFSET) {
		state->interpreter = read_pointer(runtime + layout->interpreters_head);
		take_gc_state(layout, runtime + layout->gc_in_runtime, state, block);
		return;
	}
	if (point->tstate_register != REGISTER_NONE) {
		/* One read for both fields. */
		u64 fields[TSTATE_BYTES / 8] = {};

		bpf_probe_read_user(fields, sizeof(fields), (void *)argument(registers, point->tstate_register));
		state->interpreter = tstate_word(fields, layout->tstate_interpreter);
		if (state->interpreter &&
		    take_gc_state(layout, state->interpreter + layout->gc_in_interpreter, state, block)) {
			state->frame = tstate_word(fields, layout->frames.tstate_frame);
			return;
		}
	}
	state->interpreter = read_pointer(runtime + layout->interpreters_head);
	if (state->interpreter)
		take_gc_state(layout, state->interpreter + layout->gc_in_interpreter, state, block);
}

static __always_inline void put(struct statistics *into, u32 generation, const struct stats_item *item)
{
	into->collections[generation] = item->collections;
	into->collected[generation] = item->collected;
	into->uncollectable[generation] = item->uncollectable;
}

/* From 3.15 on: a ring of items for each generation, behind a pointer; the newest is valid. */
static __always_inline bool read_ring(const struct layout *layout, u64 base, u32 generation, struct statistics *into)
{
	const struct generation_stats *where = &layout->generations[generation];
	struct stats_item item;
	u8 index = 0;

	if (where->index != NO_OFFSET && bpf_probe_read_user(&index, sizeof(index), (void *)(base + where->index)))
		return false;
	if (bpf_probe_read_user(&item, sizeof(item), (void *)(base + where->base + (u64)index * where->stride)))
		return false;
	put(into, generation, &item);
	return true;
}

/* Extracts the statistics from a copy of the gc state. */
static __always_inline bool read_statistics(const struct layout *layout, const struct block *block,
					    struct statistics *into)
{
	u64 offset = layout->stats;

	if (layout->stats_is_pointer) {
		u64 base = block_count(block, offset);

		return base && read_ring(layout, base, 0, into) && read_ring(layout, base, 1, into) &&
		       read_ring(layout, base, 2, into);
	}
	if (offset > BLOCK_BYTES - GENERATIONS * sizeof(struct stats_item))
		return false;
	for (u32 i = 0; i < GENERATIONS; i++)
		put(into, i, (const struct stats_item *)(block->bytes + offset) + i);
	return true;
}

#endif
