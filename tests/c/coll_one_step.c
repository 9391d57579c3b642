/* Non-blocking collectives that may be over when their call returns: whatever a program may do with their requests, it
 * may do with these, in whichever order, and what is wrong with one of them is told by who completes it. */
#include "check.h"

#include <unistd.h>

enum { many = 300, longer = 20000, calls = 40 };

static MPI_Comm comm;

enum kind { barrier, broadcast, reduction, reduction_to_all, scan, gather, scatter, gather_to_all, exchange, kinds };

/* What a rank brings to an operation for another one, or for all. */
static int brought(int at, int rank, int to, int i)
{
    return 1000 * at + 100000 * rank + 13 * to + i;
}

/* One of those that pass blocks of `n` elements: what this rank brings, in place where that may be, and its start. */
static void start_blocks(enum kind kind, int at, int n, int root, int in_place, int *data, int *result,
                         MPI_Request *request)
{
    int is_root = world_rank == root, has_many = kind == exchange || (kind == scatter && is_root);
    int *from = in_place && kind != scatter ? result : data;
    /* In place, what this rank has for all lies where its own comes. */
    int *mine = in_place && !has_many ? from + world_rank * n : from;
    in_place = in_place && (is_root || kind == gather_to_all || kind == exchange);
    if (!in_place) mine = from = data;
    for (int to = 0; to < (has_many ? world_size : 1); to++)
        for (int i = 0; i < n; i++) mine[to * n + i] = brought(at, world_rank, has_many ? to : 0, i);
    void *out = in_place && kind != scatter ? MPI_IN_PLACE : (void *)data;
    void *into = in_place && kind == scatter ? MPI_IN_PLACE : (void *)result;
    if (kind == gather) OK(MPI_Igather(out, n, MPI_INT, into, n, MPI_INT, root, comm, request));
    if (kind == scatter) OK(MPI_Iscatter(out, n, MPI_INT, into, n, MPI_INT, root, comm, request));
    if (kind == gather_to_all) OK(MPI_Iallgather(out, n, MPI_INT, into, n, MPI_INT, comm, request));
    if (kind == exchange) OK(MPI_Ialltoall(out, n, MPI_INT, into, n, MPI_INT, comm, request));
}

/* How many elements are not what has to come. */
static int wrong_blocks(enum kind kind, int at, int n, int root, int in_place, const int *result)
{
    int wrong = 0, is_root = world_rank == root;
    if (kind == gather && !is_root) return result[0] != -1;
    if (kind == scatter && in_place && is_root) return result[0] != -1;
    for (int from = 0; from < (kind == scatter ? 1 : world_size); from++)
        for (int i = 0; i < n; i++) {
            int is_for_me = kind == scatter || kind == exchange;
            int sender = kind == scatter ? root : from;
            wrong += result[from * n + i] != brought(at, sender, is_for_me ? world_rank : 0, i);
        }
    return wrong;
}

/* Short ones of all kinds and longer ones behind each other, started by ranks that come at different times and
 * completed in an order of each rank's own, by all the calls that complete something. */
