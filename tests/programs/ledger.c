/* Demo crash, C: SIGSEGV in end_of_day, caused by a wrong branch in settle long before.
 *
 * A small bank keeps its accounts in a table, applies a journal of transfers, and at the end of
 * the day pays the standing orders. Exercises: a NULL left in a table, calls in loops, qsort with
 * a callback into the program.
 */
#include <stdio.h>
#include <stdlib.h>

enum { ACCOUNTS = 8, ORDERS = 8 };

struct account {
    const char *owner;
    long balance;
    long minimum; /* below it, the bank closes the account */
    unsigned postings;
};

struct transfer {
    int from, to;
    long amount;
};

struct order {
    int from, to;
    long amount;
    int active;
};

static struct account *accounts[ACCOUNTS];
static struct order orders[ORDERS];
static size_t order_count;

static void open_account(int number, const struct account *terms)
{
    struct account *account = malloc(sizeof *account);
    if (!account)
        exit(1);
    *account = *terms;
    accounts[number] = account;
}

static void close_account(int number)
{
    free(accounts[number]);
    accounts[number] = NULL;
}

static void add_order(int from, int to, long amount)
{
    orders[order_count++] = (struct order){ from, to, amount, 1 };
}

/* Nothing may be paid to or from an account that is about to be closed. */
static void cancel_orders(int number)
{
    for (size_t i = 0; i < order_count; i++)
        if (orders[i].from == number || orders[i].to == number)
            orders[i].active = 0;
}

static void post(struct account *account, long amount)
{
    account->balance += amount;
    account->postings++;
}

/* Closes the account when it fell below its minimum. */
static void settle(int number)
{
    struct account *account = accounts[number];
    if (account->balance < account->minimum)
        cancel_orders(number);
    if (account->balance <= account->minimum)
        close_account(number);
}

static void apply(const struct transfer *transfer)
{
    struct account *from = accounts[transfer->from], *to = accounts[transfer->to];
    if (!from || !to)
        return; /* one side is closed: the transfer bounces */
    post(from, -transfer->amount);
    post(to, transfer->amount);
    settle(transfer->from);
}

static int by_balance(const void *left, const void *right)
{
    long a = (*(struct account *const *)left)->balance, b = (*(struct account *const *)right)->balance;
    return (a > b) - (a < b);
}

static long median_balance(void)
{
    struct account *sorted[ACCOUNTS];
    size_t open = 0;
    for (int number = 0; number < ACCOUNTS; number++)
        if (accounts[number])
            sorted[open++] = accounts[number];
    qsort(sorted, open, sizeof sorted[0], by_balance);
    return open ? sorted[open / 2]->balance : 0;
}

static unsigned checksum(void)
{
    unsigned sum = 0;
    for (int number = 0; number < ACCOUNTS; number++)
        if (accounts[number])
            for (const char *c = accounts[number]->owner; *c; c++)
                sum = sum * 31 + (unsigned char)*c;
    return sum;
}

static void end_of_day(void)
{
    for (size_t i = 0; i < order_count; i++) {
        if (!orders[i].active)
            continue;
        post(accounts[orders[i].from], -orders[i].amount);
        post(accounts[orders[i].to], orders[i].amount);
    }
}

static const struct account opening[ACCOUNTS] = {
    { "abbey", 400, 100, 0 }, { "birch", 520, 100, 0 }, { "cedar", 310, 100, 0 }, { "drift", 260, 100, 0 },
    { "ember", 700, 100, 0 }, { "fjord", 450, 100, 0 }, { "grove", 220, 100, 0 }, { "haven", 350, 100, 0 },
};

static const struct transfer journal[] = {
    { 0, 1, 150 }, { 2, 3, 40 },  { 4, 5, 125 }, { 6, 2, 30 },  { 3, 4, 210 }, { 1, 6, 75 },
    { 5, 2, 60 },  { 6, 7, 165 }, { 7, 0, 90 },  { 0, 2, 35 },  { 2, 5, 100 }, { 1, 7, 20 },
    { 4, 1, 130 }, { 5, 0, 45 },  { 7, 4, 15 },  { 1, 2, 25 },  { 0, 3, 80 },  { 7, 1, 15 },
    { 4, 0, 110 }, { 2, 7, 55 },  { 1, 5, 5 },   { 5, 4, 70 },  { 0, 6, 12 },  { 4, 2, 18 },
};

int main(void)
{
    for (int number = 0; number < ACCOUNTS; number++)
        open_account(number, &opening[number]);
    add_order(0, 1, 20);
    add_order(1, 3, 15);
    add_order(4, 2, 30);
    add_order(6, 0, 10);

    long medians = 0;
    for (size_t i = 0; i < sizeof journal / sizeof journal[0]; i++) {
        apply(&journal[i]);
        medians += median_balance();
    }
    printf("checksum %08x, median sum %ld\n", checksum(), medians);
    end_of_day();
    puts("the day is closed");
    return 0;
}
