/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: the Python stack of a thread. A stack is identified by a hash of its frames; the frames,
 * and the data needed to resolve their lines, are sent when they are first seen, while the code
 * objects are certainly alive. Used by every probe that takes a stack.
 *
 * A code object may be freed and another take its address. A probe on the function that frees them
 * forgets the code object; the next one seen there gets another identity. In a program that frees
 * none, such as a training loop, one lookup recognizes a stack.
 */
#ifndef GCTRACE_STACK_H
#define GCTRACE_STACK_H

/* --stack-depth: 0 turns stacks off. */
const volatile u32 stack_depth = 0;

/* Maximum size of the fields of a frame that are read, in every version: 3.8 has the last, at
 * 104. */
#define FRAME_BYTES 112
/* Adjacent frames are copied together: one read of user memory costs as much as four hundred bytes
 * of it. */
#define FRAMES_BYTES 2048
#define PAGE_BYTES 4096
/* FRAME_OWNED_BY_CSTACK of 3.12 (3), FRAME_OWNED_BY_INTERPRETER (3) and _CSTACK (4) of 3.14. */
#define SHIM_OWNER 3
/* FRAME_OWNED_BY_GENERATOR, 3.11 and later: never incomplete. */
#define GENERATOR_OWNER 1
/* Shims between Python frames do not count as frames, but as steps. */
#define MAX_STEPS (MAX_STACK_DEPTH + 32)
#define SEEN_STACKS 16384
#define SEEN_CODES 16384

struct code_key {
	u64 code;
	u32 pid;
	u32 incarnation;
};

struct seen_stack {
	u64 id;
	u32 code_deaths;       /* of the process when this was last checked                       */
	u32 reserved;
};

/* Stacks that user space knows, by addresses and instructions. Those not seen for long are evicted
 * and sent again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SEEN_STACKS);
	__type(key, u64);
	__type(value, struct seen_stack);
} seen_stacks SEC(".maps");

/* Code objects that user space knows, with their identities. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SEEN_CODES);
	__type(key, struct code_key);
	__type(value, u32);
} seen_codes SEC(".maps");

/* The state of a walk. Too large for the BPF stack. */
struct walk {
	u64 hash;
	u64 next;              /* address of the next frame                                       */
	u64 copied_from;       /* address of `copied`                                             */
	u64 copied_bytes;
	u32 depth;
	u32 layout;            /* index                                                           */
	u32 pid;
	u32 incarnation;       /* of the process, see `followed`                                  */
	u8 copied[FRAMES_BYTES];
	struct frame frames[MAX_STACK_DEPTH];
};

static __always_inline u64 mixed(u64 hash, u64 value)
{
	/* the finalizer's multiplier of splitmix64 */
	hash = (hash ^ value) * 0xbf58476d1ce4e5b9ull;
	return hash ^ (hash >> 29);
}

/* `at` is the position of the frame in what was copied. */
static __always_inline u64 frame_word(const struct walk *walk, u64 at, u32 offset)
{
	at += offset;
	return at > FRAMES_BYTES - 8 ? 0 : *(const u64 *)(walk->copied + at);
}

static __always_inline u32 frame_int(const struct walk *walk, u64 at, u32 offset)
{
	at += offset;
	return at > FRAMES_BYTES - 4 ? 0 : *(const u32 *)(walk->copied + at);
}

static __always_inline u32 frame_byte(const struct walk *walk, u64 at, u32 offset)
{
	at += offset;
	return at > FRAMES_BYTES - 1 ? 0 : walk->copied[at];
}

static __always_inline bool copy_frames(struct walk *walk, u64 from, u64 bytes)
{
	barrier_var(bytes);
	if (bytes > FRAMES_BYTES || bpf_probe_read_user(walk->copied, bytes, (void *)from))
		return false;
	walk->copied_from = from;
	walk->copied_bytes = bytes;
	return true;
}

#define NOT_COPIED (~0ull)

