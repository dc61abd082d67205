/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The interface between the BPF programs and user space: the single source of truth. The Rust types
 * are generated from the BTF of these structs (see `src/wire.rs`), so the two sides cannot drift.
 *
 * Timestamps are nanoseconds of CLOCK_MONOTONIC. Process and thread ids are those of the first pid
 * namespace. Addresses are user-space addresses of the traced process.
 */
#ifndef GCTRACE_EVENT_H
#define GCTRACE_EVENT_H

/* ---- from user space: what to watch ------------------------------------------------------- */

/* What is at a probed address. Cookie of a probe = index in the map `points`. */
enum point_kind {
	POINT_UNUSED = 0,
	POINT_COLLECT = 1,        /* the collector's main function: entry and return          */
	POINT_GC_COLLECT = 2,     /* the C function behind gc.collect(): entry and return     */
	POINT_PYGC_COLLECT = 3,   /* the exported PyGC_Collect: entry and return              */
	POINT_STOP_WORLD = 4,     /* free-threaded: _PyEval_StopTheWorld, entry               */
	POINT_START_WORLD = 5,    /* free-threaded: _PyEval_StartTheWorld, entry              */
	POINT_USDT_START = 6,     /* python:gc__start                                         */
	POINT_USDT_DONE = 7,      /* python:gc__done                                          */
	POINT_PROGRAM_ENTRY = 8,  /* the ELF entry point of a program, stopped there once     */
	POINT_CODE_DEALLOC = 9,   /* a code object is freed: first argument                     */
	POINT_GARBAGE = 10,       /* the loop over the garbage is entered: not a function's entry */
	POINT_KINDS = 11,
};

#define REGISTER_NONE 0u
#define NO_OFFSET 0xffffffffu
#define MAX_SHIFT 16
/* The gc state is copied up to here; every offset in it is smaller. */
#define BLOCK_BYTES 320
#define ARGUMENT_UNKNOWN (-128)
#define MAX_POINTS 1024
#define MAX_LAYOUTS 256
#define GENERATIONS 3
/* Nested collections of one thread: only subinterpreters that collect in each other's
 * finalizers. */
#define MAX_DEPTH 3
#define MAX_THREADS 8192
#define MAX_PROCESSES 32768
#define MAX_INTERPRETERS 16384
#define MAX_FILES 16384
/* Maximum of --stack-depth. */
#define MAX_STACK_DEPTH 64
/* Number of bytes copied of a code object's strings, from the start of the string object on, and of
 * its line table: small is enough for most, or else large. User space reads longer ones from the
 * process. */
#define FILE_NAME_BYTES 384
#define FUNCTION_NAME_BYTES 192
#define SMALL_TABLE_BYTES 384
#define LARGE_TABLE_BYTES 4096

struct point {
	__s64 runtime_delta;   /* address of _PyRuntime - address of the probed instruction       */
	__u32 kind;            /* enum point_kind                                                 */
	__u32 layout;          /* index into `layouts`, or NO_OFFSET                              */
	/* Argument numbers at a POINT_COLLECT: 1 = first argument (rdi) .. 5 (r8)       */
	__u32 tstate_register;
	__u32 generation_register;
	__u32 reason_register;
	__u32 nofail_register;
	__s32 fixed_generation; /* the one generation of this clone, or ARGUMENT_UNKNOWN           */
	__u32 except;          /* a process of which hits are ignored, or 0: it has other probes   */
};

/* CPython's statistics of a generation: the same three adjacent fields in every version. */
struct stats_item {
	__u64 collections;
	__u64 collected;
	__u64 uncollectable;
};

/* The location of one generation's items behind the pointer of 3.15. */
struct generation_stats {
	__u32 base;            /* stats_item of the first                                         */
	__u32 stride;          /* bytes from item to item (a ring), 0 for a single item           */
	__u32 index;           /* offset of the ring's current index (one byte), or NO_OFFSET     */
};

/* How a frame stores the instruction it executes. */
enum instruction_kind {
	INSTRUCTION_INDEX = 1,    /* an int, -1 before the first; times `instruction_scale` bytes */
	INSTRUCTION_POINTER = 2,  /* a pointer into the code object's bytes, or a thread's copy   */
};

/* Offsets in bytes that locate a thread's Python stack; NO_OFFSET: the version has no such
 * field. */
