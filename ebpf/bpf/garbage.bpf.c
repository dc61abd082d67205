/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: what a collection frees. One probe on the instruction that enters the collector's loop over
 * its garbage; the list is walked by kind of object, within a budget. A separate object, loaded for
 * --garbage only: bpf_loop needs Linux 5.17. The maps of maps.bpf.h, stack.bpf.h and thread.bpf.h
 * are the session's.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.bpf.h"
#include "arch.bpf.h"
#include "cpython.bpf.h"
#include "stack.bpf.h"
#include "thread.bpf.h"
#include "budget.bpf.h"

/* PyGC_Head of 3.8 and later with the GIL: next and previous, whose low two bits are flags; the
 * object follows (cpython/objimpl.h). */
#define HEAD_BYTES 16
#define HEAD_FLAGS 3ull
/* How far above the stack pointer the head of the list can be: a local variable of the collector, or
 * of its caller. */
#define HEAD_DISTANCE 2048
/* What is copied of an object with its head: all fields that are read, in words. */
#define OBJECT_WORDS 11
/* Of the smallest object: head, reference count, type, one field. */
#define SMALL_WORDS 5
/* PyObject, PyVarObject: in words, head included. */
#define OBJECT_TYPE 3
#define OBJECT_SIZE 4
/* Py_TPFLAGS_HEAPTYPE, _TUPLE_SUBCLASS and _TYPE_SUBCLASS: every version */
#define HEAP_TYPE (1ull << 9)
#define TUPLE_SUBCLASS (1ull << 26)
#define TYPE_SUBCLASS (1ull << 31)
/* PyTypeObject, 3.8 - 3.15 with the GIL */
#define TYPE_NAME 24
#define TYPE_BASIC_BYTES 32
#define TYPE_FLAGS 168
#define TYPE_DICT_FIELD 264
/* PyDictObject.ma_keys, 3.8 - 3.15 */
#define DICT_KEYS_FIELD 32

/* Twice as many as kinds, so that few have to be looked at. */
#define INDEX_SLOTS 512
#define MAX_PROBES 16
#define KINDS_FOR_TYPES 96

/* The examination of one list. Too large for the BPF stack, and not per CPU: see struct thread. */
struct garbage_walk {
	u64 object[OBJECT_WORDS]; /* copy of the current one                                      */
	u32 last;                 /* kind of the previous object, or MAX_GARBAGE_KINDS            */
	u32 reserved;
	u8 index[INDEX_SLOTS];    /* 1 + position in `kinds`, by a hash; 0: free                  */
	u8 name[TYPE_NAME_BYTES];
	struct garbage_event event;
	struct garbage_kind kinds[MAX_GARBAGE_KINDS + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* 15 KB each */
	__type(key, u32);
	__type(value, struct garbage_walk);
} garbage_walks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct garbage_walk);
} empty_garbage_walk SEC(".maps");

struct seen_type {
	u64 name;              /* a hash of tp_name                                               */
	u32 identity;
	u32 reserved;
};

/* Types that user space knows, like `seen_codes`. A type dies only as garbage, which may be in a
 * collection that is not examined: one at the same address is another if its name differs. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SEEN_CODES);
	__type(key, struct code_key);
	__type(value, struct seen_type);
} seen_types SEC(".maps");

/* Of the loops. */
struct walk_context {
	struct garbage_walk *walk;
	const struct layout *layout;
	struct thread *thread;
	u64 runtime;
	u64 head;
	u64 node;
	u64 objects;
	u32 unreadable;
	u32 incarnation;
};

static __always_inline struct garbage_walk *walk_of(u32 tid)
{
	struct garbage_walk *walk = bpf_map_lookup_elem(&garbage_walks, &tid);
	u32 zero = 0;

	if (walk)
		return walk;
	walk = bpf_map_lookup_elem(&empty_garbage_walk, &zero);
	if (!walk || bpf_map_update_elem(&garbage_walks, &tid, walk, BPF_NOEXIST))
		return 0;
	return bpf_map_lookup_elem(&garbage_walks, &tid);
}

