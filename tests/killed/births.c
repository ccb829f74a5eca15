/* A thread crashes while others are being started. */
#include <pthread.h>
#include <stddef.h>

static int *nowhere;

static void *crash(void *argument)
{
    *nowhere = 1;
    return argument;
}

static void *idle(void *argument)
{
    return argument;
}

int main(void)
{
    pthread_t threads[64];
    pthread_create(&threads[0], NULL, crash, NULL);
    for (int number = 1; number < 64; number++)
        pthread_create(&threads[number], NULL, idle, NULL);
    for (int number = 0; number < 64; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
