// Computes alternately on two processors, and crashes.
#include "bare.h"

__attribute__((noreturn, force_align_arg_pointer)) void _start(void)
{
    unsigned long value = 88172645463325252ul;
    for (unsigned turn = 0; turn < 9; turn++) {
        unsigned long processors = 1ul << (turn & 1);
        call(SCHED_SETAFFINITY, 0, sizeof processors, (long)&processors);
        value = mix(value, 300);
    }
    *nowhere = value;
    call(EXIT_GROUP, 0, 0, 0);
    __builtin_unreachable();
}
