/* SIGABRT: the C library finds that memory is freed twice. */
#include <stdlib.h>

static void *volatile kept;

__attribute__((noinline)) static void release(void *memory)
{
    free(memory);
}

int main(void)
{
    kept = malloc(64);
    release(kept);
    release(kept);
    return 0;
}
