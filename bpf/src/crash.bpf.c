// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The crash probe: writes one record to a ring for each process that a signal kills by its
 * default action.
 *
 * There is one program for each way of attaching, and user space attaches one of them. They
 * differ only in their arguments. The tracepoint signal_deliver runs in the dying thread with its
 * signal lock held and interrupts off. No program may sleep. Only the helper for build ids, in
 * stack_of, may take the address space lock (kernel/bpf/stackmap.c returns only addresses to a
 * second one).
 */
#include "crash_event.h"

char permission[] SECTION("license") = "Dual MIT/GPL";

/* Set before the object is loaded. */
const volatile u64 signals = 0;      /* bit N-1: signal N is traced */
const volatile u32 stack_chunks = 0; /* the number of stack chunks to read */
const volatile u32 only = 0;         /* the only process to trace; 0: all */

/* Identifies a process: ids are reused, but not with the same start time. */
struct process {
	u64 started;
	u64 pid;
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries, 1 << 20);
} crashes SECTION(".maps");

/* The number of records dropped because the ring was full. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} lost SECTION(".maps");

/* Processes that are not traced. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 64);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u8);
} spared SECTION(".maps");

/* Processes that are already recorded: several threads may crash, or be killed by the crash of
 * another. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(key, struct process);
	MAP_TYPE(value, u8);
} recorded SECTION(".maps");

INLINE void count_lost(void)
{
	u32 zero = 0;
	u64 *count = map_lookup(&lost, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Returns the id of a struct pid in its own namespace, and the inode of that namespace. */
INLINE u32 innermost(struct pid *pid, u32 *namespace)
{
	u32 level = READ(pid, level) & 31;
	struct upid *own = (void *)&pid->numbers + (u64)level * SIZE_IN_KERNEL(struct upid);
	struct pid_namespace *at = READ(own, ns);
	*namespace = READ(at, ns.inum);
	return READ(own, nr);
}

INLINE void fill_identity(struct crash_event *event, struct task_struct *task, struct signal_struct *signal,
			  u64 ids)
{
	u32 namespace;
	event->pid = ids >> 32;
	event->tid = (u32)ids;
	event->inner_pid = innermost(READ(signal, pids[PIDTYPE_TGID]), &namespace);
	event->inner_tid = innermost(READ(task, thread_pid), &namespace);
	event->pid_namespace = namespace;
	struct nsproxy *proxy = READ(task, nsproxy);
	struct mnt_namespace *mounts = READ(proxy, mnt_ns);
	event->mount_namespace = READ(mounts, ns.inum);
	/* Not by READ: an unreadable id must not become that of root. */
	struct cred *credentials = READ(task, real_cred);
	if (read_kernel(&event->user, sizeof(event->user), &credentials->uid.val))
		event->user = NO_USER;
	if (read_kernel(&event->effective_user, sizeof(event->effective_user), &credentials->euid.val))
		event->effective_user = NO_USER;
	event->cgroup = current_cgroup();
	current_comm(event->comm, sizeof(event->comm));
}

INLINE void fill_registers(struct crash_event *event, struct task_struct *task)
{
	read_kernel(event->registers, sizeof(event->registers), user_registers(task));
	event->fs_base = READ(task, thread.fsbase);
	event->gs_base = READ(task, thread.gsbase);
	event->ds = READ(task, thread.ds);
	event->es = READ(task, thread.es);
	event->fs = READ(task, thread.fsindex);
	event->gs = READ(task, thread.gsindex);
	event->fault_address = READ(task, thread.cr2);
	event->fault_trap = READ(task, thread.trap_nr);
}

/* Records that signal `number` kills the current process, unless it is not traced or already
 * recorded. */
