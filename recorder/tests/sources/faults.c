/* Exits with 0 if the signals of an invalid instruction and of a division by zero report their
   address. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

static sigjmp_buf back;
static volatile int faults;
static volatile int wrong;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;
    (void)signal;
    faults++;
    wrong += (uintptr_t)info->si_addr != (uintptr_t)at->uc_mcontext.gregs[REG_RIP];
    siglongjmp(back, 1);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    volatile int zero = 0;
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    if (!sigsetjmp(back, 1))
        __asm__ volatile("ud2");
    if (!sigsetjmp(back, 1))
        return 1 / zero;
    return faults == 2 ? wrong : 3;
}
