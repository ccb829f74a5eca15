/* Two bakers, each in a thread, serve orders with a slow oven. After its last loaf is sold, a bread
 * is removed from the list. The west baker has one more order for it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { BREADS = 4, ORDERS = 6, OVEN_NS = 3000000 };

struct bread {
    const char *name;
    int price;
    int loaves;
};

struct order {
    int bread;
    int count;
};

struct baker {
    const char *name;
    struct order orders[ORDERS];
    int takings;
};

static struct bread breads[BREADS] = {{"rye", 4, 5}, {"spelt", 6, 2}, {"barley", 5, 3}, {"wheat", 3, 8}};
static struct bread *list[BREADS] = {&breads[0], &breads[1], &breads[2], &breads[3]};

static struct baker east = {"baker-east", {{0, 2}, {1, 1}, {0, 1}, {0, 1}, {0, 3}, {1, 2}}, 0};
static struct baker west = {"baker-west", {{3, 2}, {2, 1}, {3, 9}, {2, 2}, {3, 1}, {2, 4}}, 0};

static void wait_for_oven(void)
{
    struct timespec pause = {.tv_nsec = OVEN_NS};
    nanosleep(&pause, NULL);
}

static void bake(struct bread *bread, int count)
{
    wait_for_oven();
    bread->loaves += count;
}

static void strike(int bread)
{
    list[bread] = NULL;
}

static int checksum(const char *name)
{
    int sum = 0;
    for (; *name; name++)
        sum = sum * 31 + *name;
    return sum & 1023;
}

static int serve(struct baker *baker, const struct order *order)
{
    struct bread *bread = list[order->bread];
    int total = bread->price * order->count;
    if (bread->loaves < order->count)
        bake(bread, order->count);
    bread->loaves -= order->count;
    if (bread->loaves == 0)
        strike(order->bread);
    baker->takings += total;
    return checksum(bread->name);
}

static void *work(void *argument)
{
    struct baker *baker = argument;
    int sum = 0;
    /* The thread sets its own name, because it may crash before its creator continues. */
    pthread_setname_np(pthread_self(), baker->name);
    for (int at = 0; at < ORDERS; at++)
        sum += serve(baker, &baker->orders[at]);
    printf("%s: %d taken, checksum %d\n", baker->name, baker->takings, sum);
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, work, &east);
    pthread_create(&threads[1], NULL, work, &west);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return 0;
}
