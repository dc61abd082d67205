/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The object that is always loaded: the programs of every subject, with shared maps. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "maps.bpf.h"
#include "arch.bpf.h"
#include "cpython.bpf.h"
#include "stack.bpf.h"
#include "thread.bpf.h"
#include "sampled_thread.bpf.h"
#include "collector.bpf.h"
#include "counters.bpf.h"
#include "stop.bpf.c"
#include "process.bpf.c"
#include "gc.bpf.c"
#include "interrupted.bpf.c"
#include "library.bpf.c"
#include "arena.bpf.c"

/* Never used: it adds the wire records to the object's BTF, from which the Rust types are
 * generated. */
struct wire_types {
	struct pause_event pause_event;
	struct counted_pause_event counted_pause_event;
	struct process_counts process_counts;
	struct task_counts task_counts;
	struct process_event process_event;
	struct stack_event stack_event;
	struct code_event code_event;
	struct type_event type_event;
	struct garbage_event garbage_event;
	struct garbage_kind garbage_kind;
	struct allocation_event allocation_event;
	struct sample_event sample_event;
	struct off_cpu_event off_cpu_event;
	struct earlier_wait earlier_wait;
	struct loop_key loop_key;
	struct loop_state loop_state;
	struct loop_event loop_event;
	struct turn_event turn_event;
	enum event_kind event_kind;
	enum stop stop;
	enum library library;
	enum pause_flag pause_flag;
	enum sample_flag sample_flag;
	enum off_cpu_flag off_cpu_flag;
	enum wait_reason wait_reason;
	enum point_kind point_kind;
	enum counter counter;
	enum hardware_counter hardware_counter;
	enum instruction_kind instruction_kind;
	struct file_key file_key;
	struct arenas arenas;
	struct followed_process followed_process;
	struct point point;
	struct layout layout;
};
struct wire_types wire_types_in_btf = {};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
