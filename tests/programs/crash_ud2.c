/* SIGILL: a point that was thought unreachable. */
static volatile int color = 4;

__attribute__((noinline)) static int pick(int which)
{
    switch (which) {
    case 0: return 10;
    case 1: return 20;
    default: __builtin_trap();
    }
}

int main(void)
{
    return pick(color % 2) + pick(color);
}
