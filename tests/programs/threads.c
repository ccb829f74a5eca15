/* Four POSIX threads that share a mutex and are joined; the last result decides the exit status. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 25 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

static long collatz(long value)
{
    long steps = 0;
    for (; value != 1; steps++)
        value = value % 2 ? 3 * value + 1 : value / 2;
    return steps;
}

static void *work(void *argument)
{
    long seed = (long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        long steps = collatz(seed + round);
        pthread_mutex_lock(&lock);
        total += steps;
        pthread_mutex_unlock(&lock);
    }
    return (void *)seed;
}

int main(void)
{
    pthread_t threads[THREADS];
    long joined = 0;
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(i + 10)))
            return 1;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        joined += (long)result;
    }
    printf("total %ld\n", total);
    return joined == 10 + 11 + 12 + 13 ? 0 : 1;
}
