/* SIGSEGV in the C library, called by the callback of a qsort, which the C library calls; the frames are without
 * frame pointers, and one has a variable size. */
#include <stdlib.h>
#include <string.h>

static const char *volatile names[] = { "pear", "fig", "plum", "lime", NULL, "date", "kiwi" };

enum { COUNT = sizeof names / sizeof *names };

__attribute__((noinline)) static int compare(const void *one, const void *other)
{
    const char *const *left = one, *const *right = other;
    return (int)strlen(*left) - (int)strlen(*right);
}

__attribute__((noinline)) static long sort(size_t count)
{
    const char *sorted[count + 1];
    for (size_t i = 0; i < count; i++)
        sorted[i] = names[i];
    qsort(sorted, count, sizeof *sorted, compare);
    return sorted[0] - sorted[1];
}

int main(int argc, char **argv)
{
    (void)argv;
    return sort(COUNT * (size_t)argc) == 0;
}
