/* Handles as programs that err use them: many at a time, freed ones, those of other kinds, values that no handle has.
 * Calls that only look at an object are tried in a short way first: they have to agree with calls that are not.
 * With an argument the same as a program of several threads, where no call goes the short way. */
#include "check.h"

#include <pthread.h>

enum { many = 1500, threads = 3, rounds = 200, values = 0x1100, window = 8 };

static MPI_Datatype types[many], freed[many];

static MPI_Datatype type_of(uintptr_t value)
{
    return (MPI_Datatype)value;
}

/* Two ints whose starts are `i` + 1 ints apart. */
static void make(int i)
{
    OK(MPI_Type_vector(2, 1, i + 1, MPI_INT, &types[i]));
}

static void check_made(MPI_Datatype type, int i)
{
    MPI_Aint lower = -1, extent = -1;
    MPI_Status status;
    int size = -1, count = -1;
    OK(MPI_Type_get_extent(type, &lower, &extent));
    CHECK(lower == 0 && extent == (MPI_Aint)((i + 2) * sizeof(int)));
    OK(MPI_Type_size(type, &size));
    CHECK(size == 2 * sizeof(int));
    OK(MPI_Sendrecv(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, NULL, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &status));
    OK(MPI_Status_set_elements(&status, type, 6));
    OK(MPI_Get_count(&status, type, &count));
    CHECK(count == 3);
}

static void refuse(MPI_Datatype type)
{
    MPI_Aint lower = -1, extent = -1;
    MPI_Datatype given = type;
    int size = -1, position = 0, in[4] = {0}, out[4] = {0};
    CHECK(class_of(MPI_Type_get_extent(type, &lower, &extent)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Type_size(type, &size)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Pack(in, 1, type, out, sizeof out, &position, MPI_COMM_SELF)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Type_commit(&given)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Type_free(&given)) == MPI_ERR_TYPE);
    CHECK(lower == -1 && extent == -1 && size == -1 && position == 0 && given == type);
}

static void many_at_a_time(void)
{
    for (int i = 0; i < many; i++) make(i);
    for (int i = 0; i < many; i++) check_made(types[i], i);
    for (int i = 1; i < many; i += 2) {
        freed[i] = types[i];
        OK(MPI_Type_free(&types[i]));
        CHECK(types[i] == MPI_DATATYPE_NULL);
    }
    for (int i = 1; i < many; i += 2) refuse(freed[i]);
    for (int i = 0; i < many; i += 2) check_made(types[i], i);
    for (int i = 1; i < many; i += 2) make(i);
    for (int i = 1; i < many; i += 2) {
        CHECK(types[i] != freed[i]);
        refuse(freed[i]);
    }
    for (int i = 0; i < many; i++) check_made(types[i], i);
    for (int i = 0; i < many; i++) OK(MPI_Type_free(&types[i]));
}

/* The predefined values, those between them, and what is one bit from a handle. */
static void any_value(void)
{
    MPI_Datatype live, type;
    int size, rank, result, known = 0;
    for (uintptr_t value = 0; value < values; value++) {
        MPI_Comm comm = (MPI_Comm)value;
        int integers, addresses, types, combiner;
        int quick = class_of(MPI_Type_size(type_of(value), &size));
        CHECK(quick == class_of(MPI_Type_get_envelope(type_of(value), &integers, &addresses, &types, &combiner)));
        CHECK(quick == MPI_SUCCESS || quick == MPI_ERR_TYPE);
        known += quick == MPI_SUCCESS;
        quick = class_of(MPI_Comm_rank(comm, &rank));
        CHECK((quick == MPI_SUCCESS) == (comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF));
        CHECK(quick == class_of(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result)));
    }
    CHECK(known > 40);
    OK(MPI_Type_contiguous(3, MPI_INT, &live));
    for (int bit = 0; bit < 64; bit++) {
        type = type_of((uintptr_t)live ^ (uintptr_t)1 << bit);
        refuse(type);
        CHECK(class_of(MPI_Comm_rank((MPI_Comm)type, &rank)) == MPI_ERR_COMM);
    }
    refuse(type_of(UINTPTR_MAX));
    CHECK(class_of(MPI_Comm_rank((MPI_Comm)live, &rank)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Comm_rank(MPI_COMM_WORLD, NULL)) == MPI_ERR_ARG);
    OK(MPI_Type_free(&live));
}

