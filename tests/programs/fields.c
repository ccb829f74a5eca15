// Crashes with bit fields and structures that the compiler keeps in pieces: in registers, as constants, not at all.
#include <stdint.h>

struct flags {
    unsigned low : 3;
    unsigned middle : 7;
    int signed_part : 6;
    unsigned high : 16;
};

struct wide {
    uint64_t first : 20;
    uint64_t second : 30;
    uint64_t third : 14;
};

struct pair {
    int x, y;
};

static volatile int sink;
static int *volatile nowhere;

__attribute__((noinline)) static int spread(unsigned n, unsigned m)
{
    struct flags flags;
    struct wide wide;
    struct pair pairs[2] = { { (int)n, 2 }, { 3, (int)m } };
    int table[4] = { (int)n, 5, (int)m, (int)(n + m) };
    flags.low = n & 5;
    flags.middle = m & 99;
    flags.signed_part = (int)(n % 20) - 13;
    flags.high = n * m;
    wide.first = n * 3;
    wide.second = m * 7;
    wide.third = n ^ m;
    int sum = 0;
    for (unsigned i = 0; i < flags.middle; i++) {
        sum += flags.low * i + flags.signed_part;
        sink = sum;
        flags.high += i;
        wide.second += sum;
        if (i == 20)
            *nowhere = sum + flags.high + wide.second + table[3];
    }
    return sum + flags.low + flags.high + wide.first + wide.third + pairs[0].x + pairs[1].y + table[2];
}

int main(int argc, char **argv)
{
    (void)argv;
    int result = spread(argc + 6, argc + 42);
    sink = result;
    return result + 1;
}
