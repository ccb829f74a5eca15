/* Calls through the PLT, bound lazily (-Wl,-z,lazy): the first goes through ld.so's resolver, the
 * second does not. */
#include <stdlib.h>
#include <string.h>

int main(void)
{
    int total = 0;
    for (int round = 0; round < 2; round++) {
        char *copy = strdup("a word of many");
        total += strlen(copy) + atoi("12") + (strchr(copy, 'm') != NULL);
        free(copy);
    }
    return total == 2 * (14 + 12 + 1) ? 0 : 1;
}
