// SPDX-License-Identifier: GPL-2.0
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

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/msr.h>
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

static const struct attribute_group *attr_groups[] = {
	&capability_group,
	&format_group,
	&timing_group,
	NULL,
};

#define CTL_PASSTHROUGH	BIT_ULL(0)
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

/* What this processor refuses, the real driver refuses with EINVAL. */
static bool config_valid(u64 config)
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

/* --- An AUX buffer, and the event that writes it on a processor. --- */

struct aux_buffer {
	void **pages;
	unsigned long size;
	bool snapshot;
	/* The next byte is written here: an offset that stays below the size in snapshot mode. */
	unsigned long head;
	/* Full-trace mode: bytes since perf_aux_output_begin. */
	unsigned long written;
};

/* A test's wish: flags (PERF_AUX_FLAG_*) of the next transaction that ends, on whichever processor. */
static unsigned long flags_wanted;
module_param_named(flags, flags_wanted, ulong, 0644);

struct context {
	struct perf_output_handle handle;
	/* Bytes are taken: between start and stop. Read and written with interrupts off. */
	bool tracing;
};

static DEFINE_PER_CPU(struct context, contexts);

static void *setup_aux(struct perf_event *event, void **pages, int nr_pages, bool snapshot)
{
	struct aux_buffer *buffer;

	if (!nr_pages)
		return NULL;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return NULL;
	buffer->pages = pages;
	buffer->size = (unsigned long)nr_pages << PAGE_SHIFT;
	buffer->snapshot = snapshot;
	return buffer;
}

static void free_aux(void *data)
{
	kfree(data);
}

/* Begins an AUX transaction where the last one ended. */
static bool begin_output(struct context *context, struct perf_event *event)
{
	struct aux_buffer *buffer = perf_aux_output_begin(&context->handle, event);

	if (!buffer)
		return false;
	buffer->head = context->handle.head & (buffer->size - 1);
	buffer->written = 0;
	if (!buffer->snapshot && !context->handle.size) {
		perf_aux_output_flag(&context->handle, PERF_AUX_FLAG_TRUNCATED);
		perf_aux_output_end(&context->handle, 0);
		return false;
	}
	return true;
}

/*
 * Ends it. In snapshot mode the head that user space sees is an offset into the buffer, and the
 * size is the whole buffer's: nothing tells whether it was ever filled (pt_event_stop).
 */
static void end_output(struct context *context, struct aux_buffer *buffer)
{
	unsigned long size = buffer->written;

	if (buffer->snapshot) {
		context->handle.head = buffer->head;
		size = buffer->size;
	}
	buffer->written = 0;
	perf_aux_output_flag(&context->handle, xchg(&flags_wanted, 0));
	perf_aux_output_end(&context->handle, size);
}

/* What intel_pt_interrupt does when a region is full. */
static void next_output(struct context *context, struct aux_buffer *buffer)
{
	struct perf_event *event = context->handle.event;

	context->tracing = false;
	end_output(context, buffer);
	if (event->hw.state)
		return;
	if (!begin_output(context, event)) {
		event->hw.state = PERF_HES_STOPPED;
		return;
	}
	context->tracing = true;
}

static void copy_in(struct aux_buffer *buffer, const u8 *bytes, unsigned long length)
{
	while (length) {
		unsigned long offset = buffer->head & ~PAGE_MASK;
		unsigned long count = min(length, PAGE_SIZE - offset);

		memcpy(buffer->pages[buffer->head >> PAGE_SHIFT] + offset, bytes, count);
		buffer->head = (buffer->head + count) & (buffer->size - 1);
		buffer->written += count;
		bytes += count;
		length -= count;
	}
}

/* Appends to this processor's trace; interrupts are off. Gives how many bytes found no room. */
static unsigned long append(const u8 *bytes, unsigned long length)
{
	struct context *context = this_cpu_ptr(&contexts);
	struct aux_buffer *buffer;
	unsigned long count = length;

	if (!context->tracing)
		return length;
	buffer = perf_get_aux(&context->handle);
	if (!buffer)
		return length;
	if (buffer->snapshot) {
		copy_in(buffer, bytes, length);
		return 0;
	}
	if (count > context->handle.size - buffer->written)
		count = context->handle.size - buffer->written;
	copy_in(buffer, bytes, count);
	if (count < length)
		perf_aux_output_flag(&context->handle, PERF_AUX_FLAG_TRUNCATED);
	if (count < length || context->handle.head + buffer->written >= context->handle.wakeup)
		next_output(context, buffer);
	return length - count;
}

static void event_start(struct perf_event *event, int mode)
{
	struct context *context = this_cpu_ptr(&contexts);

	if (!begin_output(context, event)) {
		event->hw.state = PERF_HES_STOPPED;
		return;
	}
	/* perf_event_itrace_started, which modules are not given. */
	if (!event->hw.config) {
		WRITE_ONCE(event->attach_state, event->attach_state | PERF_ATTACH_ITRACE);
		event->hw.config = event->attr.config | CTL_PASSTHROUGH;
	}
	event->hw.state = 0;
	context->tracing = true;
}