/* The position of the next frame in the copy. From 3.11 on a thread's frames are adjacent, each
 * above the one that called it: the part of the page before this one is copied too. */
static __always_inline u64 position_of_frame(struct walk *walk, const struct frame_layout *layout)
{
	u64 frame = walk->next, bytes = layout->frame_bytes, before;

	if (bytes > FRAME_BYTES)
		return NOT_COPIED;
	if (frame >= walk->copied_from && frame - walk->copied_from + bytes <= walk->copied_bytes)
		return frame - walk->copied_from;
	before = layout->instruction_kind == INSTRUCTION_POINTER ? frame & (PAGE_BYTES - 1) : 0;
	if (before > FRAMES_BYTES - FRAME_BYTES)
		before = FRAMES_BYTES - FRAME_BYTES;
	if (copy_frames(walk, frame - before, before + bytes))
		return before;
	return NOT_COPIED;
}

static __always_inline u32 read_u32(u64 address)
{
	u32 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* Start of the instructions that the frame executes: a free-threaded build has a copy for each
 * thread, the first of which is in the code object. */
static __always_inline u64 instructions_of(const struct walk *walk, u64 at, const struct frame_layout *layout, u64 code)
{
	u32 copy = layout->frame_tlbc_index == NO_OFFSET ? 0 : frame_int(walk, at, layout->frame_tlbc_index);

	if (!copy)
		return code + layout->code_bytes;
	return read_pointer(read_pointer(code + layout->code_tlbc) + 8 + 8 * (u64)copy);
}

static __always_inline u32 instruction_offset(const struct walk *walk, u64 at, const struct frame_layout *layout,
					      u64 code)
{
	s64 offset;

	if (layout->instruction_kind == INSTRUCTION_INDEX)
		offset = (s64)(s32)frame_int(walk, at, layout->frame_instruction) * layout->instruction_scale;
	else
		offset = frame_word(walk, at, layout->frame_instruction) - instructions_of(walk, at, layout, code);
	return offset < 0 || offset > 0x7fffffff ? NO_OFFSET : (u32)offset;
}

/* A frame of a function that has not started: sys._getframe() leaves it out. In 3.11 a collection,
 * and so Python code, can run while a frame creates its cells. From 3.12 on it cannot: collections
 * wait for the next check of the evaluation loop, and there is no offset to read. */
static __always_inline bool is_incomplete(const struct frame_layout *layout, u64 code, u32 owner, u32 offset)
{
	u32 first;

	if (layout->code_first_traceable == NO_OFFSET || owner == GENERATOR_OWNER)
		return false;
	/* counted in instructions of two bytes */
	first = 2 * read_u32(code + layout->code_first_traceable);
	return offset == NO_OFFSET ? first > 0 : offset < first;
}

/* Processes one frame; returns 0 at the end of the stack. Not static, like others below: the
 * verifier checks such a function once and not for each step (0.2 s faster at every start). As far
 * as the verifier knows, its argument may be null. */
__noinline int step(struct walk *walk, const struct frame_layout *layout)
{
	u32 owner, offset, depth;
	struct frame *frame;
	u64 code, at;

	if (!walk || !layout || !walk->next || walk->depth >= stack_depth)
		return false;
	depth = walk->depth;
	at = position_of_frame(walk, layout);
	if (at == NOT_COPIED)
		return false;
	walk->next = frame_word(walk, at, layout->frame_back);
	owner = layout->frame_owner == NO_OFFSET ? 0 : frame_byte(walk, at, layout->frame_owner);
	code = frame_word(walk, at, layout->frame_code) & ~(u64)layout->code_tag_mask;
	if (owner >= SHIM_OWNER || !code)
		return true;
	offset = instruction_offset(walk, at, layout, code);
	if (is_incomplete(layout, code, owner, offset))
		return true;
	if (depth >= MAX_STACK_DEPTH)
		return false;
	/* kernels before 6.8 forget that bound where the compiler keeps `depth` on the stack */
	barrier_var(depth);
	frame = &walk->frames[depth & (MAX_STACK_DEPTH - 1)];
	frame->code = code;
	frame->offset = offset;
	walk->depth = depth + 1;
	walk->hash = mixed(walk->hash + offset, code);
	return true;
}

/* Takes all frames up to `stack_depth`. Not static, as above: once and not for each way to here. */
__noinline int walk_frames(struct walk *walk, const struct frame_layout *layout)
{
	for (u32 i = 0; i < MAX_STEPS; i++)
		if (!step(walk, layout))
			break;
	return 0;
}

/* The start of a string object, or the part of it in its first page: after a small object at the
 * end of the heap there may be no mapped memory. Names span two pages at most. */
static __always_inline u32 read_string(u8 *into, u32 most, u64 address)
{
	u64 in_page = PAGE_BYTES - (address & (PAGE_BYTES - 1));

	if (!bpf_probe_read_user(into, most, (void *)address))
		return most;
	barrier_var(in_page);
	if (in_page < most && !bpf_probe_read_user(into, in_page, (void *)address))
		return in_page;
	return 0;
}

static __always_inline bool send_code(const struct walk *walk, const struct frame_layout *layout,
				      const struct frame *frame, s64 length, u64 table, u32 most)
{
	struct code_event *event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event) + most, 0);
	/* 64 bits wide: kernels before 6.8 forget the bound of a narrower one */
	u64 bytes = length < 0 ? 0 : length > most ? most : length;

	if (!event)
		return false;
	event->kind = EVENT_CODE;
	event->pid = walk->pid;
	event->code = frame->code;
	event->identity = frame->identity;
	event->layout = walk->layout;
	event->first_line = read_u32(frame->code + layout->code_first_line);
	event->file_name_bytes = read_string(event->file_name, FILE_NAME_BYTES,
					     read_pointer(frame->code + layout->code_filename));
	event->function_name_bytes = read_string(event->function_name, FUNCTION_NAME_BYTES,
						 read_pointer(frame->code + layout->code_name));
	event->table_length = length;
	barrier_var(bytes);
	if (bytes > most)
		bytes = most;
	if (bpf_probe_read_user((u8 *)(event + 1), bytes, (void *)table))
		bytes = 0;
	event->table_bytes = bytes;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return true;
}

