/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: the Python stack of a thread. A stack is named by a hash of its frames; the frames, and what
 * is needed to name their lines, are sent when they are first met, while the code objects are alive
 * for certain. Used by every probe that wants a stack.
 *
 * A code object may die and another take its address. `identity` tells them apart: the version
 * number that CPython gives each code object from 3.12 on; before, a hash of what is shown of it; in
 * both, mixed with the incarnation of the process.
 */
#ifndef GCTRACE_STACK_H
#define GCTRACE_STACK_H

/* --stack-depth: 0 turns stacks off. */
const volatile u32 stack_depth = 0;

/* Fields of a frame that are read, in every version: 3.8 has the last, at 104. */
#define FRAME_BYTES 112
#define PAGE_BYTES 4096
/* What is compared of a file name before 3.12. */
#define COMPARED_BYTES 64
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
	u32 identity;
};

/* Stacks and code objects that user space knows. Those not met for long are forgotten and sent again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SEEN_STACKS);
	__type(key, u64);
	__type(value, u32);
} seen_stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SEEN_CODES);
	__type(key, struct code_key);
	__type(value, u32);
} seen_codes SEC(".maps");

/* A walk: where it reads and what it found. Too large for the BPF stack. */
struct walk {
	u64 hash;
	u64 next;              /* address of the next frame                                       */
	u32 depth;
	u32 layout;            /* index                                                           */
	u32 pid;
	u32 incarnation;       /* of the process, see `followed`                                  */
	u8 block[FRAME_BYTES];
	u8 name[COMPARED_BYTES];
	struct frame frames[MAX_STACK_DEPTH];
};

static __always_inline u64 mixed(u64 hash, u64 value)
{
	/* the finalizer's multiplier of splitmix64 */
	hash = (hash ^ value) * 0xbf58476d1ce4e5b9ull;
	return hash ^ (hash >> 29);
}

static __always_inline u64 frame_word(const struct walk *walk, u32 offset)
{
	return offset > FRAME_BYTES - 8 ? 0 : *(const u64 *)(walk->block + offset);
}

static __always_inline u32 frame_int(const struct walk *walk, u32 offset)
{
	return offset > FRAME_BYTES - 4 ? 0 : *(const u32 *)(walk->block + offset);
}

static __always_inline u32 frame_byte(const struct walk *walk, u32 offset)
{
	return offset > FRAME_BYTES - 1 ? 0 : walk->block[offset];
}

static __always_inline u32 read_u32(u64 address)
{
	u32 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* Where the instructions are that the frame executes: a free-threaded build has a copy for each
 * thread, the first of which lies in the code object. */
static __always_inline u64 instructions_of(const struct walk *walk, const struct frame_layout *layout, u64 code)
{
	u32 copy = layout->frame_tlbc_index == NO_OFFSET ? 0 : frame_int(walk, layout->frame_tlbc_index);

	if (!copy)
		return code + layout->code_bytes;
	return read_pointer(read_pointer(code + layout->code_tlbc) + 8 + 8 * (u64)copy);
}

static __always_inline u32 instruction_offset(const struct walk *walk, const struct frame_layout *layout, u64 code)
{
	s64 offset;

	if (layout->instruction_kind == INSTRUCTION_INDEX)
		offset = (s64)(s32)frame_int(walk, layout->frame_instruction) * layout->instruction_scale;
	else
		offset = frame_word(walk, layout->frame_instruction) - instructions_of(walk, layout, code);
	return offset < 0 || offset > 0x7fffffff ? NO_OFFSET : (u32)offset;
}

/* Copies the begin of a string's text, not more than there is of it: what lies behind changes. */
static __always_inline void copy_text(struct walk *walk, const struct frame_layout *layout, u64 string)
{
	u64 length = read_pointer(string + layout->unicode_length);
	u64 bytes = length > COMPARED_BYTES ? COMPARED_BYTES : length;

	__builtin_memset(walk->name, 0, sizeof(walk->name));
	barrier_var(bytes);
	if (bytes <= COMPARED_BYTES)
		bpf_probe_read_user(walk->name, bytes, (void *)(string + layout->unicode_data));
}

/* A hash of what is shown of a code object. */
static __always_inline u32 identity_by_content(struct walk *walk, const struct frame_layout *layout, u64 code)
{
	u64 file = read_pointer(code + layout->code_filename);
	u64 name = read_pointer(code + layout->code_name);
	u64 hash = mixed(read_u32(code + layout->code_first_line), read_pointer(name + layout->unicode_hash));
	const u64 *words = (const u64 *)walk->name;

	hash = mixed(hash, file);
	copy_text(walk, layout, file);
	for (u32 i = 0; i < COMPARED_BYTES / 8; i++)
		hash = mixed(hash, words[i]);
	return (u32)(hash >> 16) | 1;
}

static __always_inline u32 identity_of(struct walk *walk, const struct frame_layout *layout, u64 code)
{
	u32 version = layout->code_version == NO_OFFSET ? 0 : read_u32(code + layout->code_version);

	/* 0: the counter of versions has run over */
	return (version ? version : identity_by_content(walk, layout, code)) ^ walk->incarnation;
}

/* A frame whose function has not begun: sys._getframe() leaves it out. From 3.12 on only the innermost
 * can be one; in 3.11 a collection, and so Python code, can run while a frame makes its cells. */
static __always_inline bool is_incomplete(const struct frame_layout *layout, u64 code, u32 owner, u32 offset,
					  u32 depth)
{
	u32 first;

	if (layout->code_first_traceable == NO_OFFSET || owner == GENERATOR_OWNER)
		return false;
	if (depth && layout->code_version != NO_OFFSET)
		return false;
	/* counted in instructions of two bytes */
	first = 2 * read_u32(code + layout->code_first_traceable);
	return offset == NO_OFFSET ? first > 0 : offset < first;
}

/* Takes one frame; false at the end of the stack. */
static __always_inline bool step(struct walk *walk, const struct frame_layout *layout)
{
	u32 owner, offset, bytes = layout->frame_bytes, depth = walk->depth;
	struct frame *frame;
	u64 code;

	if (!walk->next || bytes > FRAME_BYTES || bytes < 8)
		return false;
	if (bpf_probe_read_user(walk->block, bytes, (void *)walk->next))
		return false;
	walk->next = frame_word(walk, layout->frame_back);
	owner = layout->frame_owner == NO_OFFSET ? 0 : frame_byte(walk, layout->frame_owner);
	code = frame_word(walk, layout->frame_code) & ~(u64)layout->code_tag_mask;
	if (owner >= SHIM_OWNER || !code)
		return true;
	offset = instruction_offset(walk, layout, code);
	if (is_incomplete(layout, code, owner, offset, depth))
		return true;
	if (depth >= MAX_STACK_DEPTH)
		return false;
	frame = &walk->frames[depth];
	frame->code = code;
	frame->offset = offset;
	frame->identity = identity_of(walk, layout, code);
	walk->depth = depth + 1;
	walk->hash = mixed(mixed(walk->hash, code), (u64)offset << 32 | frame->identity);
	return true;
}

/* The begin of a string object, or as much of it as lies in its first page: behind a small object at
 * the end of the heap there may be no memory yet. Names span two pages at most. */
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
	u32 bytes = length < 0 ? 0 : length > most ? most : (u32)length;

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

/* Sends a code object unless user space knows it. */
static __noinline int make_code_known(const struct walk *walk, const struct frame_layout *layout,
				      const struct frame *frame)
{
	struct code_key key = { .code = frame->code, .pid = walk->pid, .identity = frame->identity };
	u64 table;
	s64 length = -1;
	u32 yes = 1;
	bool sent;

	if (bpf_map_lookup_elem(&seen_codes, &key))
		return 0;
	table = read_pointer(key.code + layout->code_line_table);
	bpf_probe_read_user(&length, sizeof(length), (void *)(table + layout->bytes_length));
	table += layout->bytes_data;
	if (length > SMALL_TABLE_BYTES)
		sent = send_code(walk, layout, frame, length, table, LARGE_TABLE_BYTES);
	else
		sent = send_code(walk, layout, frame, length, table, SMALL_TABLE_BYTES);
	if (sent)
		bpf_map_update_elem(&seen_codes, &key, &yes, BPF_ANY);
	return 0;
}

static __always_inline bool send_stack(const struct walk *walk)
{
	struct stack_event *event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);

	if (!event)
		return false;
	event->kind = EVENT_STACK;
	event->pid = walk->pid;
	event->id = walk->hash;
	event->layout = walk->layout;
	event->depth = walk->depth;
	event->truncated = walk->next != 0;
	event->reserved = 0;
	__builtin_memcpy(event->frames, walk->frames, sizeof(event->frames));
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return true;
}

