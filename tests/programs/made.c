/* SIGSEGV in what code calls that was made at run time, or with INSIDE, SIGILL in that code itself: nothing describes its
 * frame. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

typedef long (*made)(long value, void (*call)(void));

static int *volatile nowhere;

static void store(void)
{
    *nowhere = 1;
}

static made make(void)
{
    static const unsigned char code[] = {
        0x53,                   /* push %rbx */
        0x48, 0x83, 0xec, 0x10, /* sub $16,%rsp */
        0x48, 0x89, 0xfb,       /* mov %rdi,%rbx */
#ifdef INSIDE
        0x0f, 0x0b,             /* ud2 */
#else
        0xff, 0xd6,             /* call *%rsi */
#endif
        0x48, 0x89, 0xd8,       /* mov %rbx,%rax */
        0x48, 0x83, 0xc4, 0x10, /* add $16,%rsp */
        0x5b,                   /* pop %rbx */
        0xc3,                   /* ret */
    };
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    memcpy(page, code, sizeof code);
    return (made)page;
}

static long use(made code, long value)
{
    long seen = value + 1;
    return code(value, store) + seen;
}

int main(void)
{
    made code = make();
    return code ? (int)use(code, 41) : 1;
}
