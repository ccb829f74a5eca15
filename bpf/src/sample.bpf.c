// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The stack sampler: walks the stack of the sampled thread when a perf event overflows.
 *
 * User space attaches one program for each event, and fills the maps with the mappings of processes
 * and the unwind tables of files. A program that knows both writes a record with the stack, and
 * returns 0: the kernel writes no sample of its own. Otherwise it returns 1. The kernel's sample
 * then has the registers and a copy of the stack. User space walks the copy, and completes the
 * maps.
 *
 * The rules are those of `profiler/src/unwind.rs`.
 */
#include "python.h"
#include "thinning.h"

char permission[] SECTION("license") = "Dual MIT/GPL";

/* Returns the index of the last mapping of a range that starts at or below an address, or NONE. */
CHECKED_ALONE u32 last_mapping(u32 first, u32 count, u64 address)
{
	u32 low = first, high = first + count;
	for (u32 at = 0; at < MAPPING_STEPS; at++) {
		if (low >= high)
			break;
		u32 middle = low + (high - low) / 2;
		struct mapping *mapping = map_lookup(&mappings, &middle);
		if (!mapping)
			return NONE;
		if (mapping->start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low == first ? NONE : low - 1;
}

/* Returns the index of the row of a table that holds for a file offset, or NONE. */
CHECKED_ALONE u32 last_row(u32 first, u32 count, u32 offset)
{
	u32 low = first, high = first + count;
	for (u32 at = 0; at < ROW_STEPS; at++) {
		if (low >= high)
			break;
		u32 middle = low + (high - low) / 2;
		struct row *row = map_lookup(&rows, &middle);
		if (!row)
			return NONE;
		if (row->start <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low == first ? NONE : low - 1;
}

/* Returns the mapping that has an address. */
INLINE struct mapping *find_mapping(struct process process, u64 address)
{
	u32 index = last_mapping(process.first, process.mappings, address);
	struct mapping *mapping = map_lookup(&mappings, &index);
	return mapping && address < mapping->end ? mapping : 0;
}

/* Returns the row of a table that holds for a file offset. */
INLINE struct row *find_row(struct module *module, u64 offset)
{
	if (offset >> 32)
		return 0;
	u32 index = last_row(module->first_row, module->rows, offset);
	return map_lookup(&rows, &index);
}

enum { CONTINUE = 0, STOP = 1 };

INLINE long stop(struct walk *walk, u32 end)
{
	walk->end = end;
	return STOP;
}

/* Goes to the code that a signal interrupted. The handler's return leaves the stack pointer at a
 * struct ucontext (arch/x86/include/uapi/asm/sigcontext.h). */
INLINE long interrupted(struct walk *walk)
{
	enum { MCONTEXT = 40, BP = 10, SP = 15, IP = 16 };
	u64 registers[IP - BP + 1];
	if (read_user(registers, sizeof(registers), (void *)(walk->sp + MCONTEXT + BP * 8)))
		return stop(walk, END_NO_BYTES);
	walk->bp = registers[0];
	walk->sp = registers[SP - BP];
	walk->pc = registers[IP - BP];
	walk->is_return = 0;
	return walk->pc ? CONTINUE : stop(walk, END_COMPLETE);
}

/* Goes to the caller by its frame, which must lead upward. */
INLINE long call(struct walk *walk, u64 pc, u64 cfa, u64 bp)
{
	if (!pc)
		return stop(walk, END_COMPLETE);
	if (cfa <= walk->sp)
		return stop(walk, END_INVALID);
	if (replace_by_python(walk, walk->sp, cfa))
		return stop(walk, END_TOO_DEEP);
	walk->pc = pc;
	walk->sp = cfa;
	walk->bp = bp;
	walk->is_return = 1;
	return CONTINUE;
}

/* Goes to the caller by the frame pointer. */
INLINE long by_frame_pointer(struct walk *walk)
{
	u64 saved[2];
	if (!walk->bp)
		return stop(walk, END_COMPLETE);
	if (read_user(saved, sizeof(saved), (void *)walk->bp))
		return stop(walk, END_NO_TABLE);
	if (saved[1] && !find_mapping(walk->process, saved[1] - 1))
		return stop(walk, END_NO_TABLE);
	return call(walk, saved[1], walk->bp + 16, saved[0]);
}

INLINE long by_row(struct walk *walk, struct row *row)
{
	u64 cfa, pc, bp = walk->bp;
	u32 cfa_kind = row->kinds & 15, bp_kind = row->kinds >> 4;
	s64 offset = row->cfa;
	switch (cfa_kind) {
	case RULE_OUTERMOST:
		return stop(walk, END_COMPLETE);
	case RULE_SIGNAL:
		return interrupted(walk);
	case CFA_SP:
		cfa = walk->sp + offset * 8;
		break;
	case CFA_BP:
		cfa = bp + offset * 8;
		break;
	case CFA_AT_BP:
		if (user_word(&cfa, bp + offset * 8))
			return stop(walk, END_NO_BYTES);
		break;
	case CFA_PLT:
		cfa = walk->sp + ((s64)(walk->pc & 15) >= offset ? 16 : 8);
		break;
	default:
		return stop(walk, END_NO_RULE);
	}
	if (user_word(&pc, cfa - 8))
		return stop(walk, END_NO_BYTES);
	if (bp_kind != BP_UNCHANGED) {
		u64 base = bp_kind == BP_AT_CFA ? cfa : bp;
		if (user_word(&bp, base + (s64)row->bp * 8))
			return stop(walk, END_NO_BYTES);
	}
	return call(walk, pc, cfa, bp);
}

/* Adds a frame, and goes to its caller. */
static long step(u32 index, void *context)
{
	(void)index;
	(void)context;
	struct walk *walk = current_walk();
	if (!walk)
		return STOP;
	u64 at = walk->pc - walk->is_return;
	struct mapping *mapping = find_mapping(walk->process, at);
	if (!mapping)
		return stop(walk, END_UNKNOWN);
	u32 number = mapping->module;
	u32 len = walk->len;
	if (len >= WORDS)
		return stop(walk, END_TOO_DEEP);
	walk->event.words[len & (WORDS - 1)] = (u64)number << MODULE_SHIFT | at;
	walk->len = len + 1;
	if (!number)
		return by_frame_pointer(walk);
	struct module *module = map_lookup(&modules, &number);
	if (!module || module->state == TABLE_UNREAD)
		return stop(walk, END_UNKNOWN);
	if (module->state == TABLE_MISSING)
		return by_frame_pointer(walk);
	struct row *row = find_row(module, at - mapping->bias);
	return row ? by_row(walk, row) : stop(walk, END_NO_RULE);
}

/* Walks the stack of the program that the thread runs. */
INLINE void walk_user(struct overflow *overflow, struct walk *walk)
{
	struct task_struct *task = current_task();
	if (READ(task, flags) & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)) {
		walk->end = END_NO_USER;
		return;
	}
	u64 *registers = user_registers(task);
	u64 sp = overflow->registers[REGISTER_SP];
	/* The kernel is about to store the registers (perf_get_regs_user). */
	if (sp > (u64)(registers + REGISTER_R11) && sp <= (u64)(registers + REGISTERS)) {
		walk->end = END_NO_USER;
		return;
	}
	u64 saved[REGISTER_SP - REGISTER_BP + 1];
	u32 pid = current_ids() >> 32;
	struct process *process = map_lookup(&processes, &pid);
	if (!process || read_kernel(saved, sizeof(saved), registers + REGISTER_BP))
		return;
	if ((saved[REGISTER_CS - REGISTER_BP] & 0xffff) != USER_CODE_64)
		return;
	walk->process = *process;
	walk->bp = saved[0];
	walk->pc = saved[REGISTER_IP - REGISTER_BP];
	walk->sp = saved[REGISTER_SP - REGISTER_BP];
	walk->is_return = 0;
	walk->fs_base = READ(task, thread.fsbase);
	walk->end = END_TOO_DEEP;
	/* Whatever the thread publishes of itself is read here, by its fs_base. */
	read_python(overflow, pid, walk->fs_base);
	loop(FRAMES, step, 0, 0);
}

static __attribute__((noinline)) int sample(struct overflow *overflow, u32 program)
{
	EMIT_TYPE(struct sample_event);
	EMIT_TYPE(struct code_event);
	EMIT_TYPE(struct tls_slot);
	struct walk *walk = current_walk();
	if (!walk)
		return 1;
	u64 weight = thinned(overflow->period, program);
	if (!weight)
		return 0;
	walk->len = 0;
	walk->end = END_UNKNOWN;
	walk_user(overflow, walk);
	if (walk->end == END_UNKNOWN)
		return 1;
	struct sample_event *event = &walk->event;
	u64 user = walk->len;
	if (user > WORDS)
		user = WORDS;
	long kernel = stack_of(overflow, &event->words[user], KERNEL_FRAMES * 8, 0);
	if (kernel < 0)
		kernel = 0;
	event->weight = weight;
	event->program = program;
	event->end = walk->end;
	event->user_len = user;
	event->kernel_len = kernel / 8;
	u64 size = __builtin_offsetof(struct sample_event, words) + user * 8 + kernel;
	if (size > sizeof(*event))
		return 1;
	u64 context = 0;
	if (walk->end != END_NO_USER)
		context = read_thread_context((u8 *)event + size, current_ids() >> 32, walk->fs_base);
	event->context_len = context;
	size += context;
	long error = event_output(overflow, &outputs, THIS_CPU, event, size);
	/* The kernel counts and reports the records of a full ring. */
	return error && error != -ENOSPC;
}

#define PROGRAM(number)                                                                                \
	SECTION("perf_event") int sample_##number(struct overflow *overflow)                           \
	{                                                                                              \
		return sample(overflow, number);                                                       \
	}

PROGRAM(0)
PROGRAM(1)
PROGRAM(2)
PROGRAM(3)
PROGRAM(4)
PROGRAM(5)
