/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* A lower rate of samples than that of the timer.
 *
 * A thread keeps the timer that it inherited, and the kernel reports the first period of a timer
 * even after it was changed. So the timer stays. Of each stretch of time one sample is taken, at a
 * random place. It weighs the stretch. `profiler/src/thinning.rs` is the same for copies. */
#ifndef BACKTRAIL_THINNING_H
#define BACKTRAIL_THINNING_H

#include "kernel.h"

enum { PROGRAMS = 6 };

struct stretch {
	u64 length; /* 0: none has begun */
	u64 done;
	u64 pick; /* the place of the sample that is taken */
};

/* The wanted period of the events of a program, or 0. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, PROGRAMS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} periods SECTION(".maps");

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, PROGRAMS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct stretch);
} stretches SECTION(".maps");

INLINE void begin_stretch(struct stretch *stretch, u64 length)
{
	stretch->length = length;
	stretch->pick = ((u64)random() * length) >> 32;
}

/* Returns the weight of a sample of a program whose timer has a period, or 0 if it is not taken. */
INLINE u64 thinned(u64 period, u32 program)
{
	u64 *wanted = map_lookup(&periods, &program);
	struct stretch *stretch = map_lookup(&stretches, &program);
	if (!wanted || !stretch)
		return period;
	if (!stretch->length) {
		if (*wanted <= period)
			return period;
		stretch->done = 0;
		begin_stretch(stretch, *wanted);
	}
	u64 end = stretch->done + period, weight = 0;
	if (stretch->pick >= stretch->done && stretch->pick < end)
		weight = stretch->length;
	if (end >= stretch->length) {
		end -= stretch->length;
		/* The rest of the period is the start of the next stretch, or counts whole. */
		if (*wanted <= period) {
			stretch->length = 0;
			return weight + end;
		}
		begin_stretch(stretch, *wanted);
		if (stretch->pick < end)
			weight += stretch->length;
	}
	stretch->done = end;
	return weight;
}

#endif
