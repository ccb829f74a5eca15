/* Writes so much trace, by calls through pointers, that only its end is decoded first; crashes. */
#include <stddef.h>

static unsigned add(unsigned value)
{
    return value + 1013904223;
}

static unsigned multiply(unsigned value)
{
    return value * 1664525;
}

static unsigned (*volatile steps[2])(unsigned) = {add, multiply};

__attribute__((noinline)) static unsigned first(unsigned value)
{
    return steps[0](value);
}

int main(void)
{
    volatile unsigned value = first(1);
    for (unsigned round = 0; round < 4000000; round++)
        value = steps[round & 1](value);
    *(volatile unsigned *)NULL = value;
    return 0;
}
