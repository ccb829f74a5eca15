/* SIGSEGV after long work, deep in calls that began before it: what a ring keeps of its history begins in the middle. */
#include <stdlib.h>

static int *volatile nowhere;
static volatile unsigned long total;

__attribute__((noinline)) static unsigned long mix(unsigned long value)
{
    for (int i = 0; i < 8; i++)
        value = value & 1 ? value / 2 ^ 0xedb88320 : value / 2;
    return value;
}

__attribute__((noinline)) static int compare(const void *one, const void *other)
{
    const int *left = one, *right = other;
    total += mix((unsigned)*left);
    return (*left > *right) - (*left < *right);
}

__attribute__((noinline)) static void round_of_work(int round)
{
    int numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = (int)mix((unsigned)(round * 64 + i));
    qsort(numbers, 64, sizeof *numbers, compare);
    total += (unsigned)numbers[32];
}

__attribute__((noinline)) static int serve(int rounds)
{
    for (int round = 0; round < rounds; round++)
        round_of_work(round);
    *nowhere = 1;
    return rounds;
}

__attribute__((noinline)) static int dispatch(int level, int rounds)
{
    int done = level == 0 ? serve(rounds) : dispatch(level - 1, rounds);
    total += (unsigned)done;
    return done;
}

int main(int argc, char **argv)
{
    (void)argv;
    return dispatch(3, 16 * argc) == 0;
}