static void event_stop(struct perf_event *event, int mode)
{
	struct context *context = this_cpu_ptr(&contexts);
	struct aux_buffer *buffer;

	context->tracing = false;
	if (event->hw.state == PERF_HES_STOPPED)
		return;
	event->hw.state = PERF_HES_STOPPED;
	if (!(mode & PERF_EF_UPDATE))
		return;
	buffer = perf_get_aux(&context->handle);
	if (!buffer || WARN_ON_ONCE(context->handle.event != event))
		return;
	end_output(context, buffer);
}

static void event_del(struct perf_event *event, int mode)
{
	event_stop(event, PERF_EF_UPDATE);
}

static int event_add(struct perf_event *event, int mode)
{
	struct context *context = this_cpu_ptr(&contexts);

	if (context->handle.event)
		return -EBUSY;
	if (!(mode & PERF_EF_START)) {
		event->hw.state = PERF_HES_STOPPED;
		return 0;
	}
	event_start(event, 0);
	return event->hw.state == PERF_HES_STOPPED ? -EINVAL : 0;
}

static void event_read(struct perf_event *event)
{
}

static struct pmu pmu;

static int event_init(struct perf_event *event)
{
	if (event->attr.type != pmu.type)
		return -ENOENT;
	return config_valid(event->attr.config) ? 0 : -EINVAL;
}

/* Filters are checked and then do nothing: what is fed was recorded without them. */
static int addr_filters_validate(struct list_head *filters)
{
	struct perf_addr_filter *filter;
	unsigned int ranges = 0;

	list_for_each_entry(filter, filters, entry) {
		if (!filter->size || filter->action == PERF_ADDR_FILTER_ACTION_START)
			return -EOPNOTSUPP;
		if (++ranges > cap_num_address_ranges)
			return -EOPNOTSUPP;
	}
	return 0;
}

static void addr_filters_sync(struct perf_event *event)
{
}

static struct pmu pmu = {
	.module			= THIS_MODULE,
	.capabilities		= PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
	.attr_groups		= attr_groups,
	.task_ctx_nr		= perf_sw_context,
	.event_init		= event_init,
	.add			= event_add,
	.del			= event_del,
	.start			= event_start,
	.stop			= event_stop,
	.read			= event_read,
	.setup_aux		= setup_aux,
	.free_aux		= free_aux,
	.addr_filters_validate	= addr_filters_validate,
	.addr_filters_sync	= addr_filters_sync,
};

/* --- The feed: what tasks will have executed. --- */

/* What is written to the device, once a piece: this, the places of TSC payloads, the packets. */
struct piece_header {
	__u32 task;
	/* How many bytes of packets. */
	__u32 length;
	/* How many 32-bit offsets of 7-byte TSC payloads in them, to be set to the time of feeding. */
	__u32 times;
	__u32 reserved;
};

#define TSC_PAYLOAD 7
#define MAX_LENGTH (16u << 20)
#define MAX_TIMES (1u << 20)

struct piece {
	struct list_head entry;
	u32 length, times;
	u32 *offsets;
	u8 *bytes;
};

struct feed {
	struct list_head entry;
	pid_t task;
	/* What comes before the program's own instructions is not in the recording. */
	bool started;
	struct list_head pieces;
	unsigned long fed_pieces, fed_bytes, lost_bytes, left_pieces;
};

static LIST_HEAD(feeds);
static DEFINE_RAW_SPINLOCK(feeds_lock);

static struct feed *find_feed(pid_t task)
{
	struct feed *feed;

	list_for_each_entry(feed, &feeds, entry)
		if (feed->task == task)
			return feed;
	return NULL;
}

/* Feeds the task's next piece, or all that are left. Pieces are freed when the device is closed. */
static void feed_current(bool all)
{
	struct feed *feed;
	unsigned long flags;

	/* Most tasks have none, and there is no lock to take for them. */
	if (list_empty(&feeds))
		return;
	raw_spin_lock_irqsave(&feeds_lock, flags);
	feed = find_feed(current->pid);
	while (feed && feed->started && feed->left_pieces) {
		struct piece *piece = list_first_entry(&feed->pieces, struct piece, entry);
		unsigned long lost;
		u32 i;

		for (i = 0; i < piece->times; i++) {
			u64 now = cpu_to_le64(rdtsc_ordered());

			memcpy(piece->bytes + piece->offsets[i], &now, TSC_PAYLOAD);
		}
		lost = append(piece->bytes, piece->length);
		feed->fed_pieces++;
		feed->left_pieces--;
		feed->fed_bytes += piece->length - lost;
		feed->lost_bytes += lost;
		list_move_tail(&piece->entry, &feed->pieces);
		if (!all)
			break;
	}
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
}

static void on_exec(void *data, struct task_struct *task, pid_t old, struct linux_binprm *binary)
{
	struct feed *feed;
	unsigned long flags;

	raw_spin_lock_irqsave(&feeds_lock, flags);
	feed = find_feed(task->pid);
	if (feed)
		feed->started = true;
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
}

static void on_syscall(void *data, struct pt_regs *regs, long number)
{
	feed_current(false);
}

