/* Starts a hundred processes in each of several ways, and prints for each way how many mappings more there are then: of its own, and of
 * its parent, which is the recorder. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 100 };

static char *const itself[] = {"/proc/self/exe", "child", NULL};

static int ends(void *argument)
{
    _exit(argument != NULL);
}

/* In the memory of its parent until it executes a program. */
static pid_t spawned(void)
{
    pid_t child = -1;
    posix_spawn(&child, itself[0], NULL, NULL, itself, NULL);
    return child;
}

/* In the memory of its parent until it ends. */
static pid_t sharing(void)
{
    static char stack[1 << 16] __attribute__((aligned(16)));
    return clone(ends, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
}

static pid_t forked(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child;
}

static pid_t forked_to_execute(void)
{
    pid_t child = fork();
    if (child == 0) {
        execv(itself[0], itself);
        _exit(1);
    }
    return child;
}

/* As `sharing`; then code comes to its parent, while a copy of the memory before is in use. */
static pid_t sharing_before_a_change(void)
{
    int begun[2];
    char byte = 0;
    if (pipe(begun))
        return -1;
    pid_t copy = fork();
    if (copy == 0) {
        if (write(begun[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    pid_t child = read(begun[0], &byte, 1) == 1 ? sharing() : -1;
    munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    kill(copy, SIGKILL);
    waitpid(copy, NULL, 0);
    close(begun[0]);
    close(begun[1]);
    return child;
}

static int maps(pid_t pid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *file = fopen(path, "r");
    int lines = 0;
    for (int c; file && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    if (file)
        fclose(file);
    return lines;
}

static void start(pid_t (*child)(void))
{
    int status = 1;
    waitpid(child(), &status, 0);
    if (status) {
        printf("a child ended with %#x\n", status);
        exit(1);
    }
}

static void start_many(const char *way, pid_t (*child)(void))
{
    /* What the first needs stays. */
    start(child);
    int own = maps(getpid()), parents = maps(getppid());
    for (int i = 0; i < CHILDREN; i++)
        start(child);
    printf("%s %d %d\n", way, maps(getpid()) - own, maps(getppid()) - parents);
}

int main(int count, char **arguments)
{
    if (count > 1)
        return 0;
    start_many("spawned", spawned);
    start_many("sharing", sharing);
    start_many("forked", forked);
    start_many("forked_to_execute", forked_to_execute);
    start_many("sharing_before_a_change", sharing_before_a_change);
    return 0;
}
