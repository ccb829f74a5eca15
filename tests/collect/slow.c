// Calls `handle` once for each argument, which sleeps as many milliseconds.
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) void handle(unsigned milliseconds)
{
    usleep(milliseconds * 1000);
}

int main(int argc, char **argv)
{
    for (int index = 1; index < argc; index++)
        handle((unsigned)atoi(argv[index]));
    return 0;
}
