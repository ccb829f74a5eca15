/* Starts threads and processes for as long as it is told to (seconds, 5), and looks how each ended: to be attached to. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *run(void *argument)
{
    return argument;
}

int main(int count, char **arguments)
{
    time_t end = time(NULL) + (count > 1 ? atoi(arguments[1]) : 5);
    while (time(NULL) < end) {
        pid_t child = fork();
        if (child == 0)
            _exit(3);
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0x300) {
            printf("a child ended with %#x\n", status);
            return 1;
        }
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, run, &result) || pthread_join(thread, &result) || result != &result) {
            puts("a thread went wrong");
            return 1;
        }
    }
    return 0;
}