struct frame_layout {
	__u32 tstate_frame;        /* in PyThreadState; NO_OFFSET: stacks cannot be read          */
	__u32 frame_indirection;   /* 3.11, 3.12: in the target of tstate_frame                   */
	__u32 frame_bytes;         /* all fields of the frame are below; not more than FRAME_BYTES */
	__u32 frame_code;
	__u32 frame_back;
	__u32 frame_instruction;
	__u32 instruction_kind;    /* enum instruction_kind                                       */
	__u32 instruction_scale;
	__u32 frame_owner;         /* one byte; SHIM_OWNER and above: not a Python frame          */
	__u32 frame_tlbc_index;    /* free-threaded 3.14 and later: which copy of the bytes       */
	__u32 code_tag_mask;       /* bits of frame_code that are not address                     */
	__u32 code_bytes;          /* in the code object: its instructions                        */
	__u32 code_tlbc;           /* pointer to the copies                                       */
	__u32 code_first_traceable;/* int: frames at earlier instructions are not visible         */
	__u32 code_filename;       /* str                                                         */
	__u32 code_name;           /* str                                                         */
	__u32 code_first_line;     /* int                                                         */
	__u32 code_line_table;     /* bytes                                                       */
	__u32 bytes_length;        /* in a bytes: ssize_t                                         */
	__u32 bytes_data;
	/* The thread state of the thread that holds the GIL, if no argument has it.          */
	__u32 runtime_tstate;      /* in _PyRuntime (3.8 - 3.11)                                  */
	__u32 interpreter_gil;     /* in PyInterpreterState: pointer to the GIL (3.12 and later)  */
	__u32 gil_holder;          /* in the GIL                                                  */
	/* The thread state of any thread.                                                        */
	__u32 interpreter_threads; /* in PyInterpreterState: pointer to the newest thread state   */
	__u32 interpreter_next;    /* in PyInterpreterState: pointer to the next one              */
	__u32 tstate_next;         /* in PyThreadState                                            */
	__u32 tstate_thread_id;    /* in PyThreadState: what pthread_self() returns               */
};

/* Types of the interpreter itself that the examination of garbage knows: what of their objects leads
 * to code, or what memory they own. Order of `object_layout.types`. */
enum known_type {
	TYPE_OTHER = 0,
	TYPE_FUNCTION = 1,
	TYPE_CELL = 2,
	TYPE_METHOD = 3,
	TYPE_FRAME = 4,
	TYPE_TRACEBACK = 5,
	TYPE_GENERATOR = 6,
	TYPE_COROUTINE = 7,
	TYPE_ASYNC_GENERATOR = 8,
	TYPE_LIST = 9,
	TYPE_DICT = 10,
	KNOWN_TYPES = 11,
	TYPE_CLASS = 12,       /* a type of types, by its flags                                   */
	TYPE_NEW = 13,         /* not determined yet                                              */
};

/* Objects and types, for the examination of garbage. Offsets in bytes; NO_OFFSET: unknown, or the
 * build has no such field. */
struct object_layout {
	__s64 types[KNOWN_TYPES]; /* address - address of _PyRuntime; 0: unknown                  */
	__u32 type_qualname;       /* in a heap type: str                                         */
	__u32 function_code;       /* in a function: code object                                  */
	__u32 generator_code;      /* 3.8 - 3.10: code object                                     */
	__u32 generator_frame;     /* until 3.10 a pointer to the frame, then the frame itself    */
	__u32 frame_object_frame;  /* in a frame object: pointer to the frame; NO_OFFSET: it is one */
	__u32 ascii_data;          /* in an ASCII str: its text                                   */
	__u32 minor;               /* second number of the version                                */
	__u32 reserved;
};

/* Offsets of one build of CPython, in bytes; NO_OFFSET: the build has no such field. */
struct layout {
	__u32 tstate_interpreter;  /* in PyThreadState                                            */
	__u32 interpreters_head;   /* in _PyRuntime                                               */
	__u32 finalizing;          /* in _PyRuntime: pointer, not 0 while finalizing              */
	__u32 interpreter_id;      /* in PyInterpreterState: s64                                  */
	__u32 gc_in_runtime;       /* in _PyRuntime (3.8), or NO_OFFSET                           */
	__u32 gc_in_interpreter;   /* in PyInterpreterState (3.9 and later), or NO_OFFSET         */
	/* all further ones are in the gc state                                                   */
	__u32 collecting;          /* int                                                         */
	__u32 enabled;             /* int                                                         */
	__u32 thresholds[GENERATIONS]; /* int                                                     */
	/* A pointer that must contain the address gc state + check_target, within MAX_SHIFT
	 * bytes, by which a patched build (Debian's 3.13) moved its generations:
	 * `thresholds` move along.                                                               */
	__u32 check_pointer;
	__u32 check_target;
	__u32 stats;               /* three stats_items, or the pointer to rings of them          */
	__u32 stats_is_pointer;
	struct generation_stats generations[GENERATIONS];
	__u32 long_lived_total;    /* ssize_t                                                     */
	__u32 heap_size;           /* ssize_t                                                     */
	/* The function itself tests `collecting` and returns at once if it is set (3.13 and later):
	 * such calls are not collections.                                                        */
	__u32 collecting_guards;
	/* Statistics miss some increments (3.14.0 - 3.14.4): do not drop a pause for that.            */
	__u32 stats_incomplete;
	struct frame_layout frames;
	__u32 reserved;
	struct object_layout objects;
};

