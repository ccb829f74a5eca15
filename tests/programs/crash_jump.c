/* SIGSEGV: a call through a wild pointer; the instruction that faults has no code. */
typedef void callback(void);

static callback *volatile chosen = (callback *)0x1000;

__attribute__((noinline)) static void notify(void)
{
    chosen();
}

int main(void)
{
    notify();
    return 0;
}
