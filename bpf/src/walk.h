/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The state of a walk, and the maps that it reads. */
#ifndef BACKTRAIL_WALK_H
#define BACKTRAIL_WALK_H

#include "sample_event.h"
#include "thread_context.h"

enum {
	MMAPABLE = 1 << 10,
	/* Halvings of the longest range of mappings and of rows. */
	MAPPING_STEPS = 16,
	ROW_STEPS = 23,
	/* struct pt_regs: the indexes of registers. */
	REGISTER_BP = 4,
	REGISTER_R11 = 6,
	REGISTER_IP = 16,
	REGISTER_CS = 17,
	REGISTER_SP = 19,
	REGISTERS = 21,
	/* __USER_CS (arch/x86/include/asm/segment.h) */
	USER_CODE_64 = 0x33,
};

/* No index. */
#define NONE 0xffffffffU
/* A function that the verifier checks once, and not in each of its calls. */
#define CHECKED_ALONE __attribute__((noinline))

/* struct bpf_perf_event_data */
struct overflow {
	u64 registers[REGISTERS];
	u64 period;
	u64 address;
};

/* The state of a walk, and its record. No two walks on one processor overlap: perf calls no program
 * while another one runs (bpf_prog_active). */
struct walk {
	struct process process;
	u64 pc, sp, bp;
	/* 1: pc is a return address. 0: it is where the thread or a signal interrupted the code. */
	u64 is_return;
	u64 fs_base;
	u32 len;
	u32 end;
	struct sample_event event;
	u8 context[CONTEXT_BYTES];
};

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct walk);
} walks SECTION(".maps");

/* By process id. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct process);
} processes SECTION(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1 << 16);
	MAP_UINT(map_flags, MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct mapping);
} mappings SECTION(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1 << 14);
	MAP_UINT(map_flags, MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct module);
} modules SECTION(".maps");

/* User space sets the size by its budget. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct row);
} rows SECTION(".maps");

/* An event of each processor, whose ring gets the records. */
struct {
	MAP_UINT(type, MAP_PERF_EVENT_ARRAY);
	MAP_UINT(max_entries, 0);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
} outputs SECTION(".maps");

INLINE struct walk *current_walk(void)
{
	u32 zero = 0;
	return map_lookup(&walks, &zero);
}

INLINE int user_word(u64 *to, u64 address)
{
	return read_user(to, sizeof(*to), (void *)address);
}

#endif
