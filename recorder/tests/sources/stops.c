/* Stops itself as Ctrl-Z in a shell does. A child process continues it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        usleep(300000);
        kill(parent, SIGCONT);
        _exit(3);
    }
    raise(SIGSTOP);
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
