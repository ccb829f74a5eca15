// Two threads and some memory, to be built with sanitizers.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int counter;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < 100; i++) {
        char *memory = malloc(i + 1);
        pthread_mutex_lock(&lock);
        counter += memory != 0;
        pthread_mutex_unlock(&lock);
        free(memory);
    }
    return 0;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf("%d\n", counter);
    return 0;
}
