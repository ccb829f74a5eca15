/* Tail calls, direct and through a pointer: built with -O2 they are jumps into other functions. */
typedef int step(int value, int left);

static volatile int seed = 3;

__attribute__((noinline)) static int finish(int value, int left)
{
    return value + left + seed;
}

__attribute__((noinline)) static int twice(int value, int left);

__attribute__((noinline)) static int add(int value, int left)
{
    if (left == 0)
        return finish(value, left);
    return twice(value + seed, left - 1);
}

__attribute__((noinline)) static int twice(int value, int left)
{
    if (left == 0)
        return finish(value, left);
    return add(value * 2 % 1000, left - 1);
}

static step *volatile chosen[] = { add, twice, finish };

__attribute__((noinline)) static int dispatch(int value, int left)
{
    return chosen[left % 3](value, left);
}

int main(void)
{
    int total = 0;
    for (int i = 0; i < 12; i++)
        total += dispatch(i, i);
    return total > 0 ? 0 : 1;
}
