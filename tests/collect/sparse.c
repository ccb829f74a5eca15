// Maps 30 GB at a known address, touches two pages of it, and crashes: a core of it must take neither the time nor the room of 30 GB.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
    const size_t size = 30ul << 30;
    char *area = mmap((void *)0x200000000000, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (area == MAP_FAILED)
        return 1;
    area[5] = 'a';
    area[size - 7] = 'z';
    __builtin_trap();
}