/* A fault: the task gets a signal while it runs itself. What it sends itself was a system call. */
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

static void free_piece(struct piece *piece)
{
	kvfree(piece->offsets);
	kvfree(piece->bytes);
	kfree(piece);
}

static struct piece *read_piece(const struct piece_header *header, const char __user *from)
{
	struct piece *piece = kzalloc(sizeof(*piece), GFP_KERNEL);
	u32 i;

	if (!piece)
		return ERR_PTR(-ENOMEM);
	piece->length = header->length;
	piece->times = header->times;
	piece->offsets = kvcalloc(header->times + 1, sizeof(u32), GFP_KERNEL);
	piece->bytes = kvmalloc(header->length + 1, GFP_KERNEL);
	if (!piece->offsets || !piece->bytes) {
		free_piece(piece);
		return ERR_PTR(-ENOMEM);
	}
	if (copy_from_user(piece->offsets, from, header->times * sizeof(u32)) ||
	    copy_from_user(piece->bytes, from + header->times * sizeof(u32), header->length)) {
		free_piece(piece);
		return ERR_PTR(-EFAULT);
	}
	for (i = 0; i < piece->times; i++) {
		if (piece->length < TSC_PAYLOAD || piece->offsets[i] > piece->length - TSC_PAYLOAD) {
			free_piece(piece);
			return ERR_PTR(-EINVAL);
		}
	}
	return piece;
}

static ssize_t device_write(struct file *file, const char __user *from, size_t count, loff_t *offset)
{
	struct piece_header header;
	struct piece *piece;
	struct feed *feed, *fresh;
	unsigned long flags;

	if (count < sizeof(header))
		return -EINVAL;
	if (copy_from_user(&header, from, sizeof(header)))
		return -EFAULT;
	if (header.length > MAX_LENGTH || header.times > MAX_TIMES || header.reserved ||
	    count != sizeof(header) + header.times * sizeof(u32) + header.length)
		return -EINVAL;
	piece = read_piece(&header, from + sizeof(header));
	if (IS_ERR(piece))
		return PTR_ERR(piece);
	fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);
	if (!fresh) {
		free_piece(piece);
		return -ENOMEM;
	}
	fresh->task = header.task;
	INIT_LIST_HEAD(&fresh->pieces);

	raw_spin_lock_irqsave(&feeds_lock, flags);
	feed = find_feed(header.task);
	if (!feed) {
		feed = fresh;
		fresh = NULL;
		list_add_tail(&feed->entry, &feeds);
	}
	/* Before those that were fed and wait to be freed: they are none yet, or nothing can be added. */
	if (feed->fed_pieces) {
		raw_spin_unlock_irqrestore(&feeds_lock, flags);
		free_piece(piece);
		kfree(fresh);
		return -EBUSY;
	}
	list_add_tail(&piece->entry, &feed->pieces);
	feed->left_pieces++;
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
	kfree(fresh);
	return count;
}

/* Reading gives a line for each task: what was fed, what was lost, what is left. */
static int device_show(struct seq_file *out, void *unused)
{
	struct feed *feed;
	unsigned long flags;

	raw_spin_lock_irqsave(&feeds_lock, flags);
	list_for_each_entry(feed, &feeds, entry)
		seq_printf(out, "task %d pieces %lu bytes %lu lost %lu left %lu\n", feed->task, feed->fed_pieces,
			   feed->fed_bytes, feed->lost_bytes, feed->left_pieces);
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
	return 0;
}

static int device_open(struct inode *inode, struct file *file)
{
	return single_open(file, device_show, NULL);
}

/* Closing it forgets everything. */
static int device_release(struct inode *inode, struct file *file)
{
	struct feed *feed, *next_feed;
	struct piece *piece, *next_piece;
	unsigned long flags;
	LIST_HEAD(gone);

	raw_spin_lock_irqsave(&feeds_lock, flags);
	list_splice_init(&feeds, &gone);
	raw_spin_unlock_irqrestore(&feeds_lock, flags);
	list_for_each_entry_safe(feed, next_feed, &gone, entry) {
		list_for_each_entry_safe(piece, next_piece, &feed->pieces, entry)
			free_piece(piece);
		kfree(feed);
	}
	return single_release(inode, file);
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = device_write,
	.release = device_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "intel_pt_feed",
	.fops = &device_operations,
};

/* --- Where tasks leave user code. Modules find tracepoints by name. --- */

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
	int i, result;

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
	pmu.nr_addr_filters = cap_num_address_ranges;
	result = perf_pmu_register(&pmu, "intel_pt", -1);
	if (result)
		goto fail;
	result = misc_register(&device);
	if (result) {
		perf_pmu_unregister(&pmu);
		goto fail;
	}
	return 0;
fail:
	unhook(ARRAY_SIZE(hooks));
	return result;
}

static void __exit stand_in_exit(void)
{
	misc_deregister(&device);
	perf_pmu_unregister(&pmu);
	unhook(ARRAY_SIZE(hooks));
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("TEST ONLY: a stand-in for Intel PT that plays recorded packets");
