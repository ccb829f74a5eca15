/* Writes code, runs it, rewrites it, runs it again. */
#include <string.h>
#include <sys/mman.h>

int main(void)
{
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* mov $imm, %eax; ret */
    memcpy(code, "\xb8\x05\x00\x00\x00\xc3", 6);
    int (*function)(void) = (int (*)(void))code;
    int sum = function();
    code[1] = 7;
    return sum + function() - 12;
}