/* A recorded process. */
struct followed_process {
	__u32 incarnation;     /* unique for each program that it runs and each process that
				* reuses the pid, never 0                                    */
	__u32 code_deaths;     /* code objects freed so far, modulo 2^32                          */
	__u32 from_exec;       /* recorded since its exec, not attached or forked                    */
	__u32 layout;          /* index into `layouts`, if `runtime` is not 0                        */
	__u64 runtime;         /* with samples: address of _PyRuntime, 0 as long as it is unknown    */
};

/* An executable file, as identified by the kernel. */
struct file_key {
	__u64 inode;
	__u64 device;
};

/* Arenas of a process: 1 MiB (3.10 and later) and 256 KiB (before). */
struct arenas {
	__u64 large_mapped;
	__u64 large_unmapped;
	__u64 small_mapped;
	__u64 small_unmapped;
};

/* ---- to user space: what happened --------------------------------------------------------- */

enum event_kind {
	EVENT_PAUSE = 1,
	EVENT_FORK = 2,
	EVENT_EXEC = 3,
	EVENT_EXIT = 4,
	EVENT_PROGRAM_ENTRY = 5,
	EVENT_STACK = 6,
	EVENT_CODE = 7,
	EVENT_ALLOCATION = 8,
	EVENT_LIBRARY = 9,
	EVENT_CUDA_CALL = 10,
	EVENT_DEVICE_MEMORY = 11,
	EVENT_FOREIGN = 12,
	EVENT_TYPE = 13,
	EVENT_GARBAGE = 14,
	EVENT_SAMPLE = 15,
	EVENT_OFF_CPU = 16,
	EVENT_LOOP = 17,
	EVENT_TURN = 18,
};

enum pause_flag {
	PAUSE_IN_GC_COLLECT = 1,    /* the thread was inside gc.collect()                         */
	PAUSE_IN_PYGC_COLLECT = 2,  /* the thread was inside PyGC_Collect                         */
	PAUSE_FINALIZING = 4,       /* _PyRuntime._finalizing was set                             */
	PAUSE_UNFINISHED = 8,       /* the thread exited during it, at end_ns                     */
	PAUSE_NO_STATS = 16,        /* statistics could not be read: generation from the argument */
	PAUSE_FORKED = 32,          /* the process was forked inside its parent's pause           */
	PAUSE_NOFAIL = 64,          /* 3.8 - 3.12: called by _PyGC_CollectNoFail (shutdown)       */
	PAUSE_COUNTED = 256,        /* software counters were read                                */
	PAUSE_SWITCH_MISSED = 512,  /* time off the CPU is unknown                                */
};

struct statistics {
	__u64 collections[GENERATIONS];
	__u64 collected[GENERATIONS];
	__u64 uncollectable[GENERATIONS];
};

/* The kernel's counters of each task, exact across CPU migrations. */
struct software_counts {
	__u64 page_faults;     /* minor and major                                                 */
	__u64 major_faults;
	__u64 context_switches; /* voluntary or not                                               */
	__u64 cpu_migrations;
};

/* Counters of a CPU. */
enum hardware_counter {
	HARDWARE_CYCLES = 0,
	HARDWARE_INSTRUCTIONS = 1,
	HARDWARE_CACHE_MISSES = 2,
	HARDWARE_LLC_LOAD_MISSES = 3,
	HARDWARE_DTLB_LOAD_MISSES = 4,
	HARDWARE_BRANCH_MISSES = 5,
	HARDWARE_CPU_CLOCK = 6,    /* nanoseconds                                             */
	HARDWARE_COUNTERS = 7,
};

/* As the kernel returns it (struct bpf_perf_event_value): a multiplexed counter counts only during
 * part of the time. */
struct hardware_value {
	__u64 value;
	__u64 enabled_ns;
	__u64 running_ns;      /* time in which it counted                                        */
};

struct hardware_counts {
	struct hardware_value of[HARDWARE_COUNTERS];
};

/* Hardware counters of a process. */
struct process_hardware {
	struct hardware_counts counts;
	__u64 dropped;         /* intervals on a CPU with unseen start                            */
};

/* Software counters of a process: `ended` + those of its living threads - `base`. */
struct process_counts {
	__u64 since_ns;
	__u64 until_exec;      /* counting starts at the next exec                                */
	struct software_counts base; /* counters of its threads before that                       */
	__u64 base_run_ns;
	struct software_counts ended; /* of exited threads                                        */
	__u64 ended_run_ns;
};

/* A live thread, from the iterator over tasks. */
struct task_counts {
	__u32 pid;
	__u32 tid;
	struct software_counts software;
	__u64 run_ns;          /* time on a CPU, up to the last tick or switch                    */
};

