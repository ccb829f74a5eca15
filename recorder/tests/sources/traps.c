/* Searches for signs of single-stepping, and exits with 0 if there are none. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRAP_FLAG 0x100

static volatile int traps;

static void on_trap(int signal)
{
    (void)signal;
    traps++;
}

static uint64_t pushed_flags(void)
{
    uint64_t flags;
    __asm__ volatile("pushfq; pop %0" : "=r"(flags));
    return flags;
}

static uint64_t saved_flags(void)
{
    long result = SYS_getpid;
    uint64_t flags;
    __asm__ volatile("syscall; mov %%r11, %1" : "+a"(result), "=r"(flags) : : "rcx", "r11", "memory");
    return flags;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_trap};
    sigaction(SIGTRAP, &action, NULL);
    if (pushed_flags() & TRAP_FLAG)
        return 1;
    if (saved_flags() & TRAP_FLAG)
        return 2;
    __asm__ volatile("int3");
    if (traps != 1)
        return 3;
    raise(SIGTRAP);
    if (traps != 2)
        return 4;
    __asm__ volatile("int $0x80" : : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    __asm__ volatile("mov %%ss, %%eax; mov %%eax, %%ss; nop; nop" : : : "eax");
    if (pushed_flags() & TRAP_FLAG)
        return 5;
    return 0;
}