/* Position of the kind, which is added if it is new; MAX_GARBAGE_KINDS: there is no room. A part of
 * the room is kept for types: objects whose code has none count as those of their type. */
static __noinline u32 place_of(struct garbage_walk *walk, u64 type, u64 code, u32 offset)
{
	u32 room = code ? MAX_GARBAGE_KINDS - KINDS_FOR_TYPES : MAX_GARBAGE_KINDS;
	u64 hash = mixed(mixed(type, code), offset);
	struct garbage_kind *kind;

	for (u32 i = 0; i < MAX_PROBES; i++) {
		u64 slot = (hash + i) & (INDEX_SLOTS - 1);
		u32 at = walk->index[slot];

		if (!at) {
			at = walk->event.kinds;
			if (at >= room)
				return MAX_GARBAGE_KINDS;
			walk->index[slot] = at + 1;
			walk->event.kinds = at + 1;
			kind = &walk->kinds[at & MAX_GARBAGE_KINDS];
			kind->type = type;
			kind->code = code;
			kind->offset = offset;
			kind->code_identity = 0;
			kind->type_identity = 0;
			kind->known_type = TYPE_NEW;
			kind->objects = 0;
			kind->bytes = 0;
			return at;
		}
		at -= 1;
		kind = &walk->kinds[at & MAX_GARBAGE_KINDS];
		if (kind->type == type && kind->code == code && kind->offset == offset)
			return at;
	}
	return MAX_GARBAGE_KINDS;
}

static __noinline u32 known_type(const struct object_layout *objects, u64 runtime, u64 type)
{
	for (u32 i = 1; i < KNOWN_TYPES; i++)
		if (objects->types[i] && runtime + objects->types[i] == type)
			return i;
	return TYPE_OTHER;
}

#define ITEMS_UNKNOWN (~0u)

/* Sizes of the objects of a type, and how they lead to code. */
static __always_inline void note_type(const struct walk_context *context, struct garbage_kind *kind)
{
	u64 flags = read_pointer(kind->type + TYPE_FLAGS);
	u64 sizes[2] = {};

	bpf_probe_read_user(sizes, sizeof(sizes), (void *)(kind->type + TYPE_BASIC_BYTES));
	kind->known_type = flags & TYPE_SUBCLASS ? TYPE_CLASS :
		known_type(&context->layout->objects, context->runtime, kind->type);
	kind->basic_bytes = sizes[0];
	/* Where others have the number of their items, and whether they have one, is unknown: frames
	 * of 3.11 and later, ints of 3.12 and later do not. */
	kind->item_bytes = sizes[1];
	if (kind->item_bytes && !(flags & (TUPLE_SUBCLASS | TYPE_SUBCLASS)))
		kind->item_bytes = ITEMS_UNKNOWN;
}

/* A code object, and an instruction in it. */
struct place {
	u64 code;
	u32 offset;
};

/* The frame's code and instruction: the fields of struct frame_layout. */
static __always_inline void place_of_frame(const struct frame_layout *layout, u64 frame, struct place *place)
{
	u64 instruction = read_pointer(frame + layout->frame_instruction);
	s64 offset;

	place->code = read_pointer(frame + layout->frame_code) & ~(u64)layout->code_tag_mask;
	if (layout->instruction_kind == INSTRUCTION_INDEX)
		offset = (s64)(s32)instruction * layout->instruction_scale;
	else
		offset = instruction - (place->code + layout->code_bytes);
	place->offset = offset < 0 || offset > 0x7fffffff ? NO_OFFSET : (u32)offset;
}

static __always_inline u64 frame_of_object(const struct object_layout *objects, u64 frame)
{
	if (!frame || objects->frame_object_frame == NO_OFFSET)
		return frame;
	return read_pointer(frame + objects->frame_object_frame);
}

