// SPDX-License-Identifier: GPL-2.0
/* Where tasks leave user code: the module's hooks in the kernel, and the module itself. */

#include "stand_in.h"

#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>

static void on_exec(void *data, struct task_struct *task, pid_t old, struct linux_binprm *binary)
{
	feed_starts(task->pid);
}

static void on_syscall(void *data, struct pt_regs *regs, long number)
{
	feed_current(false);
}

/* A fault: the running task gets a signal. Signals that it sends to itself are system calls. */
static void on_signal(void *data, int signal, struct kernel_siginfo *info, struct task_struct *task,
		      int group, int result)
{
	/* SEND_SIG_NOINFO and SEND_SIG_PRIV are no addresses. */
	bool told = (unsigned long)info > (unsigned long)SEND_SIG_PRIV;

	if (task == current && told && info->si_code > 0)
		feed_current(true);
}

static void on_exit_of_task(void *data, struct task_struct *task)
{
	feed_current(true);
}

/* Modules find tracepoints by name. */
static struct hook {
	const char *name;
	void *function;
	struct tracepoint *point;
} hooks[] = {
	{ "sched_process_exec", on_exec },
	{ "sys_enter", on_syscall },
	{ "signal_generate", on_signal },
	{ "sched_process_exit", on_exit_of_task },
};

static void find_hook(struct tracepoint *point, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!strcmp(point->name, hooks[i].name))
			hooks[i].point = point;
}

static void unhook(int count)
{
	while (count--)
		tracepoint_probe_unregister(hooks[count].point, hooks[count].function, NULL);
	tracepoint_synchronize_unregister();
}

static int __init stand_in_init(void)
{
	int i, result = find_clock();

	if (result) {
		pr_err("the kernel's clock cannot be calibrated (%d)\n", result);
		return result;
	}
	for_each_kernel_tracepoint(find_hook, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		result = hooks[i].point ?
			tracepoint_probe_register(hooks[i].point, hooks[i].function, NULL) : -ENOENT;
		if (result) {
			pr_err("no tracepoint %s\n", hooks[i].name);
			unhook(i);
			return result;
		}
	}
	result = register_pmu();
	if (result)
		goto fail;
	result = register_feed();
	if (result) {
		unregister_pmu();
		goto fail;
	}
	return 0;
fail:
	unhook(ARRAY_SIZE(hooks));
	return result;
}

static void __exit stand_in_exit(void)
{
	unregister_feed();
	unregister_pmu();
	unhook(ARRAY_SIZE(hooks));
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TEST ONLY: a stand-in for Intel PT that plays recorded packets");
