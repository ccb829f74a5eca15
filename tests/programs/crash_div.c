/* SIGFPE: a division by zero after a few good ones. */
static volatile int divisor = 3, total;

__attribute__((noinline)) static int divide(int value, int by)
{
    return value / by;
}

int main(void)
{
    for (;; divisor--)
        total += divide(60, divisor);
}
