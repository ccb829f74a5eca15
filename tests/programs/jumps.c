/* What GDB's verbs are compared on where frames are left without a return: longjmp out of a recursion, twice, and
 * out of a loop. */
#include <setjmp.h>

static jmp_buf home, inner;
static volatile int landed;

__attribute__((noinline)) static int dive(int depth)
{
    if (depth == 0)
        longjmp(home, landed + 1);
    return dive(depth - 1) + 1;
}

__attribute__((noinline)) static int leave(int count)
{
    for (int i = 0; i < count; i++)
        if (i == 2)
            longjmp(inner, 1);
    return count;
}

__attribute__((noinline)) static int round_trip(void)
{
    if (setjmp(inner) == 0)
        leave(5);
    landed += 10;
    return landed;
}

int main(void)
{
    if (setjmp(home) < 3) {
        landed++;
        dive(3);
    }
    return round_trip() == 12 ? 0 : 1;
}