/* Sends a stack and its code objects, these first. */
static __noinline int make_stack_known(const struct walk *walk, const struct frame_layout *layout)
{
	u32 yes = 1;

	for (u32 i = 0; i < MAX_STACK_DEPTH; i++) {
		if (i >= walk->depth)
			break;
		make_code_known(walk, layout, &walk->frames[i]);
	}
	if (!send_stack(walk)) {
		count(COUNTER_LOST_STACKS);
		return -1;
	}
	bpf_map_update_elem(&seen_stacks, &walk->hash, &yes, BPF_ANY);
	return 0;
}

/* The thread state of the thread that holds the GIL, which is the current one in all that allocates
 * or collects. */
static __always_inline u64 current_tstate(const struct frame_layout *layout, u64 runtime, u64 interpreter)
{
	if (layout->runtime_tstate != NO_OFFSET)
		return read_pointer(runtime + layout->runtime_tstate);
	if (layout->interpreter_gil == NO_OFFSET || !interpreter)
		return 0;
	return read_pointer(read_pointer(interpreter + layout->interpreter_gil) + layout->gil_holder);
}

#define STACK_LOST 1ull

/* Walks the stack of a thread and makes it known. Its id; 0 if there is none, STACK_LOST if it is new
 * and could not be sent. */
static __always_inline u64 take_stack(struct walk *walk, const struct layout *layouts_entry, u32 layout_index,
				      u64 tstate, u32 pid, u32 incarnation)
{
	const struct frame_layout *layout = &layouts_entry->frames;

	if (!stack_depth || layout->tstate_frame == NO_OFFSET || !tstate)
		return 0;
	walk->next = read_pointer(tstate + layout->tstate_frame);
	if (layout->frame_indirection != NO_OFFSET && walk->next)
		walk->next = read_pointer(walk->next + layout->frame_indirection);
	walk->depth = 0;
	walk->pid = pid;
	walk->incarnation = incarnation;
	walk->layout = layout_index;
	walk->hash = mixed(mixed(pid, incarnation), layout_index);
	for (u32 i = 0; i < MAX_STEPS; i++)
		if (walk->depth >= stack_depth || !step(walk, layout))
			break;
	if (!walk->depth)
		return 0;
	walk->hash = mixed(walk->hash, walk->next != 0);
	if (walk->hash <= STACK_LOST)
		walk->hash = 2;
	if (!bpf_map_lookup_elem(&seen_stacks, &walk->hash) && make_stack_known(walk, layout))
		return STACK_LOST;
	return walk->hash;
}

#endif
