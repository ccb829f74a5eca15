/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The record of a crash in the ring; `event.rs` is the same in Rust, and a test compares the two. */
#ifndef BACKTRAIL_CRASH_EVENT_H
#define BACKTRAIL_CRASH_EVENT_H

#include "kernel.h"

enum {
	/* Words of struct pt_regs. */
	REGISTERS = 21,
	/* Where in them: rdi, the first argument of a kernel function, and rsp. */
	REGISTER_DI = 14,
	REGISTER_SP = 19,
	/* Words of struct kernel_siginfo; the other 80 bytes of siginfo_t are zero. */
	SIGINFO = 12,
	FRAMES = 32,
	/* The stack is read in pieces that never cross a page. */
	CHUNK = 512,
	MAX_CHUNKS = 32,
};

/* How much of the signal's siginfo was to be had. */
enum { TOLD_NUMBER = 0, TOLD_CODE = 1, TOLD_ALL = 2 };

/* An id that no user has (setresuid(2)). */
enum { NO_USER = -1 };

/* struct bpf_stack_build_id */
struct frame {
	s32 status;
	u8 build_id[20];
	u64 offset;
};

struct crash_event {
	u64 at;      /* CLOCK_MONOTONIC, ns */
	u64 at_boot; /* CLOCK_BOOTTIME, ns */
	u64 started; /* the process, CLOCK_BOOTTIME, ns */
	u64 cgroup;
	u64 stack_at;
	u64 fs_base, gs_base;
	u64 fault_address, fault_trap; /* of the thread's last fault, however long ago */
	u64 registers[REGISTERS];      /* struct pt_regs */
	u32 pid, tid, inner_pid, inner_tid;
	u32 pid_namespace, mount_namespace;
	/* The thread's real and effective user, in the first user namespace; NO_USER: unknown. */
	u32 user, effective_user;
	u32 cpu;
	u32 told;
	u32 stack_len;  /* bytes that follow this head and are true */
	s32 frames_len; /* bytes, or a negative error */
	u16 ds, es, fs, gs;
	u8 comm[16];
	s32 siginfo[SIGINFO];
	struct frame frames[FRAMES];
};

#endif
