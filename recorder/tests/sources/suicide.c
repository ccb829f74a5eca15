/* A child kills this process while one thread waits and one computes. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int *turns;

static void *compute(void *argument)
{
    for (;;)
        ++*turns;
    return argument;
}

int main(void)
{
    pthread_t thread;
    pid_t parent = getpid();
    turns = mmap(0, sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fork() == 0) {
        /* Wait until both threads run, however busy the machine is. */
        while (*turns == 0)
            usleep(1000);
        usleep(200000);
        kill(parent, SIGKILL);
        _exit(0);
    }
    pthread_create(&thread, 0, compute, 0);
    pthread_join(thread, 0);
}