static __attribute__((noinline)) int death(void *context, u32 number, const void *info, u64 errno_code,
					    u32 siginfo_parts)
{
	u64 ids = current_ids();
	u32 pid = ids >> 32;
	if (only && pid != only)
		return 0;
	if (map_lookup(&spared, &pid))
		return 0;
	struct task_struct *task = current_task();
	if (READ(task, flags) & (PF_KTHREAD | PF_IO_WORKER))
		return 0;
	struct signal_struct *signal = READ(task, signal);
	u32 flags = READ(signal, flags);
	if (number == SIGKILL) {
		/* complete_signal() in kernel/signal.c sends a signal without a core to every thread as SIGKILL.
		 * The exit code is its number. exit_group() has no number, and execve() no flag. */
		if (!(flags & SIGNAL_GROUP_EXIT))
			return 0;
		number = READ(signal, group_exit_code) & 0x7f;
		siginfo_parts = SIGINFO_NUMBER;
	} else if (flags & SIGNAL_UNKILLABLE) {
		/* The init process of a pid namespace. A fault clears the flag before its signal is delivered. */
		return 0;
	}
	if (number < 1 || number > SIGNALS || !((signals >> (number - 1)) & 1))
		return 0;

	struct task_struct *leader = READ(task, group_leader);
	struct process process = { .started = READ(leader, start_boottime), .pid = pid };
	u8 yes = 1;
	/* As an int: before Linux 6.4 the upper half of the result is not sign extended. */
	if ((int)map_update(&recorded, &process, &yes, UPDATE_NOEXIST) == -EEXIST)
		return 0;

	u32 chunks = stack_chunks;
	if (chunks > MAX_CHUNKS)
		chunks = MAX_CHUNKS;
	EMIT_TYPE(struct crash_event);
	struct crash_event *event = ring_reserve(&crashes, sizeof(*event) + chunks * CHUNK, 0);
	if (!event) {
		count_lost();
		return 0;
	}
	event->at = monotonic_now();
	event->at_boot = boottime_now();
	event->started = process.started;
	event->cpu = current_cpu();
	event->siginfo_parts = siginfo_parts;
	__builtin_memset(event->siginfo, 0, sizeof(event->siginfo));
	if (siginfo_parts == SIGINFO_ALL) {
		/* The layout is that of user space (include/linux/signal_types.h). */
		read_kernel(event->siginfo, sizeof(event->siginfo), info);
	} else {
		event->siginfo[0] = number;
		event->siginfo[1] = (u32)errno_code;
		event->siginfo[2] = errno_code >> 32;
	}
	fill_identity(event, task, signal, ids);
	fill_registers(event, task);
	event->frames_len = stack_of(context, event->frames, sizeof(event->frames), STACK_USER | STACK_BUILD_ID);

	/* Start at the chunk of the stack pointer. No chunk crosses a page. Stop at the first chunk that
	 * is not in memory. */
	u64 at = event->registers[REGISTER_SP] & ~(u64)(CHUNK - 1);
	u32 len = 0;
	u8 *stack = (u8 *)(event + 1);
	event->stack_at = at;
	for (u32 chunk = 0; chunk < MAX_CHUNKS; chunk++) {
		if (chunk >= chunks || read_user(stack + chunk * CHUNK, CHUNK, (void *)(at + chunk * CHUNK)))
			break;
		len += CHUNK;
	}
	event->stack_len = len;
	ring_submit(event, RING_FORCE_WAKEUP);
	return 0;
}

INLINE int is_traced(u64 number)
{
	/* Any other fatal signal may arrive as SIGKILL. */
	return number >= 1 && number <= SIGNALS && (((signals >> (number - 1)) & 1) || number == SIGKILL);
}

/* include/trace/events/signal.h:
 * TP_PROTO(int sig, struct kernel_siginfo *info, struct k_sigaction *ka) */
INLINE int deliver(u64 *arguments)
{
	u32 number = (u32)arguments[0];
	struct k_sigaction *action = (void *)arguments[2];
	if (!is_traced(number) || READ(action, sa.sa_handler))
		return 0;
	return death(arguments, number, (void *)arguments[1], 0, SIGINFO_ALL);
}

SECTION("tp_btf/signal_deliver") int btf_tracepoint(u64 *arguments)
{
	return deliver(arguments);
}

SECTION("raw_tp/signal_deliver") int raw_tracepoint(u64 *arguments)
{
	return deliver(arguments);
}

/* events/signal/signal_deliver/format in tracefs, after the eight common bytes. */
struct signal_deliver {
	u64 common;
	s32 sig, errno_, code, gap;
	u64 sa_handler, sa_flags;
};

SECTION("tracepoint/signal/signal_deliver") int tracepoint(struct signal_deliver *event)
{
	u32 number = event->sig;
	if (!is_traced(number) || event->sa_handler)
		return 0;
	u64 errno_code = (u64)(u32)event->code << 32 | (u32)event->errno_;
	return death(event, number, 0, errno_code, SIGINFO_CODE);
}

/* void vfs_coredump(const kernel_siginfo_t *), before Linux 6.17 do_coredump(): called for fatal
 * signals that dump core. The first member of its argument is si_signo. */
INLINE int dump(void *context, const void *info)
{
	u32 number = 0;
	read_kernel(&number, sizeof(number), info);
	return death(context, number, info, 0, SIGINFO_ALL);
}

SECTION("fentry/vfs_coredump") int fentry(u64 *arguments)
{
	return dump(arguments, (void *)arguments[0]);
}

SECTION("kprobe/vfs_coredump") int kprobe(u64 *registers)
{
	return dump(registers, (void *)registers[REGISTER_DI]);
}
