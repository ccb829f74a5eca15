// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * Records the calls of allocator functions in some processes. `called` and `returned`, at the entry
 * and return of functions that allocate, write one record for each call. `freed`, at the entry of
 * functions that free, writes one too. Calls inside of another allocator function have no record.
 */
#include "heap_event.h"

char permission[] SECTION("license") = "Dual MIT/GPL";

enum {
	PROCESSES = 256,
	THREADS = 32768,
	/* Indexes in struct pt_regs. */
	REGISTER_BP = 4,
	REGISTER_AX = 10,
	REGISTER_DX = 12,
	REGISTER_SI = 13,
	REGISTER_DI = 14,
	REGISTER_IP = 16,
	REGISTER_SP = 19,
	/* The most bytes of stack between a function that frees and the one that it calls for it. */
	FREE_FRAME = 512,
	/* Bytes in the ring after which the reader wakes. */
	WAKE_BYTES = 1 << 20,
};

/* Parts of an attachment's cookie: the number of a function, and how it takes its arguments. */
enum {
	FUNCTION_MASK = 0xff,
	/* The size is the second argument. */
	SIZE_IN_SI = 1 << 8,
	/* The size is the product of two arguments. */
	SIZE_IS_PRODUCT = 1 << 9,
	/* The first argument is a block, and the second its new size. */
	RESIZES = 1 << 10,
	/* The block is written to the first argument, and the size is the third. */
	STORES_BLOCK = 1 << 11,
};

/* The outermost call of a thread. */
struct open_call {
	u64 sp; /* at the first instruction, where the return address is; 0: none is open */
	u64 began;
	u64 argument;
	u64 size;
	u64 out; /* where the function stores the block */
	u64 nested;
	u32 function;
	u32 stores;
	/* The last free, until the next call. */
	u64 freed_sp;
	u64 freed_from;
	u64 freed_block;
	u64 freed_pc;
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries, 1 << 23);
} calls SECTION(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, PROCESSES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct heap_process);
} processes SECTION(".maps");

struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, THREADS);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct open_call);
} threads SECTION(".maps");

INLINE void count_lost(struct heap_process *process, u64 count)
{
	__sync_fetch_and_add(&process->lost, count);
	process->lost_at = monotonic_now();
}

/* Returns the process of the current thread, or 0: its calls are not recorded. */
INLINE struct heap_process *traced(u64 ids)
{
	u32 pid = ids >> 32;
	return map_lookup(&processes, &pid);
}

/* Forgets an open call at a call with stack pointer `sp`, which is not inside of it. A function
 * that jumped to another one at its end has the same stack pointer. Others have no known return. */
INLINE void leave(struct heap_process *process, struct open_call *call, u64 sp)
{
	u64 lost = call->nested + (call->sp != sp);
	if (lost)
		count_lost(process, lost);
	call->sp = 0;
	call->nested = 0;
}

INLINE struct heap_event *reserve(struct heap_process *process, u64 ids)
{
	EMIT_TYPE(struct heap_event);
	EMIT_TYPE(struct heap_process);
	struct heap_event *event = ring_reserve(&calls, sizeof(*event), 0);
	if (!event) {
		count_lost(process, 1);
		return event;
	}
	event->pid = ids >> 32;
	event->tid = (u32)ids;
	event->image = (u32)READ(current_task(), self_exec_id);
	return event;
}

/* Adds the caller's stack, and submits the record. */
INLINE void submit(struct heap_event *event)
{
	event->words = HEAP_STACK_WORDS;
	if (read_user(event->stack, sizeof(event->stack), (void *)event->sp))
		event->words = 0;
	u64 flags = ring_query(&calls, RING_AVAILABLE) > WAKE_BYTES ? RING_FORCE_WAKEUP : RING_NO_WAKEUP;
	ring_submit(event, flags);
}