struct pause_event {
	__u32 kind;            /* EVENT_PAUSE                                                     */
	__u32 pid;
	__u32 tid;
	__u32 flags;           /* enum pause_flag                                                 */
	__u64 start_ns;
	__u64 end_ns;
	__u64 off_cpu_ns;      /* time the thread was not running in between                      */
	__u64 stopped_ns;      /* time other threads were stopped (free-threaded builds)          */
	struct statistics moved; /* increase of each counter                                      */
	__s64 interpreter;     /* id, or -1                                                       */
	__s64 oldest_objects;  /* long_lived_total at the end, or -1                              */
	__s64 heap_objects;    /* heap_size at the end, or -1                                     */
	__s32 thresholds[GENERATIONS]; /* at the end, or -1                                       */
	__s32 enabled;         /* at the end, or -1                                               */
	__s32 counts[GENERATIONS]; /* of generations, at the start, or -1                         */
	__s32 generation_argument; /* or ARGUMENT_UNKNOWN                                         */
	__s32 reason_argument;     /* 0 heap, 1 shutdown, 2 manual; or ARGUMENT_UNKNOWN           */
	__u32 point;           /* index into `points`                                             */
	__u64 stack;           /* id of a stack_event, or 0                                       */
	__s64 freed_pages;     /* anonymous ones fewer at the end than at the start               */
	struct software_counts software; /* with PAUSE_COUNTED                                    */
};

/* Sent instead if hardware counters are recorded. */
struct counted_pause_event {
	struct pause_event pause;
	__u32 asked;           /* bit mask of enum hardware_counter: recorded                     */
	__u32 valid;           /* of these: valid for this pause                                  */
	struct hardware_counts hardware;
};

/* A Python frame. */
struct frame {
	__u64 code;            /* address of the code object                                      */
	__u32 offset;          /* byte offset of the instruction; NO_OFFSET before the first      */
	__u32 identity;        /* distinguishes code objects that reused an address               */
};

/* A stack when it is first seen. */
struct stack_event {
	__u32 kind;            /* EVENT_STACK                                                     */
	__u32 pid;
	__u64 id;              /* a hash of pid and frames, never 0                               */
	__u32 layout;          /* index into `layouts`                                            */
	__u32 depth;           /* frames that follow, innermost first                             */
	__u32 truncated;       /* there are more than stack_depth                                 */
	__u32 unreadable;      /* there are more, the next could not be read                      */
	struct frame frames[MAX_STACK_DEPTH];
};

/* A code object when it is first seen: followed by SMALL_TABLE_BYTES or LARGE_TABLE_BYTES of its
 * line table. */
struct code_event {
	__u32 kind;            /* EVENT_CODE                                                      */
	__u32 pid;
	__u64 code;
	__u32 identity;
	__u32 layout;          /* index into `layouts`                                            */
	__s32 first_line;
	__u32 file_name_bytes; /* valid bytes, 0 if it could not be read                          */
	__u32 function_name_bytes;
	__u32 table_bytes;     /* valid bytes                                                     */
	__s64 table_length;    /* its length; -1 if it could not be read                          */
	__u8 file_name[FILE_NAME_BYTES];
	__u8 function_name[FUNCTION_NAME_BYTES];
};

/* A sampled allocation in a window. */
struct allocation_event {
	__u32 kind;            /* EVENT_ALLOCATION                                                */
	__u32 pid;
	__u64 stack;           /* id of a stack_event                                             */
};

enum sample_flag {
	SAMPLE_IN_PAUSE = 1,       /* the thread was in a collection                              */
	SAMPLE_IN_KERNEL = 2,      /* it executed a system call or a fault                        */
};

/* What a thread was executing when the clock of its CPU ticked. */
struct sample_event {
	__u32 kind;            /* EVENT_SAMPLE                                                    */
	__u32 pid;
	__u32 tid;
	__u32 flags;           /* enum sample_flag                                                */
	__u64 at_ns;
	__u64 stack;           /* id of a stack_event, 0: none                                    */
	__u64 instruction;     /* its address; 0 in the kernel                                    */
};

enum off_cpu_flag {
	OFF_CPU_IN_PAUSE = 1,      /* the thread was in a collection                              */
	OFF_CPU_AT_LAUNCH = 2,     /* not at all: it launched a function of the host              */
};

/* Why a thread is off the CPU: the values of OffCpuReason of gctrace-event. */
enum wait_reason {
	WAIT_GIL,
	WAIT_LOCK,
	WAIT_POLL,
	WAIT_PIPE,
	WAIT_SLEEP,
	WAIT_PROCESS,
	WAIT_DISK,
	WAIT_PAGE_FAULT,
	WAIT_DRIVER,
	WAIT_CPU,              /* it was preempted, or woken and not run yet                      */
	WAIT_STOPPED,
	WAIT_OTHER,
	WAIT_REASONS,
};

