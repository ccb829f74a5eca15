/* storm PROCESSES SECONDS: so many processes, each of which has one child after the other crash. */
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void crash_until(time_t end)
{
	while (time(0) < end) {
		pid_t child = fork();
		if (child == 0) {
			*(volatile int *)0 = 0;
			_exit(0);
		}
		if (child > 0)
			waitpid(child, 0, 0);
	}
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 1;
	time_t end = time(0) + (argc > 2 ? atoi(argv[2]) : 1);
	for (int i = 0; i < processes; i++) {
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			crash_until(end);
			_exit(0);
		}
	}
	while (wait(0) > 0)
		;
	return 0;
}
