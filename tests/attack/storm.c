/* COUNT processes at once that crash again and again for SECONDS. */
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int words, char **word)
{
	if (words < 3)
		return 2;
	time_t end = time(0) + atoi(word[2]);
	for (int index = 0; index < atoi(word[1]); index++) {
		if (fork())
			continue;
		while (time(0) < end) {
			if (!fork())
				*(volatile int *)0 = 1;
			wait(0);
		}
		_exit(0);
	}
	while (wait(0) > 0)
		;
	return 0;
}
