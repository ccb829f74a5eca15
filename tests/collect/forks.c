// Forks without end in one thread while another one crashes; the children end at once.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void *fork_on(void *unused)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child > 0)
            waitpid(child, NULL, 0);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, fork_on, NULL);
    usleep(20000);
    *(volatile int *)16 = 1;
}