/* What the time of a thread went into besides running: waits by their reason, however short, and collections, with
 * their waits. */
#define SPENT_IN_PAUSES WAIT_REASONS
#define SPENT (WAIT_REASONS + 1)

/* What is known of a thread between samples. */
struct sampled_thread {
	__u64 tstate;          /* address of its thread state; 0: none was found                  */
	__u64 searched_ns;     /* when that was                                                   */
	__u32 pid;
	__u32 pauses;          /* open ones                                                       */
	__u64 off_cpu_ns;      /* when it left the CPU; 0: it did not, or that was not seen       */
	__u64 ran_ns;          /* how long it had run by then                                     */
	__u64 stack;           /* of that time, STACK_LOST: not taken                             */
	__s32 system_call;     /* as in struct off_cpu_event                                      */
	__u32 first_argument;
	__u32 flags;           /* enum off_cpu_flag                                               */
	__u32 reason;          /* enum wait_reason                                                */
	__u32 last_was_long;   /* its last time off the CPU was OFF_CPU_NS or longer              */
	__u32 woken_by;        /* process of the thread that woke it last, 0: unknown             */
	__u64 woken_ns;        /* when it was woken since; 0: that was not seen                   */
	__u64 pause_ns;        /* start of the outermost open pause                               */
	__u64 spent_ns[SPENT]; /* since it is known                                               */
	__u64 started_ns;      /* 0: before it was recorded                                       */
	__u64 started_by;      /* the stack that started it; 0: unknown                           */
};

/* A thread that waited when its process began to be recorded. */
struct earlier_wait {
	__u32 pid;
	__u32 tid;
	__u64 start_ns;        /* when it was found waiting                                       */
	__u64 thread_id;       /* what pthread_self() returns in it; 0: unknown                   */
};

/* A thread was off the CPU for OFF_CPU_NS or longer, or launched a function of the host. */
struct off_cpu_event {
	__u32 kind;            /* EVENT_OFF_CPU                                                   */
	__u32 pid;
	__u32 tid;
	__u32 flags;           /* enum off_cpu_flag                                               */
	__u64 start_ns;
	__u64 end_ns;
	__u64 stack;           /* id of a stack_event, 0: none                                    */
	__u32 reason;          /* enum wait_reason                                                */
	__u32 woken_by;        /* process of the thread that woke it, 0: unknown                  */
};

/* Where a thread waits again and again: a system call with its first argument, a descriptor mostly; of waits for a lock
 * the stack in its place. What it does between two waits there is a turn. */
struct loop_key {
	__u32 pid;
	__u32 tid;             /* of threads that end, that of the main thread                    */
	__s32 system_call;     /* its number, or CALL_THREAD                                      */
	__u32 first_argument;  /* its lower half, the first descriptor, or half of the stack      */
};

/* In place of a system call: the turn is the life of a thread. */
#define CALL_THREAD (-2)

/* Counts of turns by length: 64 linear buckets for each power of two, in units of 2^TURN_SHIFT ns. The first 128 are one
 * unit each; a count's length is known to one part in 64. The last has everything from 68 s on. */
#define TURN_SHIFT 4           /* 16 ns */
#define TURN_BUCKETS 1792

struct loop_state {
	__u64 stack;           /* of its last wait whose stack was taken, 0: none                 */
	__u64 begin_ns;        /* of the turn that it is in; 0: it waits, or none has begun       */
	__u64 busy_ns;         /* since when it has not waited; 0 likewise                        */
	__u64 spent_ns[SPENT]; /* of its thread at `begin_ns`                                     */
	__u64 limit_ns;        /* turns of this length are sent                                   */
	__u64 since_ns;        /* its first wait                                                  */
	__u64 sent;            /* but for the ones with a long pause                              */
	__u64 turns;
	__u64 turns_ns;        /* their sum                                                       */
	__u64 longest_ns;
	__u64 waits;           /* as many busy periods end                                        */
	__u64 waited_ns;
	__u64 longest_busy_ns;
	__u32 entered;         /* the system call was entered since the thread came back from one */
	__u32 announced;
	__u32 reads;           /* it waits to read, not for something to be ready                 */
	__u32 header;          /* it last asked for the length of a message                       */
	__u32 lengths[TURN_BUCKETS];
};

/* A loop was found: its thread waits for input (poll, select, epoll). */
struct loop_event {
	__u32 kind;            /* EVENT_LOOP                                                      */
	__u32 reserved;
	struct loop_key place;
};

/* A turn that was long, compared to others of its loop, or contains a long pause. */
struct turn_event {
	__u32 kind;            /* EVENT_TURN                                                      */
	__u32 reserved;
	struct loop_key place;
	__u64 start_ns;
	__u64 end_ns;
	__u64 spent_ns[SPENT];
};