/* PyCellObject.ob_ref and PyMethodObject.im_func; PyTracebackObject.tb_frame and tb_lasti: every
 * version */
#define CONTENT 16
#define TRACEBACK_FRAME 24
#define TRACEBACK_INSTRUCTION 32

/* The code, or class, to which an object of a known type belongs; `place->code` is 0 if there is
 * none. */
static __noinline int find_place(const struct layout *layout, u64 object, u32 type, struct place *place)
{
	const struct object_layout *objects = &layout->objects;
	const struct frame_layout *frames = &layout->frames;
	u64 frame;

	switch (type) {
	case TYPE_CLASS:
		place->code = object;
		place->offset = OF_CLASS;
		break;
	case TYPE_FUNCTION:
		place->code = read_pointer(object + objects->function_code);
		break;
	case TYPE_FRAME:
		frame = frame_of_object(objects, object);
		if (frame)
			place_of_frame(frames, frame, place);
		break;
	case TYPE_TRACEBACK:
		frame = frame_of_object(objects, read_pointer(object + TRACEBACK_FRAME));
		if (frame)
			place_of_frame(frames, frame, place);
		place->offset = read_u32(object + TRACEBACK_INSTRUCTION);
		break;
	case TYPE_GENERATOR:
	case TYPE_COROUTINE:
	case TYPE_ASYNC_GENERATOR:
		if (objects->generator_code == NO_OFFSET) {
			place_of_frame(frames, object + objects->generator_frame, place);
			break;
		}
		frame = read_pointer(object + objects->generator_frame);
		if (frame)
			place_of_frame(frames, frame, place);
		else
			place->code = read_pointer(object + objects->generator_code);
		break;
	}
	return 0;
}

/* What a cell contains, or the function of a bound method. */
static __noinline u64 content_of(const struct walk_context *context, u64 object, u32 *type)
{
	u64 content = read_pointer(object + CONTENT), class;

	*type = TYPE_OTHER;
	if (!content)
		return 0;
	class = read_pointer(content + 8);
	if (read_pointer(class + TYPE_FLAGS) & TYPE_SUBCLASS)
		*type = TYPE_CLASS;
	else
		*type = known_type(&context->layout->objects, context->runtime, class);
	return content;
}

/* PyDictObject: ma_keys, then ma_values (cpython/dictobject.h); PyListObject: `allocated`. In words,
 * head included. */
#define DICT_KEYS 6
#define DICT_VALUES 7
#define LIST_ALLOCATED 6

/* struct _dictkeysobject (pycore_dict.h, before 3.11 dict-common.h) */
struct dict_keys {
	u64 references;
	u64 bytes;             /* of its header                                                   */
	u64 slots;             /* of the hash table                                               */
	u64 index_bytes;       /* of the hash table                                               */
	u64 entry_bytes;       /* 24: hash, key, value; 16: key, value                            */
	u64 entries;           /* used                                                            */
	u64 usable;            /* of a table of values for these keys                             */
};

static __always_inline bool read_keys(const struct object_layout *objects, u64 keys, struct dict_keys *found)
{
	u64 header[5];

	if (bpf_probe_read_user(header, sizeof(header), (void *)keys))
		return false;
	found->references = header[0];
	if (objects->compact_keys) {
		u32 size = header[1] & 0xff, index = header[1] >> 8 & 0xff, kind = header[1] >> 16 & 0xff;

		/* kind 2, of instances, has no entries of its own */
		if (size > 40 || index > 43)
			return false;
		found->bytes = 32;
		found->slots = 1ull << size;
		found->index_bytes = 1ull << index;
		found->entry_bytes = kind ? 16 : 24;
		found->entries = header[3];
		found->usable = header[2] + header[3];
		return true;
	}
	found->bytes = 40;
	found->slots = header[1];
	found->index_bytes = header[1] * (header[1] <= 0xff ? 1 : header[1] <= 0xffff ? 2 : header[1] <= 0xffffffff ? 4 : 8);
	found->entry_bytes = 24;
	found->entries = header[4];
	found->usable = 2 * header[1] / 3;
	return true;
}

