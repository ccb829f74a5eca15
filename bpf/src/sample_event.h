/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The record of a sample, and the rows of the maps that user space fills. `sample.rs` declares them
 * in Rust, and a test compares both. */
#ifndef BACKTRAIL_SAMPLE_EVENT_H
#define BACKTRAIL_SAMPLE_EVENT_H

#include "kernel.h"

enum {
	/* The most native frames of a user stack. */
	FRAMES = 1024,
	/* The most words of a user stack. */
	WORDS = 2048,
	/* The most frames of a kernel stack (kernel.perf_event_max_stack). */
	KERNEL_FRAMES = 127,
};

/* The reasons why a walk ended. */
enum {
	/* The start of the thread. */
	END_COMPLETE = 0,
	/* The code has no table, and its frame pointer leads nowhere. */
	END_NO_TABLE = 1,
	/* The table has no rule for the code. */
	END_NO_RULE = 2,
	/* The stack cannot be read. */
	END_NO_BYTES = 3,
	/* The frames do not lead upward. */
	END_INVALID = 4,
	END_TOO_DEEP = 5,
	/* The thread runs no program. */
	END_NO_USER = 6,
	/* Not in a record: user space has to walk the stack. */
	END_UNKNOWN = 7,
};

/* A word of a user stack has an address inside the instruction that ran or made the call. The bits
 * from here on have the module of its mapping. A Python frame has two words. The first one has the
 * address of the code object. The second one has its hash in the high half, and the offset of the
 * instruction in the low half. */
enum { MODULE_SHIFT = 48 };
#define PYTHON_MODULE 0xffffULL

struct sample_event {
	u64 weight;
	u32 program; /* the number of the program that made the record */
	u8 end;
	u8 unused;
	u16 user_len;   /* words */
	u32 kernel_len; /* words */
	u16 context_len; /* bytes of the thread's context (thread_context.h), after the words */
	u16 unused2;
	u64 words[WORDS + KERNEL_FRAMES]; /* the user stack, then the kernel stack, innermost first */
};

/* `program` of a record of a Python code object. */
#define CODE_RECORD 0xffffffffU

/* A code object that samples after this record refer to. */
struct code_event {
	u64 code;
	u32 program; /* CODE_RECORD */
	u32 hash;
	u32 pid;
	u32 first_line;
	u16 qualname_len, file_len, lines_len; /* bytes */
	u8 qualname_kind, file_kind;           /* bytes for each character */
	u8 qualname[256];
	u8 file[512];
	u8 lines[2048]; /* the table of lines */
};

/* The place of CPython's state in a process, and the offsets of members. */
struct interpreter {
	u64 runtime, code_type;
	u32 version; /* 0x030b is 3.11 */
	u32 interpreters_head, interpreter_next, threads_head;
	u32 thread_next, thread_id;
	u32 c_frame; /* in the thread state, or 0 */
	u32 current_frame; /* in the C frame, or the thread state */
	u32 instructions, first_line; /* in a code object */
	u32 ascii_size, compact_size; /* the sizes of string objects before their characters */
};

/* A mapping with code. Those of a process are in ascending order. */
struct mapping {
	u64 start, end;
	u64 bias;   /* the address of file offset 0 */
	u32 module; /* its index in `modules`, or 0: memory without a file */
	u32 unused;
};

/* The state of a module's table. */
enum {
	/* User space has not read it. */
	TABLE_UNREAD = 0,
	TABLE_MISSING = 1,
	TABLE_READY = 2,
};

struct module {
	u32 state;
	u32 first_row, rows; /* in `rows` */
	u32 unused;
};

/* A row of an unwind table holds for the code from its file offset up to the next row. */
struct row {
	u32 start;
	u8 kinds; /* enum cfa_kind, and enum bp_kind << 4 */
	signed char bp; /* the offset of the saved frame pointer, in words */
	short cfa;      /* the offset of the CFA, in words; for CFA_PLT, in bytes */
};
enum cfa_kind { RULE_UNKNOWN, RULE_OUTERMOST, RULE_SIGNAL, CFA_SP, CFA_BP, CFA_AT_BP, CFA_PLT };
enum bp_kind { BP_UNCHANGED, BP_AT_CFA, BP_AT_BP };

/* The mappings of a process: a range of `mappings`. */
struct process {
	u32 first, mappings;
};

#endif
