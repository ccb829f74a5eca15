/* Crashes under the name that the bytes of the first argument are, in hexadecimal. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

int main(int count, char **words) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    char name[16] = "";
    for (size_t i = 0; count > 1 && i < 15 && words[1][2 * i]; i++) {
        unsigned byte = 0;
        sscanf(words[1] + 2 * i, "%2x", &byte);
        name[i] = (char)byte;
    }
    setrlimit(RLIMIT_CORE, &limit);
    prctl(PR_SET_NAME, name);
    *(volatile int *)0 = 1;
}
