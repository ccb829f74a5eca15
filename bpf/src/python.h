/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * Reads the frames of CPython's interpreter (3.11 to 3.13) when a sample is taken.
 *
 * A call of the interpreter's loop runs a chain of Python frames. The chain contains a variable of
 * the call, which is on the thread's stack: in 3.11 a `_PyCFrame`, later a frame of its own. So the
 * native frame with this variable is that of the loop. The walk puts the Python frames in its
 * place.
 *
 * Sources: Include/internal/pycore_frame.h, pycore_runtime.h, Include/cpython/{code,pystate}.h.
 */
#ifndef BACKTRAIL_PYTHON_H
#define BACKTRAIL_PYTHON_H

#include "walk.h"

enum {
	/* The most Python frames, with one head for each call of the loop. */
	PYTHON_FRAMES = 1024,
	/* The most Python frames until the end of the innermost call of the loop. */
	PYTHON_STEPS = 8192,
	/* The most thread states that are searched. */
	PYTHON_THREADS = 512,
	/* The bytes of a code object up to its table of lines. */
	CODE_HEAD = 144,
	/* frame->owner: the variable of the loop (FRAME_OWNED_BY_CSTACK). */
	OWNED_BY_C_STACK = 3,
};

/* A Python frame, or a head before the frames of one call of the loop. */
struct python_frame {
	u64 code;  /* 0: a head */
	u64 state; /* hash << 32 | the offset of the instruction; of a head, the variable's address */
};

/* The state of reading the frames of a thread. */
struct python {
	struct interpreter interpreter;
	u32 pid;
	u32 len;
	u64 interpreter_state, thread_state;
	u64 frame;
	u64 c_frame; /* 3.11 */
	/* The last head. */
	u32 head;
	/* The next frame or head that the walk puts into the stack. */
	u32 next;
	/* Whether there was no room for more. */
	u32 is_truncated;
	struct python_frame frames[PYTHON_FRAMES];
	u8 code[CODE_HEAD];
	struct code_event event;
};

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct python);
} pythons SECTION(".maps");

/* A code object that has a record. A reused address has another hash. */
struct code_key {
	u64 code;
	u32 pid, hash;
};

struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 32768);
	MAP_TYPE(key, struct code_key);
	MAP_TYPE(value, u8);
} codes SECTION(".maps");

/* By process id. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct interpreter);
} interpreters SECTION(".maps");

INLINE struct python *current_python(void)
{
	u32 zero = 0;
	return map_lookup(&pythons, &zero);
}

/* Looks whether the current thread state is that of this thread, or goes to the next one. */
static long find_thread(u32 index, void *context)
{
	(void)index;
	u64 *fs_base = context;
	struct python *python = current_python();
	if (!python)
		return 1;
	struct interpreter *at = &python->interpreter;
	u64 id = 0;
	if (!python->thread_state) {
		u64 state = python->interpreter_state;
		if (!state)
			return 1;
		if (user_word(&python->thread_state, state + at->threads_head) ||
		    user_word(&python->interpreter_state, state + at->interpreter_next)) {
			python->thread_state = 0;
			return 1;
		}
		return 0;
	}
	if (user_word(&id, python->thread_state + at->thread_id)) {
		python->thread_state = 0;
		return 1;
	}
	if (id == *fs_base)
		return 1;
	if (user_word(&python->thread_state, python->thread_state + at->thread_next))
		python->thread_state = 0;
	return !python->thread_state && !python->interpreter_state;
}

enum { PART_FILE, PART_NAME, PART_LINES };

/* Copies a part of the code object in `python->code` to its record: a string, or the table of
 * lines. Returns 0. */
