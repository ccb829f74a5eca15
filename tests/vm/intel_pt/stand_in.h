/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stand-in for the Intel PT driver. TEST ONLY: it is loaded into the virtual machine of
 * `cargo xtask test-vm`, it is no part of what Backtrail ships, and it must never be loaded
 * into a machine that does anything else.
 *
 * It registers a PMU named "intel_pt" that looks from user space as the one of
 * arch/x86/events/intel/pt.c does (format terms, capabilities, AUX buffers in full-trace and in
 * snapshot mode, exclusiveness, address filters), with one difference: the bytes come from
 * /dev/intel_pt_feed, not from a processor. A test writes recorded packets for a task there,
 * cut where the task left user code. They are appended to the AUX buffer of the processor
 * that the task is on, each piece when the task leaves user code (a system call, a signal of
 * the processor's own making, its end), as the processor would have had them written by then.
 */

#pragma once

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/types.h>

struct attribute_group;

/* attributes.c: what sysfs tells, and what a configuration may be. */
extern const struct attribute_group *attr_groups[];
bool config_valid(u64 config);
unsigned int address_ranges(void);
#define CTL_PASSTHROUGH	BIT_ULL(0)

/* clock.c: perf's clock, calibrated anew. */
int find_clock(void);

/* pmu.c: the events, and the AUX buffers that they write. */
int register_pmu(void);
void unregister_pmu(void);
/* Appends to this processor's trace; interrupts are off. Gives how many bytes found no room. */
unsigned long append(const u8 *bytes, unsigned long length);

/* feed.c: what tasks will have executed. */
int register_feed(void);
void unregister_feed(void);
/* The current task leaves user code: its next piece is due, or all that are left. */
void feed_current(bool all);
/* What comes before a task's own instructions is not in the recording; they begin now. */
void feed_starts(pid_t task);
