/* SIGABRT out of the C library: an assertion that fails. */
#include <assert.h>

static volatile int fuel = 3;

__attribute__((noinline)) static void burn(void)
{
    assert(fuel > 0);
    fuel--;
}

int main(void)
{
    for (;;)
        burn();
}
