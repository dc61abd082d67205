/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Owns: the names of types and code in garbage, which are sent when they are first seen: after the
 * collection they may be gone.
 */
#ifndef GCTRACE_GARBAGE_NAMES_H
#define GCTRACE_GARBAGE_NAMES_H

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

/* "__module__", the key of a class's dict */
#define MODULE_BYTES 10
#define MODULE_START 0x656c75646f6d5f5full
#define MODULE_END 0x5f5f
/* Most classes have it first; those that type() makes from a namespace, last. */
#define MAX_CLASS_ENTRIES 32

/* Looks at one entry of a class's dict. */
static long read_entry(u64 index, struct walk_context *context)
{
	struct garbage_walk *walk = context->walk;
	const struct object_layout *objects = &context->layout->objects;
	u64 pair[2] = {};
	u64 text[2] = {};

	if (index >= walk->keys.entries || bpf_probe_read_user(pair, sizeof(pair), (void *)walk->entry))
		return 1;
	walk->entry += walk->keys.entry_bytes;
	if (!pair[0] || !pair[1])
		return 0;
	if (!walk->method && read_pointer(pair[1] + 8) == walk->runtime + objects->types[TYPE_FUNCTION])
		walk->method = read_pointer(pair[1] + objects->function_code);
	if (!walk->module && read_pointer(pair[0] + 16) == MODULE_BYTES &&
	    !bpf_probe_read_user(text, MODULE_BYTES, (void *)(pair[0] + objects->ascii_data)) &&
	    text[0] == MODULE_START && (text[1] & 0xffff) == MODULE_END)
		walk->module = pair[1];
	return walk->method && walk->module;
}

static __always_inline void read_class(struct walk_context *context, u64 type)
{
	struct garbage_walk *walk = context->walk;
	u64 keys = read_pointer(read_pointer(type + TYPE_DICT_FIELD) + DICT_KEYS_FIELD);

	if (!read_keys(walk, context->layout, keys))
		return;
	walk->entry = keys + walk->keys.bytes + walk->keys.index_bytes + (walk->keys.entry_bytes - 16);
	bpf_loop(MAX_CLASS_ENTRIES, read_entry, context, 0);
}

__noinline u32 identity_of_code(const struct walk *codes, const struct frame_layout *layout, u64 code)
{
	struct frame frame = { .code = code, .offset = NO_OFFSET };
	u32 identity = 0;

	if (codes && layout)
		identity = identity_of(codes, layout, &frame);
	if (!identity)
		count(COUNTER_LOST_TYPES);
	return identity;
}

static __always_inline bool send_type(struct walk_context *context, u64 type, u32 identity)
{
	const struct layout *layout = context->layout;
	struct garbage_walk *walk = context->walk;
	bool is_heap = (read_pointer(type + TYPE_FLAGS) & HEAP_TYPE) && has_places(layout);
	struct type_event *event;
	u32 method = 0;

	walk->module = 0;
	walk->method = 0;
	if (is_heap)
		read_class(context, type);
	if (walk->method)
		method = identity_of_code(context->codes, &layout->frames, walk->method);
	event = bpf_ringbuf_reserve(&pause_ring, sizeof(*event), 0);
	if (!event)
		return false;
	event->kind = EVENT_TYPE;
	event->pid = walk->event.pid;
	event->type = type;
	event->identity = identity;
	event->layout = walk->event.layout;
	event->method = walk->method;
	event->method_identity = method;
	event->reserved = 0;
	__builtin_memcpy(event->name, walk->name, sizeof(event->name));
	event->qualname_bytes = is_heap ? read_string(event->qualname, TYPE_STRING_BYTES,
						      read_pointer(type + layout->objects.type_qualname)) : 0;
	event->module_bytes = walk->module ? read_string(event->module, TYPE_STRING_BYTES, walk->module) : 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return true;
}

/* Reads the name of a type into `walk->name` and returns a hash of it. */
__noinline u64 hash_name(struct garbage_walk *walk, u64 type)
{
	u64 hash = 0;

	if (!walk)
		return 0;
	__builtin_memset(walk->name, 0, sizeof(walk->name));
	bpf_probe_read_user_str(walk->name, sizeof(walk->name), (void *)read_pointer(type + TYPE_NAME));
	for (u32 i = 0; i < TYPE_NAME_BYTES / 8; i++)
		hash = mixed(hash, ((u64 *)walk->name)[i]);
	return hash;
}

static __always_inline u32 identity_of_type(struct walk_context *context, u64 type)
{
	struct garbage_walk *walk = context->walk;
	struct code_key key = { .code = type, .pid = walk->event.pid, .incarnation = walk->incarnation };
	struct seen_type seen = { .name = hash_name(walk, type) };
	const struct seen_type *known;

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
	bool of_code;
	u32 identity;
	u64 at = index;

	if (at >= walk->event.kinds)
		return 1;
	kind = kind_at(walk, at);
	of_code = kind->code != 0;
	/* the position of the type's own entry, which came before */
	if (of_code)
		kind->type_identity = kind_at(walk, kind->type_identity)->type_identity;
	if (of_code && kind->offset != OF_CLASS)
		identity = identity_of_code(context->codes, &context->layout->frames, kind->code);
	else
		identity = identity_of_type(context, of_code ? kind->code : kind->type);
	if (of_code)
		kind->code_identity = identity;
	else
		kind->type_identity = identity;
	return 0;
}

#endif