/* What an object owns beside its fixed part and its items: the tables of lists and dicts. */
static __always_inline u64 table_bytes(const struct layout *layout, const struct garbage_walk *walk, u32 type)
{
	struct dict_keys keys;
	u64 bytes = 0;

	if (type == TYPE_LIST)
		return walk->object[LIST_ALLOCATED] * 8;
	if (type != TYPE_DICT || !read_keys(&layout->objects, walk->object[DICT_KEYS], &keys))
		return 0;
	if (walk->object[DICT_VALUES])
		bytes = keys.usable * 8;
	/* keys that are shared belong to the type */
	if (keys.references == 1)
		bytes += keys.bytes + keys.index_bytes + 2 * keys.slots / 3 * keys.entry_bytes;
	return bytes;
}

static __always_inline void add_bytes(const struct layout *layout, const struct garbage_walk *walk,
				      struct garbage_kind *kind)
{
	u64 items = 0;

	if (kind->item_bytes == ITEMS_UNKNOWN) {
		kind->bytes = BYTES_UNKNOWN;
		return;
	}
	if (kind->item_bytes)
		items = walk->object[OBJECT_SIZE];
	kind->bytes += kind->basic_bytes + kind->item_bytes * items + table_bytes(layout, walk, kind->known_type);
}

static __always_inline bool leads_to_code(u32 type)
{
	return (type >= TYPE_FUNCTION && type <= TYPE_ASYNC_GENERATOR) || type == TYPE_CLASS;
}

/* Whether the layout of objects and frames is known. */
static __always_inline bool has_places(const struct layout *layout)
{
	return layout->objects.type_qualname != NO_OFFSET && layout->frames.tstate_frame != NO_OFFSET;
}

/* Counts one object, and goes to the next. */
static long count_object(u64 index, struct walk_context *context)
{
	struct garbage_walk *walk = context->walk;
	struct garbage_kind *kind;
	u32 at = walk->last;
	u64 type, node = context->node;

	(void)index;
	if (node == context->head)
		return 1;
	if (bpf_probe_read_user(walk->object, sizeof(walk->object), (void *)node) &&
	    bpf_probe_read_user(walk->object, SMALL_WORDS * 8, (void *)node)) {
		context->unreadable = 1;
		return 1;
	}
	context->node = walk->object[0] & ~HEAD_FLAGS;
	context->objects += 1;
	type = walk->object[OBJECT_TYPE];
	kind = &walk->kinds[at & MAX_GARBAGE_KINDS];
	if (at >= MAX_GARBAGE_KINDS || kind->type != type) {
		at = place_of(walk, type, 0, NO_OFFSET);
		if (at >= MAX_GARBAGE_KINDS) {
			walk->event.unlisted += 1;
			return 0;
		}
		kind = &walk->kinds[at & MAX_GARBAGE_KINDS];
		if (kind->known_type == TYPE_NEW)
			note_type(context, kind);
		walk->last = at;
	}
	if (leads_to_code(kind->known_type) && has_places(context->layout)) {
		struct place place = { .offset = NO_OFFSET };
		u32 of = kind->known_type;
		u64 object = node + HEAD_BYTES;

		if (of == TYPE_CELL || of == TYPE_METHOD)
			object = content_of(context, object, &of);
		find_place(context->layout, object, of, &place);
		at = place.code ? place_of(walk, type, place.code, place.offset) : MAX_GARBAGE_KINDS;
		if (at < MAX_GARBAGE_KINDS) {
			struct garbage_kind *of_code = &walk->kinds[at & MAX_GARBAGE_KINDS];

			of_code->known_type = kind->known_type;
			of_code->basic_bytes = kind->basic_bytes;
			of_code->item_bytes = kind->item_bytes;
			of_code->type_identity = walk->last;
			kind = of_code;
		}
	}
	kind->objects += 1;
	add_bytes(context->layout, walk, kind);
	return 0;
}

