// SPDX-License-Identifier: GPL-2.0
/* The sysfs attributes of the PMU, and its valid configurations. */

#include "stand_in.h"

#include <linux/bits.h>
#include <linux/device.h>
#include <linux/perf_event.h>
#include <asm/tsc.h>

/* --- What the processor can do: the answers of CPUID leaf 14H of a Skylake client. --- */

struct capability {
	struct dev_ext_attribute attribute;
	unsigned int value;
};

static ssize_t capability_show(struct device *dev, struct device_attribute *attr, char *page)
{
	struct dev_ext_attribute *ext = container_of(attr, struct dev_ext_attribute, attr);

	return sysfs_emit(page, "%x\n", *(unsigned int *)ext->var);
}

#define CAPABILITY(_name, _value)						\
	static unsigned int cap_##_name = _value;				\
	static struct dev_ext_attribute cap_attr_##_name = {			\
		.attr = __ATTR(_name, 0444, capability_show, NULL),		\
		.var = &cap_##_name,						\
	}

CAPABILITY(max_subleaf, 1);
CAPABILITY(cr3_filtering, 1);
CAPABILITY(psb_cyc, 1);
CAPABILITY(ip_filtering, 1);
CAPABILITY(mtc, 1);
CAPABILITY(ptwrite, 0);
CAPABILITY(power_event_trace, 0);
CAPABILITY(event_trace, 0);
CAPABILITY(tnt_disable, 0);
CAPABILITY(topa_output, 1);
CAPABILITY(topa_multiple_entries, 1);
CAPABILITY(single_range_output, 1);
CAPABILITY(output_subsys, 0);
CAPABILITY(payloads_lip, 0);
CAPABILITY(num_address_ranges, 2);
CAPABILITY(mtc_periods, 0x249);
CAPABILITY(cycle_thresholds, 0x3fff);
CAPABILITY(psb_periods, 0x3f);

static struct attribute *capability_attrs[] = {
	&cap_attr_max_subleaf.attr.attr,
	&cap_attr_cr3_filtering.attr.attr,
	&cap_attr_psb_cyc.attr.attr,
	&cap_attr_ip_filtering.attr.attr,
	&cap_attr_mtc.attr.attr,
	&cap_attr_ptwrite.attr.attr,
	&cap_attr_power_event_trace.attr.attr,
	&cap_attr_event_trace.attr.attr,
	&cap_attr_tnt_disable.attr.attr,
	&cap_attr_topa_output.attr.attr,
	&cap_attr_topa_multiple_entries.attr.attr,
	&cap_attr_single_range_output.attr.attr,
	&cap_attr_output_subsys.attr.attr,
	&cap_attr_payloads_lip.attr.attr,
	&cap_attr_num_address_ranges.attr.attr,
	&cap_attr_mtc_periods.attr.attr,
	&cap_attr_cycle_thresholds.attr.attr,
	&cap_attr_psb_periods.attr.attr,
	NULL,
};

static const struct attribute_group capability_group = {
	.name = "caps",
	.attrs = capability_attrs,
};

/* --- The terms of an event's configuration: bits of IA32_RTIT_CTL (SDM volume 3). --- */

PMU_FORMAT_ATTR(pt, "config:0");
PMU_FORMAT_ATTR(cyc, "config:1");
PMU_FORMAT_ATTR(pwr_evt, "config:4");
PMU_FORMAT_ATTR(fup_on_ptw, "config:5");
PMU_FORMAT_ATTR(mtc, "config:9");
PMU_FORMAT_ATTR(tsc, "config:10");
PMU_FORMAT_ATTR(noretcomp, "config:11");
PMU_FORMAT_ATTR(ptw, "config:12");
PMU_FORMAT_ATTR(branch, "config:13");
PMU_FORMAT_ATTR(event, "config:31");
PMU_FORMAT_ATTR(notnt, "config:55");
PMU_FORMAT_ATTR(mtc_period, "config:14-17");
PMU_FORMAT_ATTR(cyc_thresh, "config:19-22");
PMU_FORMAT_ATTR(psb_period, "config:24-27");

