/* A coroutine on a stack of its own, resumed three times by swapcontext. */
#include <ucontext.h>

static ucontext_t outside, inside;
static char stack[65536];
static volatile int sum;

static void work(int round)
{
    sum += round;
}

static void coroutine(void)
{
    for (int round = 0;; round++) {
        work(round);
        swapcontext(&inside, &outside);
    }
}

static void resume(void)
{
    swapcontext(&outside, &inside);
}

int main(void)
{
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    makecontext(&inside, coroutine, 0);
    for (int round = 0; round < 3; round++)
        resume();
    return sum - 3;
}
