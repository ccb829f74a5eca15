/* Memory that was executable is no more: before code in it was ever looked at (-DHERE: SIGSEGV), or of a part behind code. */
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static volatile int calls;

__attribute__((noinline)) static void fresh(void)
{
    calls++;
}

int main(void)
{
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *code = mmap(NULL, 2 * PAGE, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fresh();
#ifdef HERE
    mprotect(code + PAGE, PAGE, PROT_READ | PROT_WRITE);
    code[PAGE] = 0xc3;
    ((void (*)(void))(code + PAGE))();
    return 1;
#else
    munmap(code + PAGE, PAGE);
    memset(code, 0x90, PAGE);
    code[PAGE - 1] = 0xc3;
    ((void (*)(void))(code + PAGE - 16))();
    return 0;
#endif
}
