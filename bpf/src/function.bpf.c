// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The function trigger. `entered` writes a record for each entry to a user function. `began` and
 * `ended`, at its entry and return, write a record for each call longer than a limit.
 */
#include "function_event.h"

char permission[] SECTION("license") = "Dual MIT/GPL";

/* Set before the object is loaded. */
const volatile u64 longer_than = 0; /* ns */
const volatile u32 only = 0;        /* the only process to trace; 0: all */

enum {
	/* The maximum depth of recursive calls that are measured. */
	DEPTH = 16,
	THREADS = 16384,
	NO_PREALLOC = 1,
	/* The index in struct pt_regs. */
	REGISTER_SP = 19,
};

/* An open call: the stack pointer at the first instruction of the function, which points to the
 * return address. */
struct call {
	u64 sp;
	u64 began;
};

/* The open calls of a thread, outermost first. */
struct calls {
	u32 depth;
	u32 unused;
	struct call open[DEPTH];
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries, 1 << 16);
} functions SECTION(".maps");

/* The number of records dropped because the ring was full, and of calls dropped because `threads`
 * was full. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} lost SECTION(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, THREADS);
	MAP_UINT(map_flags, NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct calls);
} threads SECTION(".maps");

INLINE void count_lost(void)
{
	u32 zero = 0;
	u64 *count = map_lookup(&lost, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
}

INLINE void emit(u64 ids, u64 now, u64 lasted, u32 depth)
{
	EMIT_TYPE(struct function_event);
	struct function_event *event = ring_reserve(&functions, sizeof(*event), 0);
	if (!event) {
		count_lost();
		return;
	}
	event->at = now;
	event->lasted = lasted;
	event->pid = ids >> 32;
	event->tid = (u32)ids;
	event->cpu = current_cpu();
	event->depth = depth;
	ring_submit(event, 0);
}

INLINE int is_traced(u64 ids)
{
	return !only || ids >> 32 == only;
}

SECTION("uprobe") int entered(void *context)
{
	(void)context;
	u64 ids = current_ids();
	if (is_traced(ids))
		emit(ids, monotonic_now(), 0, 0);
	return 0;
}

SECTION("uprobe") int began(u64 *registers)
{
	u64 ids = current_ids();
	if (!is_traced(ids))
		return 0;
	struct calls *calls = map_lookup(&threads, &ids);
	if (!calls) {
		struct calls none = {};
		map_update(&threads, &ids, &none, UPDATE_NOEXIST);
		calls = map_lookup(&threads, &ids);
		if (!calls) {
			count_lost();
			return 0;
		}
	}
	/* Calls that ended without a return (longjmp, an exception) have the same or a lower stack
	 * pointer, because stacks grow downward. */
	u64 sp = registers[REGISTER_SP];
	u32 depth = 0;
	for (u32 index = 0; index < DEPTH; index++) {
		if (index >= calls->depth || calls->open[index].sp <= sp)
			break;
		depth = index + 1;
	}
	if (depth >= DEPTH) {
		count_lost();
		return 0;
	}
	calls->open[depth & (DEPTH - 1)].sp = sp;
	calls->open[depth & (DEPTH - 1)].began = monotonic_now();
	calls->depth = depth + 1;
	return 0;
}

SECTION("uretprobe") int ended(u64 *registers)
{
	u64 ids = current_ids();
	if (!is_traced(ids))
		return 0;
	struct calls *calls = map_lookup(&threads, &ids);
	if (!calls)
		return 0;
	/* The return has popped its address. */
	u64 sp = registers[REGISTER_SP] - 8;
	u64 now = monotonic_now();
	for (u32 index = 0; index < DEPTH; index++) {
		if (index >= calls->depth)
			break;
		if (calls->open[index].sp != sp)
			continue;
		u64 lasted = now - calls->open[index].began;
		calls->depth = index;
		if (lasted > longer_than)
			emit(ids, now, lasted, index);
		break;
	}
	if (calls->depth == 0)
		map_delete(&threads, &ids);
	return 0;
}
