// SPDX-License-Identifier: GPL-2.0
/*
 * Calibrates the kernel's clock again on request. Some seconds after boot, the kernel measures the
 * rate of the time-stamp counter for perf's clock (tsc_refine_calibration_work).
 */

#include "stand_in.h"

#include <linux/cpumask.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <asm/msr.h>
#include <asm/tsc.h>

/* Not exported to modules; from arch/x86/kernel/tsc.c. */
static void (*set_scale)(unsigned long khz, int cpu, unsigned long long now);

int find_clock(void)
{
	/* Never armed: used only for the address of the function. */
	struct kprobe probe = {
		.symbol_name = "set_cyc2ns_scale",
		.flags = KPROBE_FLAG_DISABLED,
	};
	int result = register_kprobe(&probe);

	if (result)
		return result;
	set_scale = (void *)probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

/* The written value becomes the counter's rate. */
static int khz_set(const char *text, const struct kernel_param *unused)
{
	unsigned long khz;
	u64 now;
	int cpu, result = kstrtoul(text, 10, &khz);

	if (result)
		return result;
	if (!khz || !set_scale)
		return -EINVAL;
	now = rdtsc_ordered();
	for_each_possible_cpu(cpu)
		set_scale(khz, cpu, now);
	return 0;
}

/* The rate that the kernel measured. */
static int khz_get(char *page, const struct kernel_param *unused)
{
	return sysfs_emit(page, "%u\n", tsc_khz);
}

static const struct kernel_param_ops khz_operations = {
	.set = khz_set,
	.get = khz_get,
};
module_param_cb(khz, &khz_operations, NULL, 0644);