/* "__module__", the key of a class's dict */
#define MODULE_BYTES 10
#define MODULE_START 0x656c75646f6d5f5full
#define MODULE_END 0x5f5f
/* Most classes have it first; those that type() makes from a namespace, last. */
#define MAX_CLASS_ENTRIES 32

/* What is sent of a class's dict. */
struct class_entries {
	u64 module;            /* the value of __module__; 0: not found                           */
	u64 method;            /* code object of its first method; 0: not found                   */
};

static __noinline int read_class(const struct walk_context *context, u64 type, struct class_entries *class)
{
	const struct object_layout *objects = &context->layout->objects;
	u64 function = context->runtime + objects->types[TYPE_FUNCTION];
	u64 keys = read_pointer(read_pointer(type + TYPE_DICT_FIELD) + DICT_KEYS_FIELD);
	struct dict_keys found;
	u64 entry;

	if (!keys || !read_keys(objects, keys, &found))
		return 0;
	entry = keys + found.bytes + found.index_bytes + (found.entry_bytes - 16);
	for (u32 i = 0; i < MAX_CLASS_ENTRIES; i++) {
		u64 pair[2] = {};
		u64 text[2] = {};

		if (i >= found.entries || (class->module && class->method) ||
		    bpf_probe_read_user(pair, sizeof(pair), (void *)entry))
			return 0;
		entry += found.entry_bytes;
		if (!pair[0] || !pair[1])
			continue;
		if (!class->method && read_pointer(pair[1] + 8) == function)
			class->method = read_pointer(pair[1] + objects->function_code);
		if (!class->module && read_pointer(pair[0] + 16) == MODULE_BYTES &&
		    !bpf_probe_read_user(text, MODULE_BYTES, (void *)(pair[0] + objects->ascii_data)) &&
		    text[0] == MODULE_START && (text[1] & 0xffff) == MODULE_END)
			class->module = pair[1];
	}
	return 0;
}

static __noinline u32 identity_of_code(const struct walk_context *context, u64 code)
{
	struct frame frame = { .code = code, .offset = NO_OFFSET };
	u32 identity = identity_of(&context->thread->walk, &context->layout->frames, &frame);

	if (!identity)
		count(COUNTER_LOST_TYPES);
	return identity;
}

static __noinline int send_type(const struct walk_context *context, u64 type, u32 identity)
{
	const struct object_layout *objects = &context->layout->objects;
	bool is_heap = (read_pointer(type + TYPE_FLAGS) & HEAP_TYPE) && has_places(context->layout);
	struct class_entries class = {};
	struct type_event *event;
	u32 method = 0;

	if (is_heap) {
		read_class(context, type, &class);
		if (class.method)
			method = identity_of_code(context, class.method);
	}
	event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);
	if (!event)
		return 0;
	event->kind = EVENT_TYPE;
	event->pid = context->walk->event.pid;
	event->type = type;
	event->identity = identity;
	event->layout = context->walk->event.layout;
	event->qualname_bytes = 0;
	event->module_bytes = 0;
	event->method = class.method;
	event->method_identity = method;
	event->reserved = 0;
	__builtin_memcpy(event->name, context->walk->name, sizeof(event->name));
	if (is_heap)
		event->qualname_bytes = read_string(event->qualname, TYPE_STRING_BYTES,
						    read_pointer(type + objects->type_qualname));
	if (class.module)
		event->module_bytes = read_string(event->module, TYPE_STRING_BYTES, class.module);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 1;
}

