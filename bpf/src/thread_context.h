/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * Reads the context that the current thread published for OpenTelemetry: a record of its request
 * (OTEP 4947). The thread is interrupted, so its record is whole, or marked as not valid.
 *
 * `process/src/thread_context` describes the record and how a thread's variable is found.
 * `thread_context.rs` declares the struct in Rust, and a test compares both.
 */
#ifndef BACKTRAIL_THREAD_CONTEXT_H
#define BACKTRAIL_THREAD_CONTEXT_H

#include "kernel.h"

enum {
	/* The bytes before the attributes. */
	CONTEXT_HEADER = 28,
	/* The most bytes of a record that are read. */
	CONTEXT_BYTES = 640,
};

/* Where a thread has its variable. */
enum tls_kind {
	/* At an offset from the thread pointer. */
	TLS_STATIC = 1,
	/* In the block of a module, by the thread's vector of blocks (DTV). */
	TLS_GLIBC = 2,
	TLS_MUSL = 3,
};

/* Where each thread of a process has its variable. */
struct tls_slot {
	s64 offset;     /* from the thread pointer, or in the block */
	u64 generation; /* of glibc: the first one of vectors with the block */
	u32 kind;       /* enum tls_kind */
	u32 module;
};

/* By process id. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct tls_slot);
} tls_slots SECTION(".maps");

/* Returns the address of the variable of a thread, or 0: it has none yet. */
INLINE u64 context_variable(const struct tls_slot *slot, u64 thread_pointer)
{
	u64 vector, count, generation, block;
	if (slot->kind == TLS_STATIC)
		return thread_pointer + slot->offset;
	/* tcbhead_t.dtv of glibc, struct pthread.dtv of musl */
	if (read_user(&vector, sizeof(vector), (void *)(thread_pointer + 8)))
		return 0;
	u64 is_glibc = slot->kind == TLS_GLIBC;
	if (read_user(&count, sizeof(count), (void *)(is_glibc ? vector - 16 : vector)) || slot->module > count)
		return 0;
	if (is_glibc && (read_user(&generation, sizeof(generation), (void *)vector) || generation < slot->generation))
		return 0;
	if (read_user(&block, sizeof(block), (void *)(vector + slot->module * (is_glibc ? 16ULL : 8ULL))))
		return 0;
	return block && block != ~0ULL ? block + slot->offset : 0;
}

/* Copies the record of the current thread to `to`, which has room for CONTEXT_BYTES. Returns its
 * size, or 0: there is no valid record. A larger record is copied without attributes. */
INLINE u64 read_thread_context(u8 *to, u32 pid, u64 thread_pointer)
{
	struct {
		u64 ids[3];
		u8 valid, flags;
		u16 size;
		u32 unused;
	} header;
	u64 record;
	struct tls_slot *slot = map_lookup(&tls_slots, &pid);
	if (!slot)
		return 0;
	u64 variable = context_variable(slot, thread_pointer);
	if (!variable || read_user(&record, sizeof(record), (void *)variable) || !record)
		return 0;
	if (read_user(&header, CONTEXT_HEADER, (void *)record) || header.valid != 1)
		return 0;
	u64 size = header.size;
	if (size > CONTEXT_BYTES - CONTEXT_HEADER)
		size = 0;
	size += CONTEXT_HEADER;
	return read_user(to, size, (void *)record) ? 0 : size;
}

#endif