static void in_any_order(uint64_t seed)
{
    static int data[calls][longer], results[calls][longer];
    MPI_Request requests[calls];
    uint64_t shared = seed + 1, own = seed * 31 + (uint64_t)world_rank + 1;
    int lengths[calls], of_kind[calls], roots[calls], in_place[calls], open = calls;
    for (int at = 0; at < calls; at++) {
        uint32_t drawn = next_random(&shared);
        lengths[at] = drawn % 7 == 0 ? longer : drawn % 7 == 1 ? 0 : (int)(drawn % 50);
        of_kind[at] = (int)(next_random(&shared) % kinds);
        roots[at] = (int)(next_random(&shared) % (unsigned)world_size);
        in_place[at] = (int)(next_random(&shared) % 2);
        results[at][0] = -1;
        for (int i = 0; i < lengths[at]; i++) {
            data[at][i] = of_kind[at] == broadcast && world_rank != roots[at] ? -1 : world_rank + at + i;
            results[at][i] = -1;
        }
    }
    for (int at = 0; at < calls; at++) {
        int n = lengths[at], root = roots[at];
        if (next_random(&own) % 16 == 0) usleep(200);
        if (of_kind[at] == barrier) OK(MPI_Ibarrier(comm, &requests[at]));
        if (of_kind[at] == broadcast) OK(MPI_Ibcast(data[at], n, MPI_INT, root, comm, &requests[at]));
        if (of_kind[at] == reduction)
            OK(MPI_Ireduce(data[at], results[at], n, MPI_INT, MPI_SUM, root, comm, &requests[at]));
        if (of_kind[at] == reduction_to_all)
            OK(MPI_Iallreduce(data[at], results[at], n, MPI_INT, MPI_SUM, comm, &requests[at]));
        if (of_kind[at] >= gather)
            start_blocks(of_kind[at], at, n / world_size, root, in_place[at], data[at], results[at], &requests[at]);
        if (of_kind[at] == scan) OK(MPI_Iscan(data[at], results[at], n, MPI_INT, MPI_SUM, comm, &requests[at]));
        /* A blocking one comes between, at a place of each rank's own. */
        if (at == world_rank % calls) {
            int sum = 0;
            OK(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm));
            CHECK(sum == world_size * (world_size - 1) / 2);
        }
    }
    while (open > 0) {
        int at = (int)(next_random(&own) % calls), flag = 0, index = -1, count = 0, indices[calls];
        switch (next_random(&own) % 6) {
        case 0:
            open -= requests[at] != MPI_REQUEST_NULL;
            OK(MPI_Wait(&requests[at], MPI_STATUS_IGNORE));
            break;
        case 1:
            count = requests[at] != MPI_REQUEST_NULL;
            OK(MPI_Test(&requests[at], &flag, MPI_STATUS_IGNORE));
            open -= flag && count;
            break;
        case 2:
            OK(MPI_Waitany(calls, requests, &index, MPI_STATUS_IGNORE));
            open -= index != MPI_UNDEFINED;
            break;
        case 3:
            OK(MPI_Testany(calls, requests, &index, &flag, MPI_STATUS_IGNORE));
            open -= flag && index != MPI_UNDEFINED;
            break;
        case 4:
            OK(MPI_Testsome(calls, requests, &count, indices, MPI_STATUSES_IGNORE));
            open -= count == MPI_UNDEFINED ? 0 : count;
            break;
        default:
            if (open > calls / 3) break;
            OK(MPI_Waitall(calls, requests, MPI_STATUSES_IGNORE));
            open = 0;
        }
    }
    for (int at = 0; at < calls; at++) {
        CHECK(requests[at] == MPI_REQUEST_NULL);
        int all = world_size * (world_size - 1) / 2, below = world_rank * (world_rank + 1) / 2, wrong = 0;
        for (int i = 0; i < lengths[at]; i++) {
            int has_result = of_kind[at] == reduction_to_all || (of_kind[at] == reduction && world_rank == roots[at]);
            wrong += of_kind[at] == broadcast && data[at][i] != roots[at] + at + i;
            wrong += has_result && results[at][i] != all + world_size * (at + i);
            wrong += of_kind[at] == scan && results[at][i] != below + (world_rank + 1) * (at + i);
            wrong += of_kind[at] == reduction && !has_result && results[at][i] != -1;
        }
        if (of_kind[at] >= gather)
            wrong += wrong_blocks(of_kind[at], at, lengths[at] / world_size, roots[at], in_place[at], results[at]);
        CHECK(wrong == 0);
    }
}

