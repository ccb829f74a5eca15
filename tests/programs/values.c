/* Crashes where there is much to look at: structures, unions, bit fields, enumerations, strings, pointers to functions,
 * arrays with more than one dimension, thread-local and static data, in nested blocks. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum color { RED, GREEN, BLUE = 7 };
enum flags { READ = 1, WRITE = 2, EXECUTE = 4 };

struct point {
    int x, y;
};

typedef struct node {
    const char *name;
    struct node *next;
    enum color color;
    struct point at[2];
    union {
        int whole;
        float fraction;
    } as;
    struct {
        unsigned first : 3;
        int second : 5;
        unsigned : 0;
        unsigned long third : 40;
    };
    bool alive;
    int (*compare)(const void *, const void *);
    unsigned char key[6];
} node_t;

typedef int (*operation)(int, int);

static int counter = 42;
int table[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
double ratios[] = {0.5, 3.14, -1e100};
char buffer[32] = "hello\n\t\"world\"";
int zeros[300];
const char *names[] = {"one", "two", NULL};
__thread int per_thread = 17;
extern char **environ;

static int add(int a, int b)
{
    return a + b;
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) static int fall(node_t *list, int depth, operation apply, struct point origin)
{
    unsigned long big = 0xdeadbeefcafef00d;
    short small = -7;
    char letter = 'x';
    signed char tiny = -3;
    unsigned char octet = 200;
    float third = 1.0f / 3;
    long double wide = 2.5L;
    enum flags mode = READ | EXECUTE;
    enum flags odd = READ | 16;
    void *nothing = NULL;
    char text[12] = "stack";
    char *middle = text + 2;
    int *volatile hole = (int *)(intptr_t)(depth - 3);
    for (int round = 0; round < 1; round++) {
        int inner = apply(round, depth);
        struct point *corner = &list->at[1];
        static int visits = 5;
        visits += inner;
        corner->x += visits;
        *hole = inner + (int)big + small + letter + tiny + octet + (int)third + (int)wide + mode + odd + origin.x
            + (nothing != NULL) + middle[0];
    }
    return counter + text[0];
}

__attribute__((noinline)) int enter(int count)
{
    node_t second = {"second", NULL, BLUE, {{1, 2}, {3, 4}}, {.fraction = 1.5f}, {5, -6, 99}, false, NULL, "abc"};
    node_t first = {"first \303\251", &second, GREEN, {{5, 6}, {7, 8}}, {.whole = -1}, {1, 2, 3}, true, compare, "key"};
    struct point origin = {-1, count};
    int sizes[count + 1];
    for (int i = 0; i <= count; i++)
        sizes[i] = i * i;
    per_thread += sizes[count];
    return fall(&first, count, add, origin) + first.at[0].x;
}

int main(int argc, char **argv)
{
    zeros[299] = argc;
    return enter(argc + 2) + (argv[0] == buffer) + table[1][1] + (int)ratios[0] + (names[0] == NULL);
}