/* Number of bytes copied of the name of a type, terminated, and of the str objects with its qualified
 * name and its module, from their start on. */
#define TYPE_NAME_BYTES 128
#define TYPE_STRING_BYTES 192

/* A type when it is first seen in garbage. */
struct type_event {
	__u32 kind;            /* EVENT_TYPE                                                      */
	__u32 pid;
	__u64 type;            /* its address                                                     */
	__u32 identity;        /* distinguishes types that reused an address                      */
	__u32 layout;          /* index into `layouts`                                            */
	__u32 qualname_bytes;  /* valid bytes; 0: not a heap type, or not readable                */
	__u32 module_bytes;
	__u64 method;          /* code object of its first method; 0: none                        */
	__u32 method_identity; /* as in struct frame                                              */
	__u32 reserved;
	__u8 name[TYPE_NAME_BYTES]; /* tp_name                                                    */
	__u8 qualname[TYPE_STRING_BYTES];
	__u8 module[TYPE_STRING_BYTES]; /* __module__                                             */
};

/* Instead of an instruction: the address of the code is that of a class. */
#define OF_CLASS 0xfffffffeu
/* Instead of their sum: the size of such objects is unknown. */
#define BYTES_UNKNOWN (~0ull)
/* Maximum number of kinds of objects in the garbage of one collection: fewer than 256. */
#define MAX_GARBAGE_KINDS 255
/* Maximum length of a list of garbage that is walked: about 0.1 s. */
#define MAX_GARBAGE_OBJECTS (1u << 20)

/* Objects of one type in the garbage of a collection and, if they belong to code, of one code object
 * and instruction. */
struct garbage_kind {
	__u64 type;            /* address                                                         */
	__u64 code;            /* address; 0: none                                                */
	__u32 offset;          /* as in struct frame; NO_OFFSET: no instruction; OF_CLASS         */
	__u32 code_identity;   /* of a code object or a class; 0: unknown                         */
	__u32 type_identity;   /* 0: unknown                                                      */
	__u32 known_type;      /* enum known_type                                                 */
	__u32 basic_bytes;     /* of each object                                                  */
	__u32 item_bytes;      /* of each of its items                                            */
	__u64 objects;
	__u64 bytes;           /* of all of them, or BYTES_UNKNOWN                                */
};

/* The garbage of a collection: followed by `kinds` of struct garbage_kind. */
struct garbage_event {
	__u32 kind;            /* EVENT_GARBAGE                                                   */
	__u32 pid;
	__u32 tid;
	__u32 kinds;
	__u64 at_ns;           /* when the walk started                                           */
	__u64 cost_ns;         /* until this was sent                                             */
	__u64 objects;         /* length of the list                                              */
	__u32 layout;          /* index into `layouts`                                            */
	__u32 unlisted;        /* objects of types for which there was no room                    */
};

/* Result of trying to stop a process. */
enum stop {
	STOP_NOT_NEEDED = 0,
	STOP_SENT = 1,         /* it was sent SIGSTOP and waits for SIGCONT                       */
	STOP_OTHER_USER = 2,   /* it runs as a user whose processes gctrace may not resume        */
	STOP_NOT_NOW = 3,      /* user space has not polled for a while, or is ending             */
	STOP_SEEN = 4,         /* it would be noticed: a debugger, a shell with job control       */
	STOP_FAILED = 5,       /* too many are stopped, or the signal failed                      */
};

/* Kind of library, by its name. */
enum library {
	LIBRARY_NONE = 0,
	LIBRARY_PYTHON = 1,
	LIBRARY_CUDA = 2,      /* one of CUDA, NCCL or torch                                      */
};

struct process_event {
	__u32 kind;            /* EVENT_FORK, _EXEC, _EXIT, _PROGRAM_ENTRY, _LIBRARY, _FOREIGN    */
	__u32 pid;
	__u32 parent;
	__u32 stop;            /* enum stop                                                       */
	__u64 at_ns;
	struct file_key file;  /* EXEC: the executable; LIBRARY: the library                      */
	__s32 exit_code;       /* EXIT: as wait(2) reports it                                     */
	__u32 known;           /* EXEC, LIBRARY: the file need not be examined                    */
	__u32 library;         /* LIBRARY: enum library                                           */
	__u32 parent_stopped;  /* the parent was stopped before the process                       */
	__u32 by_thread;       /* EXEC: by another thread than the main one                       */
	__u32 reserved;
};

/* ---- Allocation windows (alloc.bpf.c) ------------------------------------------------------- */

/* Size classes: 16 bytes each up to 512 (pymalloc), then powers of two up to 1 MiB, and one
 * above. */
#define SMALL_CLASSES 32
#define SIZE_CLASSES 44
#define SIZE_UNKNOWN 43

struct allocations {
	__u64 hits;
	__u64 foreign_hits;      /* in other processes with the same file                           */
	__u64 bytes;             /* of those of known size                                          */
	__u64 classes[SIZE_CLASSES];
};

