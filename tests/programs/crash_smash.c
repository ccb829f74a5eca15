/* SIGSEGV by a return to what is no code, or with an argument no address: a buffer on the stack was overrun. */
static volatile unsigned long pattern = 0x414141414141;

__attribute__((noinline)) static void fill(unsigned long *buffer, int count)
{
    for (int i = 0; i < count; i++)
        ((volatile unsigned long *)buffer)[i] = pattern;
}

__attribute__((noinline)) static int parse(int count)
{
    unsigned long buffer[2];
    fill(buffer, count);
    return (int)buffer[1];
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        pattern = 0x4141414141414141;
    return parse(argc > 0 ? 8 : 0) + 1;
}
