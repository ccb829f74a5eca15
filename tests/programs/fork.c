/* fork with wait, then vfork with an exec of this very program: the child's life is its own. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int work(int value)
{
    for (int i = 0; i < 50; i++)
        value = value * 7 % 101;
    return value;
}

static int status_of(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return work(atoi(arguments[1])) == work(5) ? 3 : 4;

    pid_t forked = fork();
    if (forked == 0)
        _exit(work(5) == work(5) ? 2 : 1);
    if (status_of(forked) != 2)
        return 1;

    char *const next[] = { arguments[0], "5", NULL };
    pid_t vforked = vfork();
    if (vforked == 0) {
        execv("/proc/self/exe", next);
        _exit(9);
    }
    return status_of(vforked) == 3 ? 0 : 1;
}
