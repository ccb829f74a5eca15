// Counts until the named file exists, or not at all without a name, then crashes in pay().
#include <stddef.h>
#include <unistd.h>

static volatile int sum;
static int *volatile account;

static __attribute__((noinline)) void pay(int amount)
{
    sum += amount;
    if (amount == 0)
        *account = sum;
    pay(amount - 1);
    sum++;
}

__attribute__((noinline)) void count(void)
{
    sum++;
    usleep(20000);
}

int main(int argc, char **argv)
{
    while (argc > 1 && access(argv[1], F_OK) != 0)
        count();
    pay(20);
    return 0;
}
