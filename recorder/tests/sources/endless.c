/* Two threads: one computes forever, the other sleeps repeatedly. */
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

static volatile uint64_t state = 1;

static void *compute(void *argument)
{
    for (;;)
        state = state & 1 ? state * 3 + 1 : state / 2;
    return argument;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, compute, 0);
    for (;;)
        usleep(5000);
}