static __noinline u32 identity_of_type(const struct walk_context *context, u64 type)
{
	struct garbage_walk *walk = context->walk;
	struct code_key key = { .code = type, .pid = walk->event.pid, .incarnation = context->incarnation };
	struct seen_type seen = {};
	const struct seen_type *known;

	__builtin_memset(walk->name, 0, sizeof(walk->name));
	bpf_probe_read_user_str(walk->name, sizeof(walk->name), (void *)read_pointer(type + TYPE_NAME));
	for (u32 i = 0; i < TYPE_NAME_BYTES / 8; i++)
		seen.name = mixed(seen.name, ((u64 *)walk->name)[i]);
	known = bpf_map_lookup_elem(&seen_types, &key);
	if (known && known->name == seen.name)
		return known->identity;
	seen.identity = (u32)bpf_ktime_get_ns() | 1;
	if (!send_type(context, type, seen.identity)) {
		count(COUNTER_LOST_TYPES);
		return 0;
	}
	bpf_map_update_elem(&seen_types, &key, &seen, BPF_ANY);
	return seen.identity;
}

/* Type and code of a kind, which are sent if user space does not know them: after this collection
 * they may be gone. */
static long describe_kind(u64 index, struct walk_context *context)
{
	struct garbage_walk *walk = context->walk;
	struct garbage_kind *kind;
	u64 at = index;

	if (at >= walk->event.kinds)
		return 1;
	kind = &walk->kinds[at & MAX_GARBAGE_KINDS];
	if (!kind->code) {
		kind->type_identity = identity_of_type(context, kind->type);
		return 0;
	}
	/* the position of the type's own entry, which came before */
	kind->type_identity = walk->kinds[kind->type_identity & MAX_GARBAGE_KINDS].type_identity;
	if (kind->offset == OF_CLASS)
		kind->code_identity = identity_of_type(context, kind->code);
	else
		kind->code_identity = identity_of_code(context, kind->code);
	return 0;
}

static __always_inline bool is_head(u64 address, u64 stack, struct walk_context *context)
{
	u64 next, back;

	if (address < stack || address > stack + HEAD_DISTANCE || address & 7)
		return false;
	next = read_pointer(address);
	if (!next || next == address)
		return false;
	back = read_pointer(next + 8) & ~HEAD_FLAGS;
	if (back != address)
		return false;
	context->head = address;
	context->node = next & ~HEAD_FLAGS;
	return true;
}

#define TRY_HEAD(number) is_head(register_value(registers, number), stack, context)

/* The head of the list is on the stack, and in some register. */
static __always_inline bool find_head(struct pt_regs *registers, struct walk_context *context)
{
	u64 stack = registers->sp;

#if defined(__TARGET_ARCH_arm64)
	return TRY_HEAD(19) || TRY_HEAD(20) || TRY_HEAD(21) || TRY_HEAD(22) || TRY_HEAD(23) || TRY_HEAD(24) ||
	       TRY_HEAD(25) || TRY_HEAD(26) || TRY_HEAD(27) || TRY_HEAD(28) || TRY_HEAD(0) || TRY_HEAD(1) ||
	       TRY_HEAD(2) || TRY_HEAD(3);
#else
	return TRY_HEAD(3) || TRY_HEAD(12) || TRY_HEAD(13) || TRY_HEAD(14) || TRY_HEAD(15) || TRY_HEAD(5) ||
	       TRY_HEAD(0) || TRY_HEAD(1) || TRY_HEAD(2) || TRY_HEAD(6) || TRY_HEAD(7);
#endif
}

static __always_inline void send_garbage(struct walk_context *context)
{
	struct garbage_event *event = &context->walk->event;
	u64 bytes = event->kinds;

	barrier_var(bytes);
	if (bytes > MAX_GARBAGE_KINDS)
		bytes = MAX_GARBAGE_KINDS;
	bytes = sizeof(*event) + bytes * sizeof(struct garbage_kind);
	event->cost_ns = bpf_ktime_get_ns() - event->at_ns;
	if (bpf_ringbuf_output(&pause_ring, event, bytes, BPF_RB_NO_WAKEUP))
		count(COUNTER_LOST_GARBAGE);
	else
		count(COUNTER_GARBAGE_WALKED);
}

