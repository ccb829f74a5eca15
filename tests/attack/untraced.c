// Starts children that ask not to be traced, or to be traced by whoever traces their parent, by clone and clone3, with a
// copy of the memory and with the same. The structure that clone3 is given cannot be written.
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern int clone(int (*)(void *), void *, int, void *, ...);

static char stack[1 << 16] __attribute__((aligned(16)));
static volatile int sum;

static int child(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++)
        sum += i;
    _exit(7);
}

// Says how the child ended, and whether the registers of the call are as they were.
static void report(const char *call, long pid, int kept) {
    int status = -1;
    waitpid(pid, &status, __WALL);
    printf("%s: status %x, arguments %s\n", call, status, kept ? "kept" : "changed");
    fflush(stdout);
}

int main(void) {
    const uint64_t hiding[] = {CLONE_UNTRACED, CLONE_PTRACE, CLONE_UNTRACED | CLONE_PTRACE};
    struct clone_args *arguments = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        report("clone", clone(child, stack + sizeof stack, hiding[i] | SIGCHLD, 0), 1);
        report("clone in the same memory", clone(child, stack + sizeof stack, hiding[i] | CLONE_VM | SIGCHLD, 0), 1);

        register uint64_t flags __asm__("rdi") = hiding[i] | SIGCHLD;
        long pid = SYS_clone;
        __asm__ volatile("xor %%esi, %%esi; xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d; syscall"
                         : "+a"(pid), "+r"(flags)
                         :
                         : "rsi", "rdx", "r10", "r8", "rcx", "r11", "memory");
        if (pid == 0)
            child(0);
        report("clone by itself", pid, flags == (hiding[i] | SIGCHLD));

        mprotect(arguments, 4096, PROT_READ | PROT_WRITE);
        arguments->flags = hiding[i];
        arguments->exit_signal = SIGCHLD;
        mprotect(arguments, 4096, PROT_READ);
        register struct clone_args *at __asm__("rdi") = arguments;
        register uint64_t size __asm__("rsi") = sizeof *arguments;
        pid = SYS_clone3;
        __asm__ volatile("syscall" : "+a"(pid), "+r"(at), "+r"(size) : : "rcx", "r11", "memory");
        if (pid == 0)
            child(0);
        report("clone3", pid, at == arguments && size == sizeof *arguments && arguments->flags == hiding[i]);
    }
    return 0;
}
