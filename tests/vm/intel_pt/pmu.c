// SPDX-License-Identifier: GPL-2.0
/* The PMU's events, and the AUX buffer that one writes on a processor. */

#include "stand_in.h"

#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/slab.h>

struct aux_buffer {
	void **pages;
	unsigned long size;
	bool snapshot;
	/* The next byte is written here: in snapshot mode, an offset below the size. */
	unsigned long head;
	/* Full-trace mode: bytes since perf_aux_output_begin. */
	unsigned long written;
};

/* A test's request: flags (PERF_AUX_FLAG_*) of the next transaction that ends, on any processor. */
static unsigned long flags_wanted;
module_param_named(flags, flags_wanted, ulong, 0644);

struct context {
	struct perf_output_handle handle;
	/* Whether bytes are taken: between start and stop. Read and written with interrupts off. */
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
 * Ends a transaction. In snapshot mode, user space sees an offset into the buffer as the head. The
 * size is that of the whole buffer, even if it was never filled (pt_event_stop).
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

/* Does the same as intel_pt_interrupt when a region is full. */
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

unsigned long append(const u8 *bytes, unsigned long length)
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
	/* perf_event_itrace_started, which is not exported to modules. */
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

/* Filters are checked and have no effect: the packets were recorded without them. */
static int addr_filters_validate(struct list_head *filters)
{
	struct perf_addr_filter *filter;
	unsigned int ranges = 0;

	list_for_each_entry(filter, filters, entry) {
		if (!filter->size || filter->action == PERF_ADDR_FILTER_ACTION_START)
			return -EOPNOTSUPP;
		if (++ranges > address_ranges())
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

int register_pmu(void)
{
	pmu.nr_addr_filters = address_ranges();
	return perf_pmu_register(&pmu, "intel_pt", -1);
}

void unregister_pmu(void)
{
	perf_pmu_unregister(&pmu);
}
