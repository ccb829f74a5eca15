/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The record of a function call in the ring. `call.rs` declares it in Rust, and a test compares
 * both. */
#ifndef BACKTRAIL_FUNCTION_EVENT_H
#define BACKTRAIL_FUNCTION_EVENT_H

#include "kernel.h"

struct function_event {
	u64 at;     /* CLOCK_MONOTONIC, ns */
	u64 lasted; /* ns; 0: at the entry */
	u32 pid, tid;
	u32 cpu;
	u32 depth; /* the number of other open calls of the function in the thread */
};

#endif
