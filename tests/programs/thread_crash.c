/* SIGSEGV in one thread while another one waits for it and a third computes. */
#include <pthread.h>
#include <stddef.h>

static volatile int ready;
static volatile unsigned long spun;

static void *spin(void *argument)
{
    for (;;) {
        spun++;
        ready = 1;
    }
    return argument;
}

static void store(int *where)
{
    *where = 1;
}

static void *crash(void *argument)
{
    while (!ready)
        ;
    store(argument);
    return NULL;
}

int main(void)
{
    pthread_t spinner, crasher;
    pthread_create(&spinner, NULL, spin, NULL);
    pthread_create(&crasher, NULL, crash, NULL);
    pthread_join(crasher, NULL);
    return 0;
}
