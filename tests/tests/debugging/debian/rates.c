/* An SQLite extension: convert(amount, currency), by a table with a cache of recent rates.
 *
 * Defect: a currency without a rate evicts the oldest rate, even that of the base. */
#include <sqlite3ext.h>
#include <stdlib.h>
#include <string.h>
SQLITE_EXTENSION_INIT1

struct rate {
    char currency[4];
    char *sign;
    double per_unit;
    long used;
};

static struct rate kept[4];
static struct rate *base;
static long clock;

static struct rate *find(const char *currency)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(kept[i].currency, currency) == 0)
            return &kept[i];
    return NULL;
}

static void forget(struct rate *rate)
{
    free(rate->sign);
    memset(rate, 0, sizeof *rate);
}

static struct rate *make_room(void)
{
    struct rate *oldest = &kept[0];
    for (int i = 0; i < 4; i++) {
        if (kept[i].used == 0)
            return &kept[i];
        if (kept[i].used < oldest->used)
            oldest = &kept[i];
    }
    forget(oldest);
    return oldest;
}

static struct rate *load(sqlite3 *db, const char *currency)
{
    struct rate *rate = make_room();
    sqlite3_stmt *query;
    sqlite3_prepare_v2(db, "SELECT sign, per_unit FROM rates WHERE currency = ?", -1, &query, NULL);
    sqlite3_bind_text(query, 1, currency, -1, SQLITE_STATIC);
    int found = sqlite3_step(query) == SQLITE_ROW;
    if (found) {
        strcpy(rate->currency, currency);
        rate->sign = strdup((const char *)sqlite3_column_text(query, 0));
        rate->per_unit = sqlite3_column_double(query, 1);
    }
    sqlite3_finalize(query);
    return found ? rate : NULL;
}

static struct rate *rate_of(sqlite3_context *context, sqlite3_value *currency)
{
    const char *name = (const char *)sqlite3_value_text(currency);
    struct rate *rate = find(name);
    if (!rate)
        rate = load(sqlite3_context_db_handle(context), name);
    if (rate)
        rate->used = ++clock;
    return rate;
}

static void set_base(sqlite3_context *context, int count, sqlite3_value **arguments)
{
    base = rate_of(context, arguments[0]);
}

/* Amounts in a currency without a rate are NULL, and sum() leaves those out. */
static void convert(sqlite3_context *context, int count, sqlite3_value **arguments)
{
    struct rate *rate = rate_of(context, arguments[1]);
    if (rate)
        sqlite3_result_double(context, sqlite3_value_double(arguments[0]) * rate->per_unit);
}

static void show(sqlite3_context *context, int count, sqlite3_value **arguments)
{
    double amount = sqlite3_value_double(arguments[0]);
    char sign = base->sign[0];
    char *text = sqlite3_mprintf("%c %.2f", sign, amount);
    sqlite3_result_text(context, text, -1, sqlite3_free);
}

int sqlite3_rates_init(sqlite3 *db, char **error, const sqlite3_api_routines *api)
{
    SQLITE_EXTENSION_INIT2(api);
    sqlite3_create_function(db, "set_base", 1, SQLITE_UTF8, NULL, set_base, NULL, NULL);
    sqlite3_create_function(db, "convert", 2, SQLITE_UTF8, NULL, convert, NULL, NULL);
    sqlite3_create_function(db, "show", 1, SQLITE_UTF8, NULL, show, NULL, NULL);
    return SQLITE_OK;
}
