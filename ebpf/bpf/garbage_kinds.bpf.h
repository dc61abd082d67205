/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: the kind of an object: its type, the code or class that it belongs to, and its own memory.
 * Reads objects while the collector's thread is in the probe: nothing changes meanwhile.
 */
#ifndef GCTRACE_GARBAGE_KINDS_H
#define GCTRACE_GARBAGE_KINDS_H

/* What is copied of an object with its head, in words: a whole dict. More could be past the end of
 * the memory after a list, of which all is needed: it has 56 bytes in blocks of 16. */
#define OBJECT_WORDS 8
/* Of the smallest object: head, reference count, type, one field. */
#define SMALL_WORDS 5
/* PyObject, PyVarObject: in words, head included. */
#define OBJECT_TYPE 3
#define OBJECT_SIZE 4
/* Py_TPFLAGS_HEAPTYPE, _TUPLE_SUBCLASS and _TYPE_SUBCLASS: every version */
#define HEAP_TYPE (1ull << 9)
/* Py_TPFLAGS_INLINE_VALUES (3.13), _MANAGED_WEAKREF (3.12) and _MANAGED_DICT (3.11) */
#define INLINE_VALUES (1ull << 2)
#define MANAGED_WEAKREF (1ull << 3)
#define MANAGED_DICT (1ull << 4)
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

/* The examination of one list. Too large for the BPF stack, and not per CPU: see struct thread. What
 * it contains at the start is of another list.
 *
 * Functions that are not static are verified once and not at each call (see `step`); what they
 * return beside a number is here. */
struct garbage_walk {
	u64 runtime;              /* address of _PyRuntime                                        */
	u64 place;                /* code object or class that the current object belongs to      */
	u64 entry;                /* of a class's dict: address of the next                       */
	u64 module;               /* the value of __module__; 0: not found                        */
	u64 method;               /* code object of its first method; 0: not found                */
	u32 place_offset;
	u32 incarnation;
	struct dict_keys keys;
	u64 object[OBJECT_WORDS]; /* copy of the current one                                      */
	u32 last;                 /* kind of the previous object, or MAX_GARBAGE_KINDS            */
	u32 reserved;
	u8 index[INDEX_SLOTS];    /* 1 + position in `kinds`, by a hash; 0: free                  */
	u8 name[TYPE_NAME_BYTES];
	struct garbage_event event;
	struct garbage_kind kinds[MAX_GARBAGE_KINDS + 1];
};

/* Of the loops. */
struct walk_context {
	struct garbage_walk *walk;
	const struct layout *layout;
	struct walk *codes;    /* for the identities of code objects                              */
	u64 head;
	u64 node;
	u64 objects;
	u64 unreadable;
};

/* The kind at a position. The mask is for the verifier, and the compiler, which knows that the
 * position is small, must not remove it: before 6.8 the verifier does not see that. */
static __always_inline struct garbage_kind *kind_at(struct garbage_walk *walk, u64 at)
{
	asm volatile("" : "+r"(at));
	return &walk->kinds[at & MAX_GARBAGE_KINDS];
}

/* Position of the kind, which is added if it is new; MAX_GARBAGE_KINDS: there is no room. A part of
 * the room is kept for types: objects whose code has none count as those of their type. */
