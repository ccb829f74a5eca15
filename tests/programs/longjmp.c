/* setjmp, and longjmp out of eight frames, three times; then the same out of a signal handler. */
#include <setjmp.h>
#include <signal.h>

static jmp_buf home;
static sigjmp_buf safe;

__attribute__((noinline)) static int dive(int depth, int value)
{
    if (depth == 0)
        longjmp(home, value);
    return dive(depth - 1, value) + 1;
}

static void on_signal(int signal)
{
    siglongjmp(safe, signal);
}

int main(void)
{
    volatile int landed = 0;
    int value = setjmp(home);
    if (value < 3) {
        landed++;
        dive(8, value + 1);
    }
    signal(SIGUSR1, on_signal);
    if (sigsetjmp(safe, 1) == 0)
        raise(SIGUSR1);
    else
        landed += 10;
    return value == 3 && landed == 13 ? 0 : 1;
}
