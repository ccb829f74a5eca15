/* String instructions with a REP prefix: movs, stos, cmps, scas, a count of zero, and backwards.
 * Each is one instruction of the trace, however often it repeats. */
#include <stddef.h>

static unsigned char from[300], to[300];

static void rep_stosb(void *where, int byte, size_t count)
{
    __asm__ volatile("rep stosb" : "+D"(where), "+c"(count) : "a"(byte) : "memory");
}

static void rep_movsb(void *where, const void *source, size_t count)
{
    __asm__ volatile("rep movsb" : "+D"(where), "+S"(source), "+c"(count) : : "memory");
}

static void rep_movsb_backwards(void *where, const void *source, size_t count)
{
    __asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(where), "+S"(source), "+c"(count) : : "memory");
}

static size_t repne_scasb(const void *where, int byte, size_t count)
{
    __asm__ volatile("repne scasb" : "+D"(where), "+c"(count) : "a"(byte) : "memory", "cc");
    return count;
}

static size_t repe_cmpsb(const void *left, const void *right, size_t count)
{
    __asm__ volatile("repe cmpsb" : "+D"(left), "+S"(right), "+c"(count) : : "memory", "cc");
    return count;
}

int main(void)
{
    rep_stosb(from, 7, sizeof from);
    rep_movsb(to, from, sizeof to);
    rep_movsb(to, from, 0);
    from[200] = 9;
    rep_movsb_backwards(to + 299, from + 299, 100);
    return repne_scasb(from, 9, sizeof from) == 99 && repe_cmpsb(from, to, sizeof from) == 0 ? 0 : 1;
}