__noinline u32 place_of(struct garbage_walk *walk, u64 type, u64 code, u32 offset)
{
	u32 room = code ? MAX_GARBAGE_KINDS - KINDS_FOR_TYPES : MAX_GARBAGE_KINDS;
	u64 hash = mixed(mixed(type, code), offset);
	struct garbage_kind *kind;

	if (!walk)
		return MAX_GARBAGE_KINDS;
	for (u32 i = 0; i < MAX_PROBES; i++) {
		u64 slot = (hash + i) & (INDEX_SLOTS - 1);
		u32 at = walk->index[slot];

		if (!at) {
			at = walk->event.kinds;
			if (at >= room)
				return MAX_GARBAGE_KINDS;
			walk->index[slot] = at + 1;
			walk->event.kinds = at + 1;
			kind = kind_at(walk, at);
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
		kind = kind_at(walk, at);
		if (kind->type == type && kind->code == code && kind->offset == offset)
			return at;
	}
	return MAX_GARBAGE_KINDS;
}

/* The known type with this address. */
__noinline u32 known_type(const struct layout *layout, u64 runtime, u64 type)
{
	if (!layout)
		return TYPE_OTHER;
	for (u32 i = 1; i < KNOWN_TYPES; i++)
		if (layout->objects.types[i] && runtime + layout->objects.types[i] == type)
			return i;
	return TYPE_OTHER;
}

/* Instead of the bytes of each item. */
#define ITEMS_UNKNOWN (~0u)
#define HAS_VALUES (~0u - 1)

/* What is before an object: PyGC_Head, and two words for dict and values or weak references
 * (_PyType_PreHeaderSize in pycore_object.h). */
static __always_inline u32 bytes_before(u32 minor, u64 flags)
{
	u64 managed = minor >= 12 ? MANAGED_DICT | MANAGED_WEAKREF : minor >= 11 ? MANAGED_DICT : 0;

	return flags & managed ? 32 : 16;
}

/* Sizes of the objects of a type, and how they lead to code. */
__noinline int note_type(struct garbage_kind *kind, const struct layout *layout, u64 runtime)
{
	u64 sizes[2] = {};
	u64 flags;

	if (!kind || !layout)
		return 0;
	flags = read_pointer(kind->type + TYPE_FLAGS);
	bpf_probe_read_user(sizes, sizeof(sizes), (void *)(kind->type + TYPE_BASIC_BYTES));
	kind->known_type = flags & TYPE_SUBCLASS ? TYPE_CLASS : known_type(layout, runtime, kind->type);
	kind->basic_bytes = sizes[0] + bytes_before(layout->objects.minor, flags);
	/* Where others have the number of their items, and whether they have one, is unknown: frames
	 * of 3.11 and later, ints of 3.12 and later do not. */
	kind->item_bytes = sizes[1];
	if (kind->item_bytes && !(flags & (TUPLE_SUBCLASS | TYPE_SUBCLASS)))
		kind->item_bytes = ITEMS_UNKNOWN;
	else if (!kind->item_bytes && layout->objects.minor >= 11 &&
		 flags & (layout->objects.minor >= 13 ? INLINE_VALUES : MANAGED_DICT))
		kind->item_bytes = HAS_VALUES;
	return 0;
}

/* The frame's code and instruction: the fields of struct frame_layout. */
static __always_inline void place_of_frame(struct garbage_walk *walk, const struct frame_layout *layout, u64 frame)
{
	u64 instruction = read_pointer(frame + layout->frame_instruction);
	s64 offset;

	walk->place = read_pointer(frame + layout->frame_code) & ~(u64)layout->code_tag_mask;
	if (layout->instruction_kind == INSTRUCTION_INDEX)
		offset = (s64)(s32)instruction * layout->instruction_scale;
	else
		offset = instruction - (walk->place + layout->code_bytes);
	walk->place_offset = offset < 0 || offset > 0x7fffffff ? NO_OFFSET : (u32)offset;
}

static __always_inline u64 frame_of_object(const struct object_layout *objects, u64 frame)
{
	if (!frame || objects->frame_object_frame == NO_OFFSET)
		return frame;
	return read_pointer(frame + objects->frame_object_frame);
}

/* PyCellObject.ob_ref and PyMethodObject.im_func, in words, head included; PyTracebackObject.tb_frame
 * and tb_lasti: every version */
#define OBJECT_CONTENT 4
#define TRACEBACK_FRAME 24
#define TRACEBACK_INSTRUCTION 32

/* Finds the code, or class, to which an object of a known type belongs. */
__noinline int find_place(struct garbage_walk *walk, const struct layout *layout, u64 object, u32 type)
{
	u64 class, frame = 0;

	if (!walk || !layout)
		return 0;
	walk->place = 0;
	walk->place_offset = NO_OFFSET;
	if (type == TYPE_CELL || type == TYPE_METHOD) {
		object = walk->object[OBJECT_CONTENT];
		if (!object)
			return 0;
		class = read_pointer(object + 8);
		type = known_type(layout, walk->runtime, class);
		if (type == TYPE_OTHER && read_pointer(class + TYPE_FLAGS) & TYPE_SUBCLASS)
			type = TYPE_CLASS;
	}
	switch (type) {
	case TYPE_CLASS:
		walk->place = object;
		walk->place_offset = OF_CLASS;
		return 0;
	case TYPE_FUNCTION:
		walk->place = read_pointer(object + layout->objects.function_code);
		return 0;
	case TYPE_FRAME:
		frame = frame_of_object(&layout->objects, object);
		break;
	case TYPE_TRACEBACK:
		frame = frame_of_object(&layout->objects, read_pointer(object + TRACEBACK_FRAME));
		break;
	case TYPE_GENERATOR:
	case TYPE_COROUTINE:
	case TYPE_ASYNC_GENERATOR:
		frame = object + layout->objects.generator_frame;
		if (layout->objects.generator_code == NO_OFFSET)
			break;
		frame = read_pointer(frame);
		if (!frame)
			walk->place = read_pointer(object + layout->objects.generator_code);
		break;
	}
	if (frame)
		place_of_frame(walk, &layout->frames, frame);
	if (type == TYPE_TRACEBACK)
		walk->place_offset = read_u32(object + TRACEBACK_INSTRUCTION);
	return 0;
}

/* PyDictObject: ma_keys, then ma_values (cpython/dictobject.h); PyListObject: `allocated`. In words,
 * head included. */
#define DICT_KEYS 6
#define DICT_VALUES 7
#define LIST_ALLOCATED 6

/* Reads the header of a dict's table into `walk->keys`. */
__noinline int read_keys(struct garbage_walk *walk, const struct layout *layout, u64 address)
{
	struct dict_keys *keys;
	u64 header[5] = {};

	if (!walk || !layout || !address || bpf_probe_read_user(header, sizeof(header), (void *)address))
		return false;
	keys = &walk->keys;
	keys->references = header[0];
	if (layout->objects.minor >= 11) {
		u64 size = header[1] & 63, index = header[1] >> 8 & 63;

		keys->bytes = 32;
		keys->slots = 1ull << size;
		keys->index_bytes = 1ull << index;
		/* general, or only names; those of instances have no values here */
		keys->entry_bytes = header[1] >> 16 & 0xff ? 16 : 24;
		keys->entries = header[3];
		keys->usable = header[2] + header[3];
		return true;
	}
	keys->bytes = 40;
	keys->slots = header[1];
	keys->index_bytes = header[1] * (header[1] <= 0xff ? 1 : header[1] <= 0xffff ? 2 : header[1] <= 0xffffffff ? 4 : 8);
	keys->entry_bytes = 24;
	keys->entries = header[4];
	keys->usable = 2 * header[1] / 3;
	return true;
}

/* What an object owns beside its fixed part and its items: the tables of lists and dicts. */
static __always_inline u64 table_bytes(struct garbage_walk *walk, const struct layout *layout, u32 type)
{
	const struct dict_keys *keys = &walk->keys;
	u64 bytes = 0;

	if (type == TYPE_LIST)
		return walk->object[LIST_ALLOCATED] * 8;
	if (type != TYPE_DICT || !read_keys(walk, layout, walk->object[DICT_KEYS]))
		return 0;
	/* from 3.13 on they may be in the object whose dict it is: the third byte of their head */
	if (walk->object[DICT_VALUES] &&
	    !(layout->objects.minor >= 13 && read_pointer(walk->object[DICT_VALUES]) >> 16 & 0xff))
		bytes = keys->usable * 8;
	/* keys that are shared belong to the type */
	if (keys->references == 1)
		bytes += keys->bytes + keys->index_bytes + 2 * keys->slots / 3 * keys->entry_bytes;
	return bytes;
}

/* The values of an instance: from 3.13 on behind it, before in memory of their own, to which one of
 * the words before it points (Objects/dictobject.c). */
__noinline u32 values_bytes(struct garbage_walk *walk, const struct layout *layout, struct garbage_kind *kind,
			    u64 object)
{
	u64 values, capacity = 0;
	u8 head = 0;

	if (!walk || !layout || !kind)
		return 0;
	if (layout->objects.minor >= 13) {
		/* capacity, the first byte; behind the values is a byte for each */
		bpf_probe_read_user(&head, 1, (void *)(object + kind->basic_bytes - 32));
		return 8 + head * 8 + (head + 7) / 8 * 8;
	}
	values = read_pointer(object - (layout->objects.minor == 11 ? 32 : 24));
	if (layout->objects.minor == 12)
		values = values & 1 ? values + 1 : 0;
	if (!values || bpf_probe_read_user(&head, 1, (void *)(values - 1)))
		return 0;
	/* the head has a byte for each value and two others, padded */
	if (read_keys(walk, layout, read_pointer(kind->type + layout->objects.type_qualname + 8)))
		capacity = walk->keys.usable & 0xff;
	if (head > 9 && head - 9 > capacity)
		capacity = head - 9;
	return head + capacity * 8;
}

static __always_inline void add_bytes(struct garbage_walk *walk, const struct layout *layout,
				      struct garbage_kind *kind, u64 object)
{
	u64 items = 0;

	if (kind->item_bytes == ITEMS_UNKNOWN) {
		kind->bytes = BYTES_UNKNOWN;
		return;
	}
	if (kind->item_bytes == HAS_VALUES) {
		kind->bytes += kind->basic_bytes + values_bytes(walk, layout, kind, object);
		return;
	}
	if (kind->item_bytes)
		items = walk->object[OBJECT_SIZE];
	kind->bytes += kind->basic_bytes + kind->item_bytes * items + table_bytes(walk, layout, kind->known_type);
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

#endif
