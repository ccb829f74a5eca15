/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stand-in for the Intel PT driver. TEST ONLY: the module is loaded into the virtual
 * machine of `cargo xtask test-vm`, and must never be loaded into another machine.
 * Backtrail does not ship it.
 *
 * The module registers a PMU named "intel_pt", which looks to user space like that of
 * arch/x86/events/intel/pt.c. The PMU has the same format terms, capabilities, AUX
 * buffers in full-trace and in snapshot mode, exclusiveness, and address filters. The
 * bytes come from /dev/intel_pt_feed, not from a processor. A test writes recorded
 * packets for a task there, cut where the task left user code. Each piece is appended to
 * the AUX buffer of the task's processor at the same moment: a system call, a fault,
 * or the task's end.
 */

#pragma once

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/types.h>

struct attribute_group;

/* attributes.c: sysfs attributes, and the check of a configuration. */
extern const struct attribute_group *attr_groups[];
bool config_valid(u64 config);
unsigned int address_ranges(void);
#define CTL_PASSTHROUGH	BIT_ULL(0)

/* clock.c: the calibration of perf's clock. */
int find_clock(void);

/* pmu.c: the events, and the AUX buffers that they write. */
int register_pmu(void);
void unregister_pmu(void);
/* Appends to this processor's trace, with interrupts off. Returns the number of lost bytes. */
unsigned long append(const u8 *bytes, unsigned long length);

/* feed.c: the packets of tasks. */
int register_feed(void);
void unregister_feed(void);
/* The current task leaves user code: feeds its next piece, or all that are left. */
void feed_current(bool all);
/* A task's own instructions begin now. Code before them is not in the recording. */
void feed_starts(pid_t task);
