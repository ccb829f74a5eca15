// Starts as many threads as it is told, and crashes in one of them while the others wait, once the first thread has ended.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_barrier_t all;

// Whether the first thread is only a name any more: /proc calls it a zombie.
static int first_has_ended(void)
{
    char line[512] = "";
    FILE *stat = fopen("/proc/self/stat", "r");
    if (stat == NULL)
        return 0;
    char *read = fgets(line, sizeof line, stat);
    fclose(stat);
    return read != NULL && strstr(line, ") Z ") != NULL;
}

static void *wait_for_all(void *last)
{
    pthread_barrier_wait(&all);
    if (last) {
        while (!first_has_ended())
            sched_yield();
        *(volatile int *)8 = 1;
    }
    for (;;)
        pthread_barrier_wait(&all);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 100;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all, NULL, count);
    for (int index = 0; index < count; index++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, wait_for_all, index == count - 1 ? &all : NULL))
            return 1;
    }
    pthread_exit(NULL);
}
