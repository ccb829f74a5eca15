/* Calls one function a million times, then crashes, so that requests about all calls take long. */
#include <stddef.h>

__attribute__((noinline)) static unsigned step(unsigned value)
{
    return value * 1664525 + 1013904223;
}

int main(void)
{
    volatile unsigned value = 1;
    for (int round = 0; round < 1000000; round++)
        value = step(value);
    *(volatile unsigned *)NULL = value;
    return 0;
}
