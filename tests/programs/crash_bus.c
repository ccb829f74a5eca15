/* SIGBUS: a read of a mapped page that its file no longer reaches. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static unsigned sum(const unsigned char *bytes, int count)
{
    unsigned total = 0;
    for (int i = 0; i < count; i++)
        total += bytes[i];
    return total;
}

int main(void)
{
    int file = memfd_create("shrinking", 0);
    if (file < 0 || ftruncate(file, 2 * PAGE))
        return 1;
    unsigned char *bytes = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED)
        return 1;
    bytes[PAGE] = 7;
    if (sum(bytes, 2 * PAGE) != 7 || ftruncate(file, PAGE))
        return 1;
    return (int)sum(bytes, 2 * PAGE);
}
