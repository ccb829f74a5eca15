/* A fault in code without symbols, whose handler goes on behind the instruction; then a crash (SIGSEGV). */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static int (*stub)(int *);

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

__attribute__((noinline)) static int probe(int value)
{
    int found = stub(NULL);
    return found + value;
}

__attribute__((noinline)) static int finish(int value)
{
    return *(volatile int *)16 + value;
}

__attribute__((noinline)) static int outer(int value)
{
    int result = probe(value);
    result += finish(value);
    return result + 1;
}

int main(void)
{
    /* mov (%rdi),%eax; nop; nop; ret */
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, "\x8b\x07\x90\x90\xc3", 5);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    stub = (int (*)(int *))code;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;
    sigaction(SIGSEGV, &action, NULL);
    return outer(3);
}
