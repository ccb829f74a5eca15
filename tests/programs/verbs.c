/* What GDB's verbs are compared on: loops, recursion, a callback, several statements on a line, a tail call and an
 * inlined function, in few instructions, up to a crash (SIGSEGV). Built with -O0 and with -O2. */
static volatile int seed = 3;
static volatile int noise;
static int *volatile hole;

struct pair {
    int first;
    int second;
};

__attribute__((noinline)) static int factorial(int n)
{
    if (n <= 1)
        return 1;
    return n * factorial(n - 1);
}

__attribute__((always_inline)) static inline int clamp(int value, int limit)
{
    if (value > limit)
        value = limit;
    noise += value;
    return value;
}

__attribute__((noinline)) static int leaf(int value)
{
    noise++;
    return value + seed;
}

__attribute__((noinline)) static int jump(int value)
{
    noise += 2;
    return leaf(value * 2);
}

__attribute__((noinline)) static int apply(int (*function)(int), int count)
{
    int total = 0;
    for (int i = 0; i < count; i++)
        total += function(i);
    return total;
}

__attribute__((noinline)) static int crowded(int value)
{
    int a = leaf(value); int b = leaf(a); noise = a + b;
    if (value > 2) noise = a; else noise = b;
    while (value > 0) value--, noise++;
    return leaf(
        leaf(a) +
        leaf(b));
}

__attribute__((noinline)) static int bounded(int value)
{
    int low = clamp(value, 10);
    int high = clamp(value * 100, 20);
    return low + high;
}

__attribute__((noinline)) static int store(struct pair *pair, int value)
{
    pair->first = value;
    pair->second = *hole;
    return pair->first;
}

int main(void)
{
    struct pair pair = { 1, 2 };
    int total = factorial(4);
    total += apply(jump, 3);
    total += apply(leaf, 2);
    total += crowded(seed);
    total += bounded(seed);
    total += store(&pair, total);
    return total;
}