/* A root runs far ahead, and its data are its own again as soon as it is told that they are. */
static void running_ahead(int root)
{
    static int data[many];
    MPI_Request requests[many], one;
    for (int i = 0; i < many; i++) {
        data[i] = world_rank == root ? i : -1;
        OK(MPI_Ibcast(&data[i], 1, MPI_INT, root, comm, &requests[i]));
    }
    OK(MPI_Waitall(many, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < many; i++) CHECK(data[i] == i);
    for (int i = 0; i < many; i++) {
        int number = world_rank == root ? i : -1;
        OK(MPI_Ibcast(&number, 1, MPI_INT, root, comm, &one));
        OK(MPI_Wait(&one, MPI_STATUS_IGNORE));
        CHECK(number == i);
        number = -2;
    }
}

/* Under way or over, such a request is asked about, can not be cancelled or freed, and has an empty status. */
static void requests_as_others(int root)
{
    MPI_Request request, copy;
    MPI_Status status;
    int number = world_rank == root ? 17 : -1, flag = 0, bytes = -1, cancelled = 1;
    OK(MPI_Ibcast(&number, 1, MPI_INT, root, comm, &request));
    copy = request;
    CHECK(request != MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST && request == copy);
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST && request == copy);
    CHECK(MPI_Request_fromint(MPI_Request_toint(request)) == request);
    while (!flag) OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(request == copy && number == 17);
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST && request == copy);
    memset(&status, 0x55, sizeof status);
    OK(MPI_Wait(&request, &status));
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Get_count(&status, MPI_INT, &bytes));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(bytes == 0 && !cancelled);
    /* Its handle is one that was given up. */
    CHECK(class_of(MPI_Wait(&copy, &status)) == MPI_ERR_REQUEST);
}

static void add_pairs(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int *from = in, *into = inout;
    (void)type;
    for (int i = 0; i < 2 * *count; i++) into[i] += from[i];
}

/* All that an operation needs may be freed while it is under way, by everybody at another time. */
static void freed_under_way(void)
{
    MPI_Comm other;
    MPI_Datatype pair;
    MPI_Op op;
    MPI_Request requests[2 * calls];
    int mine[2] = {world_rank, 1}, sums[calls][2], numbers[calls][2];
    OK(MPI_Comm_dup(comm, &other));
    for (int at = 0; at < 2 * calls; at++) {
        int is_reduced = at % 2, *number = numbers[at / 2];
        OK(MPI_Type_contiguous(2, MPI_INT, &pair));
        OK(MPI_Type_commit(&pair));
        OK(MPI_Op_create(add_pairs, 1, &op));
        if (!is_reduced) number[0] = number[1] = world_rank == at % world_size ? at : -1;
        if (at % 5 == world_rank) usleep(100);
        if (is_reduced) OK(MPI_Iallreduce(mine, sums[at / 2], 1, pair, op, other, &requests[at]));
        else OK(MPI_Ibcast(number, 1, pair, at % world_size, other, &requests[at]));
        OK(MPI_Op_free(&op));
        OK(MPI_Type_free(&pair));
    }
    OK(MPI_Comm_free(&other));
    OK(MPI_Waitall(2 * calls, requests, MPI_STATUSES_IGNORE));
    for (int at = 0; at < calls; at++) {
        CHECK(sums[at][0] == world_size * (world_size - 1) / 2 && sums[at][1] == world_size);
        CHECK(numbers[at][0] == 2 * at && numbers[at][1] == 2 * at);
    }
}

/* Who expects another length learns it from the call that completes the operation, not from the one that starts it;
 * those behind it come to their ends. Of blocks by messages only who gets too long a one learns it. */
static void disagreement(int is_late, int has_boards)
{
    enum { behind = 5 };
    MPI_Request wrong, requests[behind];
    int data[64] = {0}, result[64] = {0}, numbers[behind] = {0, 1, 2, 3, 4}, sums[behind];
    int root = world_size - 1;
    int count = world_rank == root ? 4 : 3;
    CHECK(4 * world_size <= 64);
    for (int call = 0; call < 7; call++) {
        if (is_late == (world_rank == root)) usleep(2000);
        if (call == 0) OK(MPI_Ibcast(data, count, MPI_INT, root, comm, &wrong));
        if (call == 1) OK(MPI_Ireduce(data, result, count, MPI_INT, MPI_SUM, root, comm, &wrong));
        if (call == 2) OK(MPI_Iallreduce(data, result, count, MPI_INT, MPI_SUM, comm, &wrong));
        if (call == 3) OK(MPI_Iallgather(data, count, MPI_INT, result, count, MPI_INT, comm, &wrong));
        if (call == 4) OK(MPI_Ialltoall(data, count, MPI_INT, result, count, MPI_INT, comm, &wrong));
        if (call == 5) OK(MPI_Igather(data, count, MPI_INT, result, count, MPI_INT, root, comm, &wrong));
        if (call == 6) OK(MPI_Iscatter(data, count, MPI_INT, result, count, MPI_INT, root, comm, &wrong));
        for (int at = 0; at < behind; at++)
            OK(MPI_Iallreduce(&numbers[at], &sums[at], 1, MPI_INT, MPI_SUM, comm, &requests[at]));
        OK(MPI_Waitall(behind, requests, MPI_STATUSES_IGNORE));
        for (int at = 0; at < behind; at++) CHECK(sums[at] == at * world_size);
        int learnt = class_of(MPI_Wait(&wrong, MPI_STATUS_IGNORE));
        int is_for_all = call >= 2 && call <= 4, is_to_root = call == 1 || call == 5;
        int reads = (is_for_all || is_to_root == (world_rank == root)) && (call < 3 || has_boards);
        CHECK(reads ? learnt == MPI_ERR_TRUNCATE : learnt == MPI_SUCCESS || learnt == MPI_ERR_TRUNCATE);
        CHECK(wrong == MPI_REQUEST_NULL);
        OK(MPI_Barrier(comm));
    }
}