static struct attribute *format_attrs[] = {
	&format_attr_pt.attr,
	&format_attr_cyc.attr,
	&format_attr_pwr_evt.attr,
	&format_attr_event.attr,
	&format_attr_notnt.attr,
	&format_attr_fup_on_ptw.attr,
	&format_attr_mtc.attr,
	&format_attr_tsc.attr,
	&format_attr_noretcomp.attr,
	&format_attr_ptw.attr,
	&format_attr_branch.attr,
	&format_attr_mtc_period.attr,
	&format_attr_cyc_thresh.attr,
	&format_attr_psb_period.attr,
	NULL,
};

static const struct attribute_group format_group = {
	.name = "format",
	.attrs = format_attrs,
};

/* The time-stamp counter runs at CRYSTAL * ratio; as many decimal places as a ratio over two. */
#define CRYSTAL_KHZ 24000

static ssize_t max_nonturbo_ratio_show(struct device *dev, struct device_attribute *attr, char *page)
{
	return sysfs_emit(page, "%u\n", tsc_khz / 100000);
}

static ssize_t tsc_art_ratio_show(struct device *dev, struct device_attribute *attr, char *page)
{
	return sysfs_emit(page, "%u:%u\n", tsc_khz * 2 / CRYSTAL_KHZ, 2);
}

static DEVICE_ATTR_RO(max_nonturbo_ratio);
static DEVICE_ATTR_RO(tsc_art_ratio);

static struct attribute *timing_attrs[] = {
	&dev_attr_max_nonturbo_ratio.attr,
	&dev_attr_tsc_art_ratio.attr,
	NULL,
};

static const struct attribute_group timing_group = {
	.attrs = timing_attrs,
};

const struct attribute_group *attr_groups[] = {
	&capability_group,
	&format_group,
	&timing_group,
	NULL,
};

#define CTL_CYC		BIT_ULL(1)
#define CTL_MTC		BIT_ULL(9)
#define CTL_TSC		BIT_ULL(10)
#define CTL_DISRETC	BIT_ULL(11)
#define CTL_BRANCH	BIT_ULL(13)
#define CTL_MTC_PERIOD	GENMASK_ULL(17, 14)
#define CTL_CYC_THRESH	GENMASK_ULL(22, 19)
#define CTL_PSB_PERIOD	GENMASK_ULL(27, 24)
#define CTL_KNOWN	(CTL_PASSTHROUGH | CTL_CYC | CTL_MTC | CTL_TSC | CTL_DISRETC | CTL_BRANCH | \
			 CTL_MTC_PERIOD | CTL_CYC_THRESH | CTL_PSB_PERIOD)

static bool among(u64 config, u64 field, unsigned int allowed, bool zero_is_free)
{
	unsigned int value = (config & field) >> __ffs64(field);

	return (zero_is_free && !value) || (allowed & BIT(value));
}

/* The real driver refuses unsupported settings of this processor with EINVAL. */
bool config_valid(u64 config)
{
	if (config & ~CTL_KNOWN)
		return false;
	if (!among(config, CTL_PSB_PERIOD, cap_psb_periods, true))
		return false;
	if (!among(config, CTL_CYC_THRESH, cap_cycle_thresholds, true))
		return false;
	if ((config & (CTL_MTC | CTL_MTC_PERIOD)) && !among(config, CTL_MTC_PERIOD, cap_mtc_periods, false))
		return false;
	/* The branch bit is honored only where the pt bit passes it through. */
	return (config & CTL_PASSTHROUGH) || !(config & CTL_BRANCH);
}

/* The number of address ranges for filters. */
unsigned int address_ranges(void)
{
	return cap_num_address_ranges;
}
