/* A signal during a blocking system call: once restarted (SA_RESTART), once failed with EINTR. */
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static int ends[2];
static volatile sig_atomic_t alarms, feed;

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
    if (feed)
        feed = write(ends[1], "x", 1) != 1;
}

/* A repeating timer, so that no expiry before the call blocks leaves it blocked for good; half a second, so that there is
   none but on a machine that stands still: what runs is then the same each time. */
static void start_alarms(int flags)
{
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = flags };
    struct itimerval every = { { 0, 500000 }, { 0, 500000 } };
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

int main(void)
{
    char byte = 0;
    if (pipe(ends))
        return 1;
    start_alarms(0);
    ssize_t failed = read(ends[0], &byte, 1);
    int error = errno;
    feed = 1;
    start_alarms(SA_RESTART);
    ssize_t restarted = read(ends[0], &byte, 1);
    return failed == -1 && error == EINTR && restarted == 1 && byte == 'x' && alarms >= 2 ? 0 : 1;
}
