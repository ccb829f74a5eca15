/*
 * Claims its child at the collector's SOCKET while it traces it, lets it go, and the child executes PROGRAM, which is
 * set-user-ID and crashes. Keeps the connection for SECONDS after that.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int words, char **word)
{
	if (words < 4)
		return 2;
	pid_t child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		usleep(300000);
		execl(word[2], word[2], (char *)0);
		_exit(3);
	}
	int status;
	waitpid(child, &status, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	strncpy(address.sun_path, word[1], sizeof address.sun_path - 1);
	int collector = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (connect(collector, (void *)&address, sizeof address))
		return 4;
	char text[4096];
	int size = snprintf(text, sizeof text, "{\"mind\":{\"pid\":%d}}", child);
	if (send(collector, text, size, 0) != size || recv(collector, text, sizeof text, 0) <= 0)
		return 5;
	ptrace(PTRACE_DETACH, child, 0, 0);
	waitpid(child, &status, 0);
	printf("%d %d\n", child, WTERMSIG(status));
	fflush(stdout);
	sleep(atoi(word[3]));
	return 0;
}
