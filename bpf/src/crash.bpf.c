// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * The crash probe: one record in a ring for each process that a signal kills by its default action.
 *
 * There is a program for each way of attaching; user space attaches one of them. They differ in what the
 * kernel hands them and share everything else. The tracepoint signal_deliver runs in the dying thread with
 * its signal lock held and interrupts off: nothing here may sleep, and at most one helper may take the lock of
 * the address space (stack_of, for the build ids: kernel/bpf/stackmap.c gives only the addresses to a second).
 */
#include "crash_event.h"

char permission[] SECTION("license") = "Dual MIT/GPL";

/* Set before the object is loaded. */
const volatile u64 signals = 0;      /* bit N-1: signal N is looked at */
const volatile u32 stack_chunks = 0; /* how much of the stack is read, in chunks */
const volatile u32 only = 0;         /* the one process to look at; 0: all */

/* What a process is known by: ids come again, a start time with the same id does not. */
struct process {
	u64 started;
	u64 pid;
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries, 1 << 20);
} crashes SECTION(".maps");

/* Records for which the ring had no room. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} lost SECTION(".maps");

/* Processes that are left alone. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 64);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u8);
} spared SECTION(".maps");

/* Processes that are told of already: threads that crash together, or that are killed with the one that did. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(key, struct process);
	MAP_TYPE(value, u8);
} told_of SECTION(".maps");

INLINE void count_lost(void)
{
	u32 zero = 0;
	u64 *count = map_lookup(&lost, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
}

/* The id that a struct pid has in the namespace that it was made in; *namespace is that one's inode. */
INLINE u32 innermost(struct pid *pid, u32 *namespace)
{
	u32 level = READ(pid, level) & 31;
	struct upid *own = (void *)&pid->numbers + (u64)level * SIZE_IN_KERNEL(struct upid);
	struct pid_namespace *at = READ(own, ns);
	*namespace = READ(at, ns.inum);
	return READ(own, nr);
}

INLINE void tell_identity(struct crash_event *event, struct task_struct *task, struct signal_struct *signal, u64 ids)
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
	/* Not by READ: an id that cannot be read must not be that of root. */
	struct cred *credentials = READ(task, real_cred);
	if (read_kernel(&event->user, sizeof(event->user), &credentials->uid.val))
		event->user = NO_USER;
	if (read_kernel(&event->effective_user, sizeof(event->effective_user), &credentials->euid.val))
		event->effective_user = NO_USER;
	event->cgroup = current_cgroup();
	current_comm(event->comm, sizeof(event->comm));
}

INLINE void tell_registers(struct crash_event *event, struct task_struct *task)
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

/* Records the death of the current process by `number`, unless it is not wanted or already recorded. */
static __attribute__((noinline)) int death(void *context, u32 number, const void *info, u64 errno_code, u32 told)
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
		/* A signal that kills without a core goes to every thread as SIGKILL (complete_signal() in
		 * kernel/signal.c); its own number is the exit code. exit_group() has no number, execve() no flag. */
		if (!(flags & SIGNAL_GROUP_EXIT))
			return 0;
		number = READ(signal, group_exit_code) & 0x7f;
		told = TOLD_NUMBER;
	} else if (flags & SIGNAL_UNKILLABLE) {
		/* The first process of a pid namespace. A fault takes the flag from it before it is delivered. */
		return 0;
	}
	if (number < 1 || number > SIGNALS || !((signals >> (number - 1)) & 1))
		return 0;

	struct task_struct *leader = READ(task, group_leader);
	struct process process = { .started = READ(leader, start_boottime), .pid = pid };
	u8 yes = 1;
	/* As an int: before Linux 6.4 the upper half of the result is not its sign. */
	if ((int)map_update(&told_of, &process, &yes, UPDATE_NOEXIST) == -EEXIST)
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
	event->told = told;
	__builtin_memset(event->siginfo, 0, sizeof(event->siginfo));
	if (told == TOLD_ALL) {
		/* Its layout is that of user space (include/linux/signal_types.h). */
		read_kernel(event->siginfo, sizeof(event->siginfo), info);
	} else {
		event->siginfo[0] = number;
		event->siginfo[1] = (u32)errno_code;
		event->siginfo[2] = errno_code >> 32;
	}
	tell_identity(event, task, signal, ids);
	tell_registers(event, task);
	event->frames_len = stack_of(context, event->frames, sizeof(event->frames), STACK_USER | STACK_BUILD_ID);

	/* From the chunk that the stack pointer is in: no chunk crosses a page, and the first that is not in
	 * memory is the end. */
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

INLINE int is_looked_at(u64 number)
{
	/* Every other death may come as SIGKILL. */
	return number >= 1 && number <= SIGNALS && (((signals >> (number - 1)) & 1) || number == SIGKILL);
}

/* TP_PROTO(int sig, struct kernel_siginfo *info, struct k_sigaction *ka) in include/trace/events/signal.h */
INLINE int deliver(u64 *arguments)
{
	u32 number = (u32)arguments[0];
	struct k_sigaction *action = (void *)arguments[2];
	if (!is_looked_at(number) || READ(action, sa.sa_handler))
		return 0;
	return death(arguments, number, (void *)arguments[1], 0, TOLD_ALL);
}

SECTION("tp_btf/signal_deliver") int btf_tracepoint(u64 *arguments)
{
	return deliver(arguments);
}

SECTION("raw_tp/signal_deliver") int raw_tracepoint(u64 *arguments)
{
	return deliver(arguments);
}

/* events/signal/signal_deliver/format in tracefs, after the eight bytes that all have in common. */
struct signal_deliver {
	u64 common;
	s32 sig, errno_, code, gap;
	u64 sa_handler, sa_flags;
};

SECTION("tracepoint/signal/signal_deliver") int tracepoint(struct signal_deliver *event)
{
	u32 number = event->sig;
	if (!is_looked_at(number) || event->sa_handler)
		return 0;
	u64 errno_code = (u64)(u32)event->code << 32 | (u32)event->errno_;
	return death(event, number, 0, errno_code, TOLD_CODE);
}

/* void vfs_coredump(const kernel_siginfo_t *), before Linux 6.17 do_coredump(): called for the signals that dump
 * core, when they kill. Its first member is si_signo. */
INLINE int dump(void *context, const void *info)
{
	u32 number = 0;
	read_kernel(&number, sizeof(number), info);
	return death(context, number, info, 0, TOLD_ALL);
}

SECTION("fentry/vfs_coredump") int fentry(u64 *arguments)
{
	return dump(arguments, (void *)arguments[0]);
}

SECTION("kprobe/vfs_coredump") int kprobe(u64 *registers)
{
	return dump(registers, (void *)registers[REGISTER_DI]);
}
