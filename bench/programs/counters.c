/* Performance variables of the library (MPI_T): how much they grow with each operation, over all ranks together. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 8
#define TERMS_MAX 16

/* One variable, seen through a handle of its own. */
struct term {
    MPI_T_pvar_handle handle;
    int is_total;        /* a counter; else a level or a mark, of which the value counts */
    int below;           /* stands under the line of a share */
    uint64_t before;
};
/* What was asked for: `a`, `a+b`, or `a/b+c`, a share in per cent. */
struct item {
    char text[128];
    struct term terms[TERMS_MAX];
    int term_count, is_share, is_total;
    double value;
};

static struct item items[ITEMS_MAX];
static int item_count, fresh;
static MPI_T_pvar_session session;

static void refuse(const char *name, const char *why) {
    fprintf(stderr, "bench: performance variable %s: %s\n", name, why);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static uint64_t value_of(const struct term *term) {
    uint64_t value = 0;
    if (MPI_T_pvar_read(session, term->handle, &value) != MPI_SUCCESS) refuse("", "cannot be read");
    return value;
}

static void add_term(struct item *item, const char *name, int below) {
    int count = 0;
    MPI_T_pvar_get_num(&count);
    for (int index = 0; index < count; index++) {
        char found[256];
        int length = sizeof found, verbosity, class, binding, read_only, continuous, atomic, elements;
        MPI_Datatype type;
        MPI_T_enum values;
        if (MPI_T_pvar_get_info(index, found, &length, &verbosity, &class, &type, &values, NULL, NULL, &binding,
                                &read_only, &continuous, &atomic) != MPI_SUCCESS
            || strcmp(found, name))
            continue;
        MPI_Comm world = MPI_COMM_WORLD;
        void *object = binding == MPI_T_BIND_MPI_COMM ? &world : NULL;
        if (binding != MPI_T_BIND_NO_OBJECT && !object) refuse(name, "belongs to an object other than a communicator");
        if (item->term_count == TERMS_MAX) refuse(name, "too many in one sum");
        struct term *term = &item->terms[item->term_count++];
        term->below = below;
        term->is_total = class == MPI_T_PVAR_CLASS_COUNTER || class == MPI_T_PVAR_CLASS_AGGREGATE;
        item->is_total |= term->is_total;
        if (MPI_T_pvar_handle_alloc(session, index, object, &term->handle, &elements) != MPI_SUCCESS || elements != 1)
            refuse(name, "is no single number");
        if (!continuous && MPI_T_pvar_start(session, term->handle) != MPI_SUCCESS) refuse(name, "cannot be started");
        return;
    }
    refuse(name, "the library has none of this name");
}

static void add_item(const char *text) {
    char copy[sizeof items->text], *rest = copy, *name;
    struct item *item = &items[item_count];
    if (item_count == ITEMS_MAX || strlen(text) >= sizeof copy) refuse(text, "too many, or too long");
    item_count++;
    strcpy(item->text, text);
    strcpy(copy, text);
    char *line = strchr(copy, '/');
    if (line) *line = 0;
    while ((name = strsep(&rest, "+"))) add_term(item, name, 0);
    if (!line) return;
    item->is_share = 1;
    rest = line + 1;
    while ((name = strsep(&rest, "+"))) add_term(item, name, 1);
}

void counters_open(const char *list) {
    int provided;
    char *copy = strdup(list), *rest = copy, *text;
    if (!*list) return;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS
        || MPI_T_pvar_session_create(&session) != MPI_SUCCESS)
        refuse(list, "the library has no tool interface");
    while ((text = strsep(&rest, ","))) add_item(text);
    free(copy);
}

void counters_begin(void) {
    for (int i = 0; i < item_count; i++)
        for (int t = 0; t < items[i].term_count; t++) items[i].terms[t].before = value_of(&items[i].terms[t]);
}

void counters_end(double operations) {
    /* All are read before anything is sent. */
    double mine[ITEMS_MAX][2] = {{0}}, all[ITEMS_MAX][2], most[ITEMS_MAX][2];
    if (!item_count) return;
    for (int i = 0; i < item_count; i++)
        for (int t = 0; t < items[i].term_count; t++) {
            const struct term *term = &items[i].terms[t];
            uint64_t now_ = value_of(term);
            mine[i][term->below] += (double)(term->is_total ? now_ - term->before : now_);
        }
    MPI_Reduce(mine, all, 2 * item_count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(mine, most, 2 * item_count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < item_count; i++)
        items[i].value = items[i].is_share ? (all[i][1] > 0 ? 100 * all[i][0] / all[i][1] : 0)
                         : items[i].is_total ? all[i][0] / operations
                                             : most[i][0];
    fresh = 1;
}

void counters_record(const char *test, long of_bytes, const char *parameters, double each) {
    if (!fresh) return;
    fresh = 0;
    for (int i = 0; i < item_count; i++) {
        char name[96], text[512];
        int scaled = items[i].is_total && !items[i].is_share;
        snprintf(name, sizeof name, "%s-counter", test);
        snprintf(text, sizeof text, "%s%s\"counter\":\"%s\"", parameters ? parameters : "", parameters ? "," : "",
                 items[i].text);
        record_value(name, of_bytes, text, items[i].is_share ? "%" : "count",
                     scaled ? items[i].value * each : items[i].value);
    }
}