/* The process with the open window. */
struct alloc_window {
	__u64 runtime;           /* address of _PyRuntime                                           */
	__u32 pid;               /* 0: none                                                         */
	__u32 layout;            /* index into `layouts`                                            */
	__u32 stack_every;       /* every Nth hit takes a stack; 0: none                            */
	__u32 reserved;
};

/* ---- CUDA, NCCL and torch calls (cuda.bpf.c) ------------------------------------------------ */

/* Cookie of such a probe: all that the program needs to know about the function. */
#define CALL_FUNCTION_BITS 16        /* from bit 0: id of the function                            */
#define CALL_KIND_SHIFT 16           /* 8 bits: enum call_kind                                    */
#define CALL_STREAM_SHIFT 24         /* 8 bits: where the stream is                               */
#define CALL_BYTES_SHIFT 32          /* 8 bits: where the number of bytes is                      */
#define CALL_GRID_SHIFT 40           /* 8 bits: enum grid_place                                   */
#define CALL_FLAGS_SHIFT 48          /* 8 bits: enum call_flag                                    */

enum call_kind {
	CALL_LAUNCH = 0,
	CALL_SYNCHRONIZE = 1,
	CALL_COPY = 2,
	CALL_SET = 3,
	CALL_ALLOCATE = 4,
	CALL_FREE = 5,
	CALL_EVENT = 6,          /* recording an event, or making a stream wait for one               */
	CALL_COLLECTIVE = 7,
	CALL_STEP = 8,           /* a backward pass                                                   */
	CALL_MEMORY = 9,         /* torch's caching allocator reports its memory                      */
	CALL_KINDS = 10,
};

enum call_flag {
	CALL_BOTH_ENDS = 1,      /* the return is probed too                                          */
	CALL_ENCLOSES = 2,       /* entry only, and calls another probed function                     */
	CALL_AT_RET = 4,         /* this probe is on a return instruction                             */
};

/* Stream: 0 none, 1 to 31 that argument, or this. */
#define STREAM_IN_CONFIGURATION 0x20 /* CUlaunchConfig, cudaLaunchConfig_t: the first argument    */
/* Bytes: 0 none, or 1 to 6 that argument, plus a shift (a power of two) and at most one of these.  */
#define BYTES_SHIFT_SHIFT 3      /* 2 bits                                                        */
#define BYTES_NCCL 0x20          /* times the size of the ncclDataType_t in the next argument     */
#define BYTES_ROWS 0x40          /* times the next argument                                       */

enum grid_place {
	GRID_NONE = 0,
	GRID_ARGUMENTS = 1,      /* second to fourth argument                                         */
	GRID_DIM3 = 2,           /* a dim3 by value: second argument and half of the third            */
	GRID_CONFIGURATION = 3,
};

/* A call. If only the entry is probed, end equals start. A step is sent when it starts, like those,
 * and again, complete, when it returns. */
struct cuda_call_event {
	__u32 kind;            /* EVENT_CUDA_CALL                                                 */
	__u32 pid;
	__u32 tid;
	__u16 function;        /* from the cookie                                                 */
	__u16 call_kind;       /* enum call_kind                                                  */
	__u64 start_ns;
	__u64 end_ns;
	__u64 stream;          /* handle, as passed to the function                               */
	__u64 bytes;
	__u64 cpu_ns;          /* of a step: CPU time of the thread at its start                  */
	__u32 grid[3];
	__s32 result;          /* its result; 0 if only the entry is probed                       */
};

/* Memory of torch's caching allocator on a device after an allocation or a free. */
struct device_memory_event {
	__u32 kind;            /* EVENT_DEVICE_MEMORY                                             */
	__u32 pid;
	__u32 tid;
	__u32 device;          /* c10::Device: type in the low byte, index in the next            */
	__u64 at_ns;
	__s64 bytes;           /* allocated by the program; negative: freed                       */
	__u64 allocated;
	__u64 reserved;
};

/* Indexes in the per-CPU map `call_counters`: hits, those nested in another recorded call, those of
 * other processes, and records lost because the ring was full; each by call kind. */
enum call_counter {
	CALL_HITS = 0,
	CALL_NESTED = CALL_KINDS,
	CALL_FOREIGN = 2 * CALL_KINDS,
	CALL_LOST = 3 * CALL_KINDS,
	CALL_COUNTERS = 4 * CALL_KINDS,
};

/* Indexes in the per-CPU map `counters`: hits of recorded processes by point kind, hits of other
 * processes by point kind, then these. */
