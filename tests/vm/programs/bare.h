// System calls for programs without a C library. They do not depend on the processor or kernel
// version, so a program makes the same system calls in the same order on every machine.
#pragma once

static inline long call(long number, long one, long two, long three)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(one), "S"(two), "d"(three)
                     : "rcx", "r11", "memory");
    return result;
}

enum { WRITE = 1, GETPID = 39, EXIT_GROUP = 231, SCHED_SETAFFINITY = 203, SCHED_YIELD = 24 };

// Runs on one processor without leaving it: history that a decoder finds again.
__attribute__((noinline)) static unsigned long mix(unsigned long value, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        if (value & 1)
            value = value * 6364136223846793005ul + 1442695040888963407ul;
        else
            value = (value >> 1) ^ (value << 7);
        if (value % 5 == 0)
            value += round;
    }
    return value;
}

// The compiler must not know its value.
static unsigned long *volatile nowhere = (unsigned long *)8;
