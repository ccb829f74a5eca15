/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/*
 * The kernel declarations that our eBPF programs need.
 *
 * Structs under `preserve_access_index` declare only the members that are read. A loader replaces
 * each offset by that of the running kernel's BTF (CO-RE), so order and distance mean nothing here.
 * READ reads members with helpers, because kernels 6.1 and 6.12 reject dereferences that 6.18
 * accepts.
 *
 * Helper numbers and fixed layouts: include/uapi/linux/bpf.h, arch/x86/include/uapi/asm/ptrace.h.
 */
#ifndef BACKTRAIL_KERNEL_H
#define BACKTRAIL_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* A map, in the notation that loaders read from BTF. */
#define MAP_UINT(name, value) int (*name)[value]
#define MAP_TYPE(name, type) type *name

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERF_EVENT_ARRAY = 4,
	MAP_PERCPU_ARRAY = 6,
	MAP_LRU_HASH = 9,
	MAP_RINGBUF = 27,
};
enum { UPDATE_ANY = 0, UPDATE_NOEXIST = 1 };
enum { RING_NO_WAKEUP = 1, RING_FORCE_WAKEUP = 2 };
/* The bytes of a ring that are not read yet. */
enum { RING_AVAILABLE = 0 };
enum { STACK_USER = 1 << 8, STACK_BUILD_ID = 1 << 11 };
enum { EEXIST = 17, ENOSPC = 28 };
#define THIS_CPU 0xffffffffULL

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const monotonic_now)(void) = (void *)5;
static u32 (*const random)(void) = (void *)7;
static u32 (*const current_cpu)(void) = (void *)8;
static u64 (*const current_ids)(void) = (void *)14;
static long (*const current_comm)(void *to, u32 size) = (void *)16;
static long (*const event_output)(void *context, void *map, u64 flags, const void *data,
				  u64 size) = (void *)25;
static long (*const stack_of)(void *context, void *to, u32 size, u64 flags) = (void *)67;
static u64 (*const current_cgroup)(void) = (void *)80;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*const boottime_now)(void) = (void *)125;
static void *(*const ring_reserve)(void *map, u64 size, u64 flags) = (void *)131;
static void (*const ring_submit)(void *record, u64 flags) = (void *)132;
static u64 (*const ring_query)(void *map, u64 flags) = (void *)134;
static struct task_struct *(*const current_task)(void) = (void *)158;
static u64 (*const attach_cookie)(void *context) = (void *)174;
static void *(*const user_registers)(struct task_struct *task) = (void *)175;
static long (*const loop)(u32 count, void *function, void *context, u64 flags) = (void *)181;

/* Reads a member of a kernel struct, or zero if it cannot be read. */
#define READ(pointer, member)                                                                          \
	({                                                                                             \
		__typeof__((pointer)->member) value_;                                                  \
		read_kernel(&value_, sizeof(value_), &(pointer)->member);                              \
		value_;                                                                                \
	})

/* The size of a type in the running kernel. */
#define SIZE_IN_KERNEL(type) __builtin_preserve_type_info(*(type *)0, 1)
/* Adds a type to the BTF of the object, where a test reads its layout. */
#define EMIT_TYPE(type) asm volatile("" ::"r"(__builtin_btf_type_id(*(type *)0, 0)))

/* include/linux/sched.h */
enum { PF_IO_WORKER = 0x10, PF_USER_WORKER = 0x4000, PF_KTHREAD = 0x00200000 };
/* include/linux/sched/signal.h */
enum { SIGNAL_GROUP_EXIT = 0x4, SIGNAL_UNKILLABLE = 0x40 };
/* include/linux/pid.h: enum pid_type */
enum { PIDTYPE_TGID = 1 };
enum { SIGKILL = 9, SIGNALS = 64 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	u32 inum;
};
struct pid_namespace {
	struct ns_common ns;
};
struct mnt_namespace {
	struct ns_common ns;
};
struct nsproxy {
	struct mnt_namespace *mnt_ns;
};
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	u32 level;
	struct upid numbers[1];
};
struct signal_struct {
	u32 flags;
	int group_exit_code;
	struct pid *pids[4];
};
typedef struct {
	u32 val;
} kuid_t;
struct cred {
	kuid_t uid, euid;
};
struct thread_struct {
	u16 es, ds, fsindex, gsindex;
	unsigned long fsbase, gsbase;
	unsigned long cr2, trap_nr;
};
struct task_struct {
	u32 flags;
	u64 start_boottime;
	u64 self_exec_id;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct cred *real_cred;
	struct nsproxy *nsproxy;
	struct signal_struct *signal;
	struct thread_struct thread;
};
struct sigaction {
	void *sa_handler;
};
struct k_sigaction {
	struct sigaction sa;
};

#pragma clang attribute pop

#endif