enum counter {
	COUNTER_HITS = 0,
	COUNTER_FOREIGN_HITS = POINT_KINDS,
	COUNTER_LOST_PAUSES = 2 * POINT_KINDS, /* pause ring full                                 */
	COUNTER_LOST_PROCESS_EVENTS,           /* process ring full                               */
	COUNTER_LOST_THREADS,                  /* thread table full: pause not seen               */
	COUNTER_LOST_DEPTH,                    /* nested more than MAX_DEPTH deep                 */
	COUNTER_NOTHING_DONE,                  /* calls that collected nothing: not pauses        */
	COUNTER_LOST_PROCESSES,                /* process table full: process not followed        */
	COUNTER_LOST_STACKS,                   /* pause ring full: a new stack                    */
	COUNTER_UNPROBED,                      /* collections counted by CPython, not by a probe  */
	COUNTER_GARBAGE_WALKED,                /* collections whose garbage was examined          */
	COUNTER_GARBAGE_SKIPPED,               /* not examined: the budget                        */
	COUNTER_GARBAGE_EMPTY,                 /* no list was found: nothing to free              */
	COUNTER_GARBAGE_NS,                    /* time that examining took                        */
	COUNTER_LOST_GARBAGE,                  /* pause ring full                                 */
	COUNTER_GARBAGE_AT_ONCE,               /* more lists at the same time than have room      */
	COUNTER_GARBAGE_TOO_LONG,              /* more than MAX_GARBAGE_OBJECTS                   */
	COUNTER_GARBAGE_UNREADABLE,            /* a part of the list was not in memory            */
	COUNTER_LOST_TYPES,                    /* pause ring full: a new type                     */
	COUNTER_SAMPLES,                       /* of recorded processes                           */
	COUNTER_LOST_SAMPLES,                  /* pause ring full                                 */
	COUNTER_SAMPLE_NS,                     /* time that taking samples took                   */
	COUNTER_LOST_OFF_CPU,                  /* pause ring full                                 */
	COUNTER_LOST_TURNS,                    /* pause ring full                                 */
	COUNTER_LOST_LOOPS,                    /* more than MAX_LOOPS: turns of a loop not counted */
	COUNTER_SWITCHES,                      /* of threads of recorded processes, estimated     */
	COUNTER_SWITCH_NS,                     /* time that the program took at them, estimated   */
	COUNTER_LOOKS,                         /* looks and waits of loops, at their entry        */
	COUNTER_LOOK_NS,                       /* time that the program took at them              */
	COUNTER_FORKS,                         /* children of recorded processes                  */
	COUNTER_EXECS,                         /* programs that recorded processes executed       */
	COUNTER_TIMED,                         /* ends of probed functions that were timed, ...   */
	COUNTER_TIMED_NS = COUNTER_TIMED + POINT_KINDS, /* ... and the time of the program at them */
	COUNTERS_TIMED_END = COUNTER_TIMED_NS + POINT_KINDS - 1,
	COUNTERS,
};

_Static_assert(sizeof(struct point) == 40, "point");
_Static_assert(sizeof(struct pause_event) == 232, "pause_event");
_Static_assert(sizeof(struct counted_pause_event) == 232 + 8 + 24 * HARDWARE_COUNTERS, "counted_pause_event");
_Static_assert(sizeof(struct process_counts) == 96, "process_counts");
_Static_assert(sizeof(struct task_counts) == 48, "task_counts");
_Static_assert(sizeof(struct frame) == 16, "frame");
_Static_assert(sizeof(struct stack_event) == 32 + 16 * MAX_STACK_DEPTH, "stack_event");
_Static_assert(sizeof(struct code_event) == 48 + FILE_NAME_BYTES + FUNCTION_NAME_BYTES, "code_event");
_Static_assert(sizeof(struct type_event) == 48 + TYPE_NAME_BYTES + 2 * TYPE_STRING_BYTES, "type_event");
_Static_assert(sizeof(struct garbage_kind) == 56, "garbage_kind");
_Static_assert(sizeof(struct garbage_event) == 48, "garbage_event");
_Static_assert(sizeof(struct allocation_event) == 16, "allocation_event");
_Static_assert(sizeof(struct process_event) == 64, "process_event");
_Static_assert(sizeof(struct cuda_call_event) == 72, "cuda_call_event");
_Static_assert(sizeof(struct device_memory_event) == 48, "device_memory_event");
_Static_assert(sizeof(struct file_key) == 16, "file_key");
_Static_assert(sizeof(struct arenas) == 32, "arenas");
_Static_assert(sizeof(struct sample_event) == 40, "sample_event");
_Static_assert(sizeof(struct sampled_thread) == 208, "sampled_thread");
_Static_assert(sizeof(struct earlier_wait) == 24, "earlier_wait");
_Static_assert(sizeof(struct off_cpu_event) == 48, "off_cpu_event");
_Static_assert(sizeof(struct loop_event) == 24, "loop_event");
_Static_assert(sizeof(struct turn_event) == 144, "turn_event");
_Static_assert(sizeof(struct followed_process) == 24, "followed_process");

#endif
