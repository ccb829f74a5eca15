/* Serves six requests. They are alike, but the fourth flushes the cache before it fetches, and whoever finds the cache empty
   sleeps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENTRIES = 8, SLEEP_NS = 3000000 };

static unsigned cache[ENTRIES];

static unsigned parse(const char *request)
{
    unsigned key = 0;
    for (; *request; request++)
        key = key * 31 + (unsigned char)*request;
    return key % ENTRIES;
}

static void flush_cache(void)
{
    for (int entry = 0; entry < ENTRIES; entry++)
        cache[entry] = 0;
}

static void wait_for_disk(void)
{
    struct timespec pause = {.tv_nsec = SLEEP_NS};
    nanosleep(&pause, NULL);
}

static unsigned load(unsigned key)
{
    wait_for_disk();
    return key + 1;
}

static unsigned fetch(unsigned key)
{
    if (key >= ENTRIES)
        abort();
    if (!cache[key])
        cache[key] = load(key);
    return cache[key];
}

static unsigned reply(unsigned value)
{
    for (int round = 0; round < 16; round++)
        value = value * 1103515245u + 12345u;
    return value;
}

static unsigned serve(const char *request)
{
    unsigned key = parse(request);
    if (!strcmp(request, "B"))
        flush_cache();
    return reply(fetch(key));
}

int main(void)
{
    static const char *const requests[] = {"A", "A", "A", "B", "A", "A"};
    unsigned sum = 0;
    for (unsigned at = 0; at < sizeof requests / sizeof *requests; at++)
        sum ^= serve(requests[at]);
    printf("%u\n", sum);
    return 0;
}