/* The identity of a code object, which is sent if user space does not know it; 0 if that failed. */
__noinline u32 identity_of(const struct walk *walk, const struct frame_layout *layout, struct frame *frame)
{
	struct code_key key = {};
	const u32 *known;
	s64 length = -1;
	u32 identity;
	u64 table;
	bool sent;

	if (!walk || !layout || !frame)
		return 0;
	key.code = frame->code;
	key.pid = walk->pid;
	key.incarnation = walk->incarnation;
	known = bpf_map_lookup_elem(&seen_codes, &key);
	if (known)
		return *known;
	/* no two within one nanosecond, and none repeated within four seconds at the same
	 * address */
	identity = (u32)bpf_ktime_get_ns() | 1;
	frame->identity = identity;
	table = read_pointer(key.code + layout->code_line_table);
	bpf_probe_read_user(&length, sizeof(length), (void *)(table + layout->bytes_length));
	table += layout->bytes_data;
	if (length > SMALL_TABLE_BYTES)
		sent = send_code(walk, layout, frame, length, table, LARGE_TABLE_BYTES);
	else
		sent = send_code(walk, layout, frame, length, table, SMALL_TABLE_BYTES);
	if (!sent)
		return 0;
	bpf_map_update_elem(&seen_codes, &key, &identity, BPF_ANY);
	return identity;
}

static __always_inline bool send_stack(const struct walk *walk, u64 id)
{
	struct stack_event *event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);

	if (!event)
		return false;
	event->kind = EVENT_STACK;
	event->pid = walk->pid;
	event->id = id;
	event->layout = walk->layout;
	event->depth = walk->depth;
	event->truncated = walk->next && walk->depth >= stack_depth;
	event->unreadable = walk->next && walk->depth < stack_depth;
	__builtin_memcpy(event->frames, walk->frames, sizeof(event->frames));
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return true;
}

