/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The record of a crash in the ring. `event.rs` declares it in Rust, and a test compares both. */
#ifndef BACKTRAIL_CRASH_EVENT_H
#define BACKTRAIL_CRASH_EVENT_H

#include "kernel.h"

enum {
	/* The number of words in struct pt_regs. */
	REGISTERS = 21,
	/* The indexes of rdi, the first argument of a kernel function, and of rsp. */
	REGISTER_DI = 14,
	REGISTER_SP = 19,
	/* The number of words in struct kernel_siginfo. The other 80 bytes of siginfo_t are zero. */
	SIGINFO = 12,
	FRAMES = 32,
	/* The stack is read in chunks that never cross a page. */
	CHUNK = 512,
	MAX_CHUNKS = 32,
};

/* The parts of the signal's siginfo that are available. */
enum { SIGINFO_NUMBER = 0, SIGINFO_CODE = 1, SIGINFO_ALL = 2 };

/* The id of an unknown user, which no user has (setresuid(2)). */
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
	u64 started; /* start of the process, CLOCK_BOOTTIME, ns */
	u64 cgroup;
	u64 stack_at;
	u64 fs_base, gs_base;
	u64 fault_address, fault_trap; /* of the last fault of the thread, at any time */
	u64 registers[REGISTERS];      /* struct pt_regs */
	u32 pid, tid, inner_pid, inner_tid;
	u32 pid_namespace, mount_namespace;
	/* The real and effective user of the thread in the first user namespace, or NO_USER. */
	u32 user, effective_user;
	u32 cpu;
	u32 siginfo_parts;
	u32 stack_len;  /* valid bytes after this header */
	s32 frames_len; /* bytes, or a negative error */
	u16 ds, es, fs, gs;
	u8 comm[16];
	s32 siginfo[SIGINFO];
	struct frame frames[FRAMES];
};

#endif