CHECKED_ALONE int copy_part(u32 part)
{
	struct python *python = current_python();
	if (!python)
		return 0;
	struct interpreter *at = &python->interpreter;
	struct code_event *event = &python->event;
	u64 *head = (u64 *)python->code;
	u64 words[3], width = 1, from, bytes;
	u64 object = part == PART_FILE ? head[14] : part == PART_NAME ? head[16] : head[17];
	/* The length is at 16. The state of a string is at 32, and the content of bytes. */
	if (read_user(words, sizeof(words), (void *)(object + 16)) || words[0] > 1 << 20)
		return 0;
	from = object + 32;
	if (part != PART_LINES) {
		u32 state = (u32)words[2];
		width = (state >> 2) & 7;
		/* Only compact strings follow their object. */
		if (!(state & 1 << 5))
			return 0;
		from = object + (state & 1 << 6 ? at->ascii_size : at->compact_size);
	}
	bytes = words[0] * width;
	if (part == PART_FILE) {
		if (bytes > sizeof(event->file))
			bytes = sizeof(event->file);
		if (!read_user(event->file, bytes, (void *)from))
			event->file_len = bytes;
		event->file_kind = width;
	} else if (part == PART_NAME) {
		if (bytes > sizeof(event->qualname))
			bytes = sizeof(event->qualname);
		if (!read_user(event->qualname, bytes, (void *)from))
			event->qualname_len = bytes;
		event->qualname_kind = width;
	} else {
		if (bytes > sizeof(event->lines))
			bytes = sizeof(event->lines);
		if (!read_user(event->lines, bytes, (void *)from))
			event->lines_len = bytes;
	}
	return 0;
}

/* Returns the first line of the code object in `python->code`. */
INLINE u32 first_line(struct python *python)
{
	u32 *head = (u32 *)python->code;
	u32 old = head[72 / 4], new = head[68 / 4];
	return python->interpreter.first_line == 72 ? old : new;
}

/* Writes a record of the code object in `python->code`, unless there is one. */
INLINE void describe(struct overflow *overflow, struct python *python, u64 code, u32 hash)
{
	struct code_key key = { .code = code, .pid = python->pid, .hash = hash };
	if (map_lookup(&codes, &key))
		return;
	struct code_event *event = &python->event;
	event->code = code;
	event->program = CODE_RECORD;
	event->hash = hash;
	event->pid = python->pid;
	event->first_line = first_line(python);
	event->file_len = event->qualname_len = event->lines_len = 0;
	event->file_kind = event->qualname_kind = 1;
	copy_part(PART_FILE);
	copy_part(PART_NAME);
	copy_part(PART_LINES);
	if (event_output(overflow, &outputs, THIS_CPU, event, sizeof(*event)))
		return;
	u8 yes = 1;
	map_update(&codes, &key, &yes, UPDATE_ANY);
}

/* Adds a frame or a head. */
INLINE long add(struct python *python, u64 code, u64 state)
{
	u32 len = python->len;
	if (len >= PYTHON_FRAMES) {
		python->is_truncated = 1;
		return 1;
	}
	struct python_frame *frame = &python->frames[len & (PYTHON_FRAMES - 1)];
	frame->code = code;
	frame->state = state;
	python->len = len + 1;
	return 0;
}

/* Ends the frames of one call of the loop, whose variable is known now. */
INLINE long end_call(struct python *python, u64 variable)
{
	python->frames[python->head & (PYTHON_FRAMES - 1)].state = variable;
	if (python->is_truncated)
		return 1;
	python->head = python->len;
	return add(python, 0, 0);
}

/* Ends the frames of one call of 3.11, and goes to the C frame before. */
INLINE long end_c_frame(struct python *python)
{
	if (end_call(python, python->c_frame))
		return 1;
	/* struct _PyCFrame: a byte, the current frame, and the C frame before. */
	return user_word(&python->c_frame, python->c_frame + 16) != 0;
}

struct python_context {
	struct overflow *overflow;
};

