/* Signal handlers on their own stack (SA_ONSTACK) that return, twenty times, from a raised signal
 * and from a fault whose handler repairs the pointer. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

static volatile sig_atomic_t raised, repaired;
static char *page;

static int on_the_signal_stack(const void *address, const stack_t *stack)
{
    return (const char *)address >= (char *)stack->ss_sp &&
           (const char *)address < (char *)stack->ss_sp + stack->ss_size;
}

static stack_t stack;

static void on_user(int signal)
{
    char here;
    raised += signal == SIGUSR1 && on_the_signal_stack(&here, &stack);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    repaired += signal == SIGSEGV && info->si_addr == page;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

int main(void)
{
    stack.ss_size = 64 * 1024;
    stack.ss_sp = malloc(stack.ss_size);
    if (sigaltstack(&stack, NULL))
        return 1;
    struct sigaction user = { .sa_handler = on_user, .sa_flags = SA_ONSTACK };
    struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_ONSTACK | SA_SIGINFO };
    sigaction(SIGUSR1, &user, NULL);
    sigaction(SIGSEGV, &fault, NULL);
    for (int i = 0; i < 20; i++)
        raise(SIGUSR1);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)page = 42;
    return raised == 20 && repaired == 1 && *page == 42 ? 0 : 1;
}
