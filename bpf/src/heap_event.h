/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The record of an allocator call in the ring. `heap.rs` declares it in Rust, and a test compares
 * both. */
#ifndef BACKTRAIL_HEAP_EVENT_H
#define BACKTRAIL_HEAP_EVENT_H

#include "kernel.h"

enum {
	/* The words of the caller's stack. */
	HEAP_STACK_WORDS = 22,
};

struct heap_event {
	u64 began;    /* the entry, by CLOCK_MONOTONIC, ns */
	u64 ended;    /* the return; of a call that frees, the entry */
	u64 argument; /* the block that it frees or resizes, or else the size */
	u64 size;     /* the new size of a block that it resizes */
	u64 result;   /* the returned block; 0 after a failure */
	u64 caller;   /* the return address */
	u64 sp, bp;   /* the caller's registers after the return */
	u32 pid, tid; /* in the first pid namespace */
	u32 image;    /* differs after the process executes another program */
	u16 function; /* the number of the function, as attached */
	u16 words;    /* the number of words in `stack` */
	u64 stack[HEAP_STACK_WORDS]; /* from `sp` on */
};

/* A process whose calls are recorded, by its id. */
struct heap_process {
	u64 lost;    /* the number of lost calls */
	u64 lost_at; /* the time of the last one */
	u32 repeats; /* whether one free can pass two probes */
	u32 unused;
};

#endif