/* Walks the list and sends what is in it. */
static __always_inline void examine(struct walk_context *context, u32 layout_index, u32 pid, u32 tid, u64 now)
{
	struct garbage_walk *walk = context->walk;
	struct walk *codes = &context->thread->walk;

	walk->last = MAX_GARBAGE_KINDS;
	__builtin_memset(walk->index, 0, sizeof(walk->index));
	walk->event.kind = EVENT_GARBAGE;
	walk->event.pid = pid;
	walk->event.tid = tid;
	walk->event.kinds = 0;
	walk->event.at_ns = now;
	walk->event.layout = layout_index;
	walk->event.unlisted = 0;
	bpf_loop(MAX_GARBAGE_OBJECTS, count_object, context, 0);
	if (context->unreadable) {
		count(COUNTER_GARBAGE_UNREADABLE);
		return;
	}
	if (context->node != context->head) {
		count(COUNTER_GARBAGE_TOO_LONG);
		return;
	}
	walk->event.objects = context->objects;
	/* As take_stack leaves them for the stacks of this thread. */
	codes->pid = pid;
	codes->incarnation = context->incarnation;
	codes->layout = layout_index;
	bpf_loop(MAX_GARBAGE_KINDS, describe_kind, context, 0);
	send_garbage(context);
}

SEC("uprobe.multi")
int at_garbage(struct pt_regs *registers)
{
	u64 ids = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), took;
	u32 pid = ids >> 32, tid = ids, index = bpf_get_attach_cookie(registers);
	const struct followed_process *process = bpf_map_lookup_elem(&followed, &pid);
	struct point *point = bpf_map_lookup_elem(&points, &index);
	struct walk_context context = {};
	struct garbage_budget *budget;
	struct open_pause *pause;
	u64 depth;
	bool full;

	stay_on_thread_stack(registers);
	if (!process) {
		count(COUNTER_FOREIGN_HITS + POINT_GARBAGE);
		return 0;
	}
	count(COUNTER_HITS + POINT_GARBAGE);
	context.thread = bpf_map_lookup_elem(&threads, &tid);
	if (!point || !context.thread)
		return 0;
	context.layout = bpf_map_lookup_elem(&layouts, &point->layout);
	depth = context.thread->depth - 1ull;
	barrier_var(depth);
	if (!context.layout || depth >= MAX_DEPTH)
		return 0;
	pause = &context.thread->pauses[depth];
	budget = budget_of(pid, process->incarnation);
	if (!budget)
		return 0;
	earn(budget, context.thread);
	if (!find_head(registers, &context)) {
		count(COUNTER_GARBAGE_EMPTY);
		return 0;
	}
	full = is_full(pause, context.layout);
	if (!affords(budget, full)) {
		count(COUNTER_GARBAGE_SKIPPED);
		return 0;
	}
	context.walk = walk_of(tid);
	if (!context.walk) {
		count(COUNTER_LOST_GARBAGE);
		return 0;
	}
	context.runtime = registers->PROGRAM_COUNTER + point->runtime_delta;
	context.incarnation = process->incarnation;
	examine(&context, point->layout, pid, tid, now);
	took = bpf_ktime_get_ns() - now;
	count_many(COUNTER_GARBAGE_NS, took);
	spend(budget, took, full);
	return 0;
}

/* The examination of a thread's garbage ends with it. */
SEC("raw_tp/sched_process_exit")
int on_thread_exit(void *context)
{
	u32 tid = bpf_get_current_pid_tgid();

	(void)context;
	bpf_map_delete_elem(&garbage_walks, &tid);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
