/* SIGSEGV in a handler of SIGUSR1 that runs on a stack of its own, while a handler of SIGUSR2 was interrupted, which
 * runs on the stack of the program. */
#include <signal.h>
#include <stdlib.h>

static int *volatile nowhere;

__attribute__((noinline)) static void store(int value)
{
    *nowhere = value;
}

static void on_first(int signal)
{
    store(signal);
}

static void on_second(int signal)
{
    (void)signal;
    raise(SIGUSR1);
}

__attribute__((noinline)) static int work(int depth)
{
    if (depth == 0)
        return raise(SIGUSR2);
    return work(depth - 1) + 1;
}

int main(void)
{
    stack_t stack = { .ss_size = 64 * 1024 };
    stack.ss_sp = malloc(stack.ss_size);
    if (sigaltstack(&stack, NULL))
        return 1;
    struct sigaction first = { .sa_handler = on_first, .sa_flags = SA_ONSTACK };
    struct sigaction second = { .sa_handler = on_second };
    sigaction(SIGUSR1, &first, NULL);
    sigaction(SIGUSR2, &second, NULL);
    return work(2);
}
