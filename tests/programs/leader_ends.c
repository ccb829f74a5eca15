/* The first thread ends, the process goes on in another, whose crash is SIGSEGV. */
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static pthread_t first;

__attribute__((noinline)) static int work(int count)
{
    volatile int sum = 0;
    for (int i = 0; i < count; i++)
        sum += i;
    return sum;
}

__attribute__((noinline)) static int load(volatile int *where)
{
    return *where;
}

static void *other(void *argument)
{
    pthread_join(first, NULL);
    int sum = 0;
    for (int i = 0; i < 10; i++)
        sum += work(i);
    return (char *)argument + sum + load((int *)8);
}

int main(void)
{
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, other, NULL);
    pthread_exit(NULL);
}
