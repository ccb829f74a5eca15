/* What its code gives away of values before the crash: constants, texts, a counter, comparisons, and what stays until
 * the end (SIGSEGV). Built with -O2. */
static volatile int sink;
static int *volatile hole;
static const int weights[4] = {10, 20, 30, 40};

__attribute__((noipa)) static int take(const char *name, int count)
{
    sink += name[0];
    return count + sink;
}

__attribute__((noipa)) static int told(int code)
{
    if (code == 42)
        return take("answer", sink);
    return take("other", sink);
}

__attribute__((noipa)) static int weigh(const int *weight)
{
    sink += *weight;
    return *weight;
}

int main(void)
{
    for (int i = 0; i < 5; i++)
        take("round", i);
    sink = 41;
    sink += told(sink + 1);
    weigh(&weights[2]);
    take("last", 7);
    return *hole;
}