static int handled;

static void note(MPI_Comm *where, int *code, ...)
{
    handled += *where == comm && class_of(*code) == MPI_ERR_TRUNCATE;
}

/* That error goes to the handler of the communicator, once, in the completing call. */
static void handled_where_it_belongs(void)
{
    MPI_Errhandler handler;
    MPI_Request request;
    int data[4] = {0}, result[4] = {0};
    OK(MPI_Comm_create_errhandler(note, &handler));
    OK(MPI_Comm_set_errhandler(comm, handler));
    handled = 0;
    if (world_rank == 0) usleep(2000);
    OK(MPI_Iallreduce(data, result, world_rank == 0 ? 4 : 3, MPI_INT, MPI_SUM, comm, &request));
    CHECK(handled == 0);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE);
    CHECK(handled == 1);
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Barrier(comm));
}

/* Number of operations under way, by a performance variable. */
static unsigned long long pending(void)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    unsigned long long level = 99;
    int provided = 0, index = 0, count = 0;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_pvar_get_index("operations_pending", MPI_T_PVAR_CLASS_LEVEL, &index));
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    OK(MPI_T_pvar_read(session, handle, &level));
    OK(MPI_T_pvar_handle_free(session, &handle));
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
    return level;
}

/* What need not wait is over when it is started, and is none of those under way; what has to wait is one. */
static void over_at_once(void)
{
    MPI_Request request;
    int number = 5, flag = 0, sum = 0;
    OK(MPI_Barrier(comm));
    OK(MPI_Ibcast(&number, 1, MPI_INT, 0, comm, &request));
    if (world_rank == 0) CHECK(pending() == 0);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(comm));
    /* Rank 0 begins, all others when it has told them that it has, and then rank 0 is told that they have. */
    if (world_rank > 0) OK(MPI_Recv(&flag, 1, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE));
    OK(MPI_Iallreduce(&number, &sum, 1, MPI_INT, MPI_SUM, comm, &request));
    CHECK(world_rank > 0 || pending() == 1);
    for (int rank = 1; rank < world_size && world_rank == 0; rank++) OK(MPI_Send(&flag, 1, MPI_INT, rank, 1, comm));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == 5 * world_size && pending() == 0);
}

int main(int argc, char **argv)
{
    int sum = 0;
    MPI_Request request;
    start(&argc, &argv);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    /* The first are messages, and boards are looked for among them. */
    for (uint64_t seed = 0; seed < 8; seed++) in_any_order(seed);
    for (int i = 0; i < 20; i++) {
        OK(MPI_Iallreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(sum == world_size * (world_size - 1) / 2);
    }
    for (int root = 0; root < world_size; root++) {
        running_ahead(root);
        requests_as_others(root);
    }
    freed_under_way();
    int has_boards = argc > 1 && strcmp(argv[1], "boards") == 0;
    for (int is_late = 0; is_late < 2 && world_size > 1; is_late++) disagreement(is_late, has_boards);
    if (world_size > 1) handled_where_it_belongs();
    if (has_boards) over_at_once();
    for (uint64_t seed = 8; seed < 16; seed++) in_any_order(seed);
    OK(MPI_Comm_free(&comm));
    return finish();
}