/* What a type was made of is found again under its handle, predefined or not, even if its own was freed. */
static void made_of(void)
{
    MPI_Datatype inner, outer, again, types[2];
    MPI_Aint places[2] = {0, 16}, addresses[2];
    int lengths[2] = {1, 2}, numbers[8], length;
    char name[MPI_MAX_OBJECT_NAME], before[MPI_MAX_OBJECT_NAME];
    OK(MPI_Type_get_name(MPI_INT, before, &length));
    OK(MPI_Type_set_name(MPI_INT, "whole number"));
    OK(MPI_Type_vector(2, 1, 3, MPI_INT, &inner));
    OK(MPI_Type_get_contents(inner, 3, 0, 1, numbers, addresses, types));
    CHECK(numbers[0] == 2 && numbers[1] == 1 && numbers[2] == 3 && types[0] == MPI_INT);
    OK(MPI_Type_get_name(types[0], name, &length));
    CHECK(!strcmp(name, "whole number"));
    OK(MPI_Type_set_name(MPI_INT, before));
    OK(MPI_Type_set_name(inner, "inner"));
    types[0] = MPI_DOUBLE, types[1] = inner;
    OK(MPI_Type_create_struct(2, lengths, places, types, &outer));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_get_contents(outer, 3, 2, 2, numbers, addresses, types));
    CHECK(numbers[0] == 2 && numbers[1] == 1 && numbers[2] == 2 && addresses[1] == 16 && types[0] == MPI_DOUBLE);
    OK(MPI_Type_get_name(types[1], name, &length));
    CHECK(!strcmp(name, "inner"));
    check_made(types[1], 2);
    OK(MPI_Type_free(&outer));
    check_made(types[1], 2);
    OK(MPI_Type_dup(types[1], &again));
    OK(MPI_Type_free(&types[1]));
    check_made(again, 2);
    OK(MPI_Type_free(&again));
}

static int deletions;

static int free_again(MPI_Datatype type, int key, void *attribute, void *state)
{
    (void)key, (void)attribute, (void)state;
    if (deletions++ == 0)
        OK(MPI_Type_free(&type));
    return MPI_SUCCESS;
}

/* The call that frees a type runs code of the user, which frees it before. */
static void freed_while_freed(void)
{
    MPI_Datatype type, copy;
    int key;
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, free_again, &key, NULL));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, NULL));
    copy = type;
    CHECK(class_of(MPI_Type_free(&type)) == MPI_ERR_TYPE);
    CHECK(type == copy && deletions == 2);
    refuse(type);
    OK(MPI_Type_free_keyval(&key));
}

static int is_empty(const MPI_Status *status)
{
    int count = -1, is_cancelled = -1;
    OK(MPI_Get_count(status, MPI_INT, &count));
    OK(MPI_Test_cancelled(status, &is_cancelled));
    return status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0 && !is_cancelled;
}

/* Waiting for requests of which all are null, none, some, or one that has been freed. */
static void null_requests(void)
{
    MPI_Request requests[window], stale;
    MPI_Status statuses[window];
    int in = 0, out = 7;
    for (int i = 0; i < window; i++) requests[i] = MPI_REQUEST_NULL;
    memset(statuses, 0x55, sizeof statuses);
    OK(MPI_Waitall(window, requests, statuses));
    for (int i = 0; i < window; i++) CHECK(is_empty(&statuses[i]) && statuses[i].MPI_ERROR == MPI_SUCCESS);
    OK(MPI_Waitall(window, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    CHECK(class_of(MPI_Waitall(window, NULL, MPI_STATUSES_IGNORE)) != MPI_SUCCESS);
    CHECK(class_of(MPI_Waitall(-1, requests, MPI_STATUSES_IGNORE)) != MPI_SUCCESS);

    OK(MPI_Irecv(&in, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[window - 1]));
    stale = requests[window - 1];
    OK(MPI_Isend(&out, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[2]));
    memset(statuses, 0x55, sizeof statuses);
    OK(MPI_Waitall(window, requests, statuses));
    CHECK(in == 7 && statuses[window - 1].MPI_SOURCE == 0 && statuses[window - 1].MPI_TAG == 3);
    for (int i = 0; i < window; i++) {
        CHECK(requests[i] == MPI_REQUEST_NULL);
        CHECK(i == 2 || i == window - 1 || is_empty(&statuses[i]));
    }
    requests[window - 1] = stale;
    memset(statuses, 0x55, sizeof statuses);
    CHECK(class_of(MPI_Waitall(window, requests, statuses)) == MPI_ERR_REQUEST);
    CHECK(untouched(statuses, sizeof statuses, 0x55) && requests[window - 1] == stale);
}

/* Threads that make, ask and free types of their own, whose slots go round among them. */
static void *thread(void *number)
{
    int mine = (int)(intptr_t)number;
    for (int round = 0; round < rounds; round++) {
        for (int i = mine; i < many; i += threads * 50) make(i);
        for (int i = mine; i < many; i += threads * 50) check_made(types[i], i);
        for (int i = mine; i < many; i += threads * 50) {
            MPI_Datatype copy = types[i];
            OK(MPI_Type_free(&types[i]));
            refuse(copy);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int has_threads = argc > 1, provided;
    OK(MPI_Init_thread(&argc, &argv, has_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    many_at_a_time();
    any_value();
    made_of();
    freed_while_freed();
    null_requests();
    if (has_threads) {
        pthread_t started[threads];
        for (int i = 0; i < threads; i++)
            CHECK(pthread_create(&started[i], NULL, thread, (void *)(intptr_t)i) == 0);
        for (int i = 0; i < threads; i++) CHECK(pthread_join(started[i], NULL) == 0);
    }
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    return finish();
}
