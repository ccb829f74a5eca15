/* Crashes with a root directory, a working directory, ids and a name of the caller's choice:
   confined ROOT DIRECTORY UID NAME. DIRECTORY is entered as root before the ids change. */
#define _GNU_SOURCE
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static int set_id(uid_t id) {
    return setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id);
}

int main(int count, char **words) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (count != 5 || setrlimit(RLIMIT_CORE, &limit) || chroot(words[1]) || chdir(words[2]) ||
        (atoi(words[3]) && set_id(atoi(words[3])))) {
        perror("confined");
        return 1;
    }
    prctl(PR_SET_NAME, words[4]);
    prctl(PR_SET_DUMPABLE, 1);
    *(volatile int *)0 = 1;
}
