/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The record of a function in the ring; `call.rs` is the same in Rust, and a test compares the two. */
#ifndef BACKTRAIL_FUNCTION_EVENT_H
#define BACKTRAIL_FUNCTION_EVENT_H

#include "kernel.h"

struct function_event {
	u64 at;     /* CLOCK_MONOTONIC, ns */
	u64 lasted; /* ns; 0: it was entered */
	u32 pid, tid;
	u32 cpu;
	u32 depth; /* how many calls of the function were open in the thread, this one left out */
};

#endif