SECTION("uprobe") int called(u64 *registers)
{
	u64 ids = current_ids();
	struct heap_process *process = traced(ids);
	if (!process)
		return 0;
	struct open_call *call = map_lookup(&threads, &ids);
	if (!call) {
		struct open_call none = {};
		map_update(&threads, &ids, &none, UPDATE_ANY);
		call = map_lookup(&threads, &ids);
		if (!call) {
			count_lost(process, 1);
			return 0;
		}
	}
	u64 sp = registers[REGISTER_SP];
	/* Stacks grow downward, so an open call is farther up. */
	if (call->sp > sp) {
		call->nested++;
		return 0;
	}
	if (call->sp)
		leave(process, call, sp);
	u64 cookie = attach_cookie(registers);
	u64 first = registers[REGISTER_DI], second = registers[REGISTER_SI];
	call->freed_sp = 0;
	call->sp = sp;
	call->function = cookie & FUNCTION_MASK;
	call->stores = !!(cookie & STORES_BLOCK);
	call->out = first;
	call->size = 0;
	call->argument = first;
	if (cookie & RESIZES)
		call->size = second;
	else if (cookie & STORES_BLOCK)
		call->argument = registers[REGISTER_DX];
	else if (cookie & SIZE_IN_SI)
		call->argument = second;
	else if (cookie & SIZE_IS_PRODUCT)
		call->argument = first * second;
	call->began = monotonic_now();
	return 0;
}

SECTION("uretprobe") int returned(u64 *registers)
{
	u64 ids = current_ids();
	struct heap_process *process = traced(ids);
	if (!process)
		return 0;
	struct open_call *call = map_lookup(&threads, &ids);
	/* The return has popped its address. */
	u64 sp = registers[REGISTER_SP];
	if (!call || call->sp != sp - 8)
		return 0;
	u64 result = registers[REGISTER_AX];
	if (call->stores) {
		u64 failed = (u32)result;
		result = 0;
		if (!failed && read_user(&result, sizeof(result), (void *)call->out))
			result = 0;
	}
	call->sp = 0;
	call->nested = 0;
	struct heap_event *event = reserve(process, ids);
	if (!event)
		return 0;
	event->began = call->began;
	event->ended = monotonic_now();
	event->argument = call->argument;
	event->size = call->size;
	event->result = result;
	event->function = call->function;
	event->caller = registers[REGISTER_IP];
	event->sp = sp;
	event->bp = registers[REGISTER_BP];
	submit(event);
	return 0;
}

SECTION("uprobe") int freed(u64 *registers)
{
	u64 ids = current_ids();
	struct heap_process *process = traced(ids);
	u64 block = registers[REGISTER_DI];
	if (!process || !block)
		return 0;
	u64 sp = registers[REGISTER_SP], pc = registers[REGISTER_IP], caller = 0;
	if (read_user(&caller, sizeof(caller), (void *)sp))
		caller = 0;
	struct open_call *call = map_lookup(&threads, &ids);
	if (call && call->sp > sp) {
		call->nested++;
		return 0;
	}
	if (call && call->sp)
		leave(process, call, sp);
	if (process->repeats) {
		if (!call) {
			struct open_call none = {};
			map_update(&threads, &ids, &none, UPDATE_ANY);
			call = map_lookup(&threads, &ids);
			if (!call) {
				count_lost(process, 1);
				return 0;
			}
		}
		/* The function calls another one for the same block. Its own frame is as before. */
		u64 from = 0, last = call->freed_sp;
		call->freed_sp = 0;
		if (last >= sp && last - sp <= FREE_FRAME && call->freed_block == block && call->freed_pc != pc &&
		    !read_user(&from, sizeof(from), (void *)last) && from == call->freed_from)
			return 0;
		call->freed_sp = sp;
		call->freed_from = caller;
		call->freed_block = block;
		call->freed_pc = pc;
	}
	struct heap_event *event = reserve(process, ids);
	if (!event)
		return 0;
	event->began = event->ended = monotonic_now();
	event->argument = block;
	event->size = event->result = 0;
	event->function = attach_cookie(registers) & FUNCTION_MASK;
	event->caller = caller;
	event->sp = sp + 8;
	event->bp = registers[REGISTER_BP];
	submit(event);
	return 0;
}