#define STACK_LOST 1ull

/* The id of a stack, none of whose code objects was checked since one was freed. */
__noinline u64 check_stack(struct walk *walk, const struct frame_layout *layout, u32 code_deaths)
{
	struct seen_stack seen = { .code_deaths = code_deaths };
	struct seen_stack *known;
	u64 hash;

	if (!walk || !layout)
		return STACK_LOST;
	/* the key of a map is on the stack: kernels before 6.6 accept no other memory from a global
	 * function's argument */
	hash = walk->hash;
	seen.id = hash;
	for (u32 i = 0; i < MAX_STACK_DEPTH; i++) {
		u32 identity;

		if (i >= walk->depth)
			break;
		identity = identity_of(walk, layout, &walk->frames[i]);
		if (!identity)
			goto lost;
		walk->frames[i].identity = identity;
		seen.id = mixed(seen.id, identity);
	}
	if (seen.id <= STACK_LOST)
		seen.id = 2;
	known = bpf_map_lookup_elem(&seen_stacks, &hash);
	if (known && known->id == seen.id) {
		known->code_deaths = code_deaths;
		return seen.id;
	}
	if (!send_stack(walk, seen.id))
		goto lost;
	bpf_map_update_elem(&seen_stacks, &hash, &seen, BPF_ANY);
	return seen.id;
lost:
	count(COUNTER_LOST_STACKS);
	return STACK_LOST;
}

/* A code object is about to be freed. */
static __always_inline void forget_code(u64 code, u32 pid)
{
	struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	struct code_key key = { .code = code, .pid = pid };

	if (!process)
		return;
	key.incarnation = process->incarnation;
	bpf_map_delete_elem(&seen_codes, &key);
	__sync_fetch_and_add(&process->code_deaths, 1);
}

/* Reads `tstate_frame` of the thread that holds the GIL, which is the current one in everything
 * that allocates or collects. */
static __always_inline u64 current_frame(const struct frame_layout *layout, u64 runtime, u64 interpreter)
{
	u64 tstate = 0;

	if (layout->tstate_frame == NO_OFFSET)
		return 0;
	if (layout->runtime_tstate != NO_OFFSET)
		tstate = read_pointer(runtime + layout->runtime_tstate);
	else if (layout->interpreter_gil != NO_OFFSET && interpreter)
		tstate = read_pointer(read_pointer(interpreter + layout->interpreter_gil) + layout->gil_holder);
	return tstate ? read_pointer(tstate + layout->tstate_frame) : 0;
}

/* Walks the stack of a thread, starting from the value of `tstate_frame`, and sends it if it is
 * new. Returns its id; 0 if there is none, STACK_LOST if it is new and could not be sent. */
static __always_inline u64 take_stack(struct walk *walk, const struct layout *layouts_entry, u32 layout_index,
				      u64 frame, u32 pid, const struct followed_process *process)
{
	const struct frame_layout *layout = &layouts_entry->frames;
	const struct seen_stack *known;
	u32 code_deaths;

	if (!stack_depth || layout->tstate_frame == NO_OFFSET || !frame)
		return 0;
	code_deaths = process->code_deaths;
	walk->next = layout->frame_indirection == NO_OFFSET ? frame : read_pointer(frame + layout->frame_indirection);
	walk->copied_bytes = 0;
	walk->depth = 0;
	walk->pid = pid;
	walk->incarnation = process->incarnation;
	walk->layout = layout_index;
	walk->hash = mixed((u64)pid << 32 | walk->incarnation, layout_index);
	walk_frames(walk, layout);
	if (!walk->depth)
		return 0;
	walk->hash = mixed(walk->hash, walk->next != 0);
	known = bpf_map_lookup_elem(&seen_stacks, &walk->hash);
	if (known && known->code_deaths == code_deaths)
		return known->id;
	return check_stack(walk, layout, code_deaths);
}

#endif
