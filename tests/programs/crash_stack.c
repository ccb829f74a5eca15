/* SIGSEGV: the stack overflows, in steps of 64 KiB. */
__attribute__((noinline)) static int deeper(int level)
{
    volatile char frame[64 * 1024];
    frame[0] = (char)level;
    return deeper(level + 1) + frame[0];
}

int main(void)
{
    return deeper(0);
}
