/* Calls time() in the legacy vsyscall page, if it is mapped. */
#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[256];
    int there = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        there |= strstr(line, "[vsyscall]") != 0;
    if (!there)
        return 0;
    long (*legacy_time)(long *) = (long (*)(long *))0xffffffffff600400;
    return legacy_time(0) > 0 ? 0 : 1;
}
