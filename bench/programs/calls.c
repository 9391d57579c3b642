/* Calls that need no other process: what they cost by themselves, where programs make them in inner loops. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

/* What the calls are about, made before anything is measured. */
static MPI_Datatype vector;
static MPI_Status status;
static MPI_Request none = MPI_REQUEST_NULL, many[8];
static int key, marker, four[4] = {1, 2, 3, 4}, other[4], result;
static MPI_Aint lower, extent;
static void *attribute;

#define CALLS(name, call)                        \
    static void name(long count) {               \
        for (long i = 0; i < count; i++) call;   \
    }

CALLS(comm_rank, MPI_Comm_rank(MPI_COMM_WORLD, &result))
CALLS(comm_get_attr, MPI_Comm_get_attr(MPI_COMM_WORLD, key, &attribute, &result))
CALLS(type_size, MPI_Type_size(MPI_INT, &result))
CALLS(type_get_extent, MPI_Type_get_extent(vector, &lower, &extent))
CALLS(get_count, MPI_Get_count(&status, MPI_INT, &result))
CALLS(test_null, MPI_Test(&none, &result, MPI_STATUS_IGNORE))
CALLS(waitall_null, MPI_Waitall(8, many, MPI_STATUSES_IGNORE))
CALLS(iprobe, MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &result, MPI_STATUS_IGNORE))
CALLS(send_to_nobody, MPI_Send(four, 4, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD))
CALLS(reduce_local, MPI_Reduce_local(four, other, 4, MPI_INT, MPI_BOR))
CALLS(allreduce_alone, MPI_Allreduce(four, other, 4, MPI_INT, MPI_SUM, MPI_COMM_SELF))
CALLS(barrier_alone, MPI_Barrier(MPI_COMM_SELF))

static void sendrecv_alone(long count) {
    for (long i = 0; i < count; i++)
        MPI_Sendrecv(four, 4, MPI_INT, 0, 1, other, 4, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void pack_ints(long count) {
    for (long i = 0; i < count; i++) {
        int position = 0;
        MPI_Pack(four, 4, MPI_INT, other, sizeof other, &position, MPI_COMM_WORLD);
    }
}

static void type_vector(long count) {
    for (long i = 0; i < count; i++) {
        MPI_Datatype made;
        MPI_Type_vector(4, 2, 3, MPI_INT, &made);
        MPI_Type_commit(&made);
        MPI_Type_free(&made);
    }
}

static const struct {
    const char *name;
    operation *run;
    int expected; /* of `result`; -1: of no call, or not the same in all ranks */
} calls[] = {{"comm_rank", comm_rank, -1},
             {"comm_get_attr", comm_get_attr, 1},
             {"type_size", type_size, sizeof(int)},
             {"type_get_extent", type_get_extent, -1},
             {"get_count", get_count, 4},
             {"test_null", test_null, 1},
             {"waitall_null", waitall_null, -1},
             {"iprobe", iprobe, -1},
             {"send_to_nobody", send_to_nobody, -1},
             {"pack_ints", pack_ints, -1},
             {"reduce_local", reduce_local, -1},
             {"sendrecv_alone", sendrecv_alone, -1},
             {"barrier_alone", barrier_alone, -1},
             {"allreduce_alone", allreduce_alone, -1},
             {"type_vector", type_vector, -1}};

static void local_calls(void) {
    const char *wanted = parameter_text("call", "all");
    char text[64];
    for (int i = 0; i < 8; i++) many[i] = MPI_REQUEST_NULL;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, &marker);
    MPI_Type_vector(4, 2, 3, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    MPI_Sendrecv(four, 4, MPI_INT, 0, 1, other, 4, MPI_INT, 0, 1, MPI_COMM_SELF, &status);
    memset(other, 0, sizeof other);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        calls[c].run(1);
        need(calls[c].expected < 0 || calls[c].expected == result, calls[c].name, result);
    }
    need(memcmp(four, other, sizeof four) == 0 && attribute == &marker && extent == 11 * sizeof(int), "results", 0);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        if (strcmp(wanted, "all") && !strstr(wanted, calls[c].name)) continue;
        snprintf(text, sizeof text, "\"call\":\"%s\"", calls[c].name);
        record("calls", 0, text, "ns", 1, 0, measure(calls[c].run, ROOT, 0));
    }
    MPI_Type_free(&vector);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    MPI_Comm_free_keyval(&key);
}

const struct test call_tests[] = {{"calls", local_calls, 0}, {NULL, NULL, 0}};