/* Adds the current Python frame, and goes to its caller. */
static long python_step(u32 index, void *context)
{
	(void)index;
	struct python_context *own = context;
	struct python *python = current_python();
	if (!python || !python->frame)
		return 1;
	struct interpreter *at = &python->interpreter;
	u64 frame = python->frame;
	/* _PyInterpreterFrame: 72 bytes are before the local variables. */
	u64 words[9];
	if (read_user(words, sizeof(words), (void *)frame))
		return 1;
	u32 is_311 = at->version == 0x030b;
	u64 code = is_311 ? words[4] : words[0];
	u8 *bytes = (u8 *)words;
	python->frame = is_311 ? words[6] : words[1];
	if (!is_311 && bytes[70] == OWNED_BY_C_STACK)
		return end_call(python, frame);
	if (python->is_truncated)
		return is_311 && bytes[68] ? end_c_frame(python) : 0;
	u64 *head = (u64 *)python->code;
	if (read_user(python->code, CODE_HEAD, (void *)code) || head[1] != at->code_type)
		return 1;
	u64 mixed = head[14] ^ head[16] << 7 ^ head[17] << 13 ^ first_line(python);
	mixed *= 0x9e3779b97f4a7c15ULL;
	u32 hash = mixed >> 32;
	describe(own->overflow, python, code, hash);
	u32 offset = (u32)(words[7] - (code + at->instructions));
	add(python, code, (u64)hash << 32 | offset);
	/* is_entry */
	return is_311 && bytes[68] ? end_c_frame(python) : 0;
}

/* Reads the frames of this thread, if the process runs Python. */
INLINE void read_python(struct overflow *overflow, u32 pid, u64 fs_base)
{
	struct python *python = current_python();
	if (!python)
		return;
	python->len = python->head = python->next = python->is_truncated = 0;
	struct interpreter *interpreter = map_lookup(&interpreters, &pid);
	if (!interpreter)
		return;
	python->interpreter = *interpreter;
	python->pid = pid;
	python->thread_state = 0;
	python->frame = 0;
	struct interpreter *at = &python->interpreter;
	if (user_word(&python->interpreter_state, at->runtime + at->interpreters_head))
		return;
	loop(PYTHON_THREADS, find_thread, &fs_base, 0);
	u64 id = 0;
	u64 state = python->thread_state;
	if (!state || user_word(&id, state + at->thread_id) || id != fs_base)
		return;
	u64 current = state + at->current_frame;
	if (at->c_frame) {
		if (user_word(&python->c_frame, state + at->c_frame))
			return;
		current = python->c_frame + at->current_frame;
	}
	if (user_word(&python->frame, current))
		return;
	add(python, 0, 0);
	struct python_context context = { .overflow = overflow };
	loop(PYTHON_STEPS, python_step, &context, 0);
}

/* Adds the next Python frame to the stack. */
static long emit_frame(u32 index, void *context)
{
	(void)index;
	(void)context;
	struct python *python = current_python();
	struct walk *walk = current_walk();
	if (!python || !walk || python->next >= python->len || walk->len > WORDS - 2)
		return 1;
	struct python_frame *frame = &python->frames[python->next & (PYTHON_FRAMES - 1)];
	if (!frame->code)
		return 1;
	u32 len = walk->len;
	walk->event.words[len & (WORDS - 1)] = PYTHON_MODULE << MODULE_SHIFT | frame->code;
	walk->event.words[(len + 1) & (WORDS - 1)] = frame->state;
	walk->len = len + 2;
	python->next++;
	return 0;
}

/* Replaces the last frame of the walk, whose variables are between two addresses, by the Python
 * frames that it runs. Returns whether some of them are missing. */
INLINE int replace_by_python(struct walk *walk, u64 low, u64 high)
{
	struct python *python = current_python();
	if (!python || python->next + 1 >= python->len || !walk->len)
		return 0;
	struct python_frame *head = &python->frames[python->next & (PYTHON_FRAMES - 1)];
	struct python_frame *first = &python->frames[(python->next + 1) & (PYTHON_FRAMES - 1)];
	if (head->state < low || head->state >= high || !first->code)
		return 0;
	walk->len--;
	python->next++;
	loop(PYTHON_FRAMES, emit_frame, 0, 0);
	if (python->next >= python->len)
		return python->is_truncated;
	return python->frames[python->next & (PYTHON_FRAMES - 1)].code != 0;
}

#endif
