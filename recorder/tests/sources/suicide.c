/* Is killed from outside while one thread waits and one computes. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static volatile int turns;

static void *compute(void *argument)
{
    for (;;)
        turns++;
    return argument;
}

int main(void)
{
    pthread_t thread;
    pid_t parent = getpid();
    if (fork() == 0) {
        usleep(200000);
        kill(parent, SIGKILL);
        _exit(0);
    }
    pthread_create(&thread, 0, compute, 0);
    pthread_join(thread, 0);
}
