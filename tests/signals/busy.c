// Gets signals all the time while it does what a recorder has work with: new code, code that goes, processes in its memory.
// Says how many came, and of how many what they said was wrong.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIGNALS = 400 };

struct shared {
	volatile unsigned came, wrong;
	volatile int sender;
};

static struct shared *shared;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	if (info->si_code != SI_USER || info->si_pid != shared->sender)
		shared->wrong++;
	shared->came++;
}

/* The next is sent when the last has come. */
static int send_all(pid_t to)
{
	const struct timespec moment = { .tv_nsec = 50 * 1000 };

	shared->sender = getpid();
	for (unsigned sent = 0; sent < SIGNALS; sent++) {
		kill(to, SIGUSR1);
		while (shared->came == sent)
			nanosleep(&moment, NULL);
	}
	return 0;
}

static void work(void)
{
	static const unsigned char returns_one[] = { 0xb8, 1, 0, 0, 0, 0xc3 };
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	if (code == MAP_FAILED)
		_exit(1);
	for (unsigned at = 0; at < 1024; at += 16) {
		memcpy(code + at, returns_one, sizeof(returns_one));
		((int (*)(void))(code + at))();
	}
	munmap(code, 4096);
	child = vfork();
	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	pid_t self = getpid(), sender;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGUSR1, &action, NULL);
	sender = fork();
	if (!sender)
		_exit(send_all(self));
	while (waitpid(sender, NULL, WNOHANG) != sender)
		work();
	printf("came %u wrong %u\n", shared->came, shared->wrong);
	return 0;
}
