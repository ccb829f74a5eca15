// Starts as many children as the first argument says, each of which starts one more. They all live at the same
// time: until the last has begun, or, with a second argument, until they are killed.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int children = atoi(arguments[1]), forever = count > 2, ends[2];
    if (pipe(ends))
        return 2;
    for (int i = 0; i < children; i++) {
        pid_t child = fork();
        if (child < 0)
            return 3;
        if (child)
            continue;
        close(ends[1]);
        if (fork() == 0 && forever)
            setsid();
        char byte;
        ssize_t got = read(ends[0], &byte, 1);
        while (wait(0) > 0)
            ;
        _exit(got ? 1 : 0);
    }
    if (forever) {
        FILE *begun = fopen(arguments[2], "w");
        fprintf(begun, "%d\n", getpid());
        fclose(begun);
        pause();
    }
    close(ends[0]);
    close(ends[1]);
    int ended = 0, status;
    while (wait(&status) > 0)
        ended += status == 0;
    printf("%d\n", ended);
    return 0;
}
