/* Recursion: direct and 120 deep (beyond the 64 return addresses that PT keeps), and mutual. */
__attribute__((noinline)) static unsigned sum(unsigned n)
{
    return n ? n + sum(n - 1) : 0;
}

__attribute__((noinline)) static unsigned ackermann(unsigned m, unsigned n)
{
    if (m == 0)
        return n + 1;
    return n ? ackermann(m - 1, ackermann(m, n - 1)) : ackermann(m - 1, 1);
}

static int is_odd(unsigned n);

__attribute__((noinline)) static int is_even(unsigned n)
{
    return n ? is_odd(n - 1) : 1;
}

__attribute__((noinline)) static int is_odd(unsigned n)
{
    return n ? is_even(n - 1) : 0;
}

int main(void)
{
    return sum(120) == 7260 && ackermann(2, 3) == 9 && is_even(30) ? 0 : 1;
}
