/* SIGSEGV: a write through NULL, three calls deep. */
static volatile int depth = 3;

__attribute__((noinline)) static void store(int *where, int value)
{
    *where = value;
}

__attribute__((noinline)) static void descend(int *where, int left)
{
    if (left > 0)
        descend(where, left - 1);
    else
        store(where, 42);
    depth = left;
}

int main(void)
{
    int good = 0;
    descend(&good, depth);
    descend(good == 42 ? (int *)0 : &good, 2);
    return 0;
}
