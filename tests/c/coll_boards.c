/* Short collectives on one host, over and over: on more communicators at once than there are boards, on such that come
 * and go, with roots that run ahead, of sizes on both sides of every limit. */
#include "check.h"

#include <unistd.h>

enum { longest = 300000 };

static int *in, *out;
static MPI_Datatype affine_type;

/* Functions x -> a x + b, one after another: associative, not commutative. */
struct affine { unsigned a, b; };

static struct affine after(struct affine outer, struct affine inner)
{
    return (struct affine){outer.a * inner.a, outer.a * inner.b + outer.b};
}

static void compose(void *left, void *right, int *len, MPI_Datatype *type)
{
    struct affine *outer = left, *inner = right;
    (void)type;
    for (int i = 0; i < *len; i++) inner[i] = after(outer[i], inner[i]);
}

static struct affine function_of(int rank, int i)
{
    return (struct affine){(unsigned)(2 * rank + 3 + i), (unsigned)(rank * 7 + i)};
}

static void allreduce(MPI_Comm comm, int count, MPI_Op op)
{
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    for (int i = 0; i < count; i++) in[i] = r + i, out[i] = -1;
    OK(MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < count; i++) CHECK(out[i] == ranks * i + ranks * (ranks - 1) / 2);
    struct affine *functions = (struct affine *)in, *composed = (struct affine *)out;
    for (int i = 0; i < count; i++) functions[i] = function_of(r, i), composed[i] = (struct affine){0, 0};
    OK(MPI_Allreduce(functions, composed, count, affine_type, op, comm));
    OK(MPI_Allreduce(MPI_IN_PLACE, functions, count, affine_type, op, comm));
    for (int i = 0; i < count; i++) {
        struct affine expected = function_of(0, i);
        for (int rank = 1; rank < ranks; rank++) expected = after(expected, function_of(rank, i));
        CHECK(composed[i].a == expected.a && composed[i].b == expected.b);
        CHECK(functions[i].a == expected.a && functions[i].b == expected.b);
    }
}

static void blocks(MPI_Comm comm, int count)
{
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    for (int i = 0; i < ranks * count; i++) in[i] = 1000 * r + i, out[i] = -1;
    OK(MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, comm));
    for (int i = 0; i < ranks * count; i++) CHECK(out[i] == 1000 * (i / count) + r * count + i % count);
    OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, count, MPI_INT, comm));
    for (int i = 0; i < ranks * count; i++) CHECK(in[i] == out[i]);
    for (int i = 0; i < count; i++) in[i] = 7 * r + i;
    OK(MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm));
    for (int i = 0; i < ranks * count; i++) CHECK(out[i] == 7 * (i / count) + i % count);
    for (int i = 0; i < ranks * count; i++) out[i] = i / count == r ? 9 * r + i % count : -1;
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, MPI_INT, comm));
    for (int i = 0; i < ranks * count; i++) CHECK(out[i] == 9 * (i / count) + i % count);
}

/* Blocks that take several steps where ranks outnumber cores, some of whose pieces are not whole lines, and such that
 * lie in memory with gaps. */
static void long_blocks(MPI_Comm comm)
{
    static const int counts[] = {8193, 20001, 36997, 37000, 75001, 149999};
    int r, ranks;
    MPI_Datatype every_other;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    for (int round = 0; round < 6; round++)
        if (ranks * counts[round] <= longest) blocks(comm, counts[round]);
    OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_other));
    OK(MPI_Type_commit(&every_other));
    int count = longest / 2 / ranks;
    for (int i = 0; i < 2 * ranks * count; i++) in[i] = i % 2 ? -2 : 1000 * r + i / 2, out[i] = -1;
    OK(MPI_Alltoall(in, count, every_other, out, count, MPI_INT, comm));
    for (int i = 0; i < ranks * count; i++) CHECK(out[i] == 1000 * (i / count) + r * count + i % count);
    for (int i = 0; i < 2 * ranks * count; i++) in[i] = out[i], out[i] = -1;
    OK(MPI_Alltoall(in, count, MPI_INT, out, count, every_other, comm));
    for (int i = 0; i < 2 * ranks * count; i++) CHECK(out[i] == (i % 2 ? -1 : 1000 * r + i / 2));
    for (int i = 0; i < count; i++) in[i] = 7 * r + i;
    OK(MPI_Allgather(in, count, MPI_INT, out, count, every_other, comm));
    for (int i = 0; i < 2 * ranks * count; i++)
        CHECK(out[i] == (i % 2 ? -1 : 7 * (i / 2 / count) + i / 2 % count));
    OK(MPI_Type_free(&every_other));
}

/* How many numbers `from` sends to `to`: none, a few, many; once, from one of them, more than boards are used for. */
static int part_of(int from, int to, int round, int most)
{
    unsigned mixed = (unsigned)(from * 7919 + to * 104729 + round * 1299709);
    mixed ^= mixed >> 7;
    if (round == 5 && from == 1) return most;
    return mixed % 4 == 0 ? 0 : mixed % 4 == 1 ? (int)(mixed % 50) : (int)(mixed % (unsigned)(most / 8));
}

static int number_of(int from, int to, int i)
{
    return from * 1000003 + to * 10007 + i;
}

/* Blocks of any lengths, of one type and of several, with gaps between them. */
static void uneven_blocks(MPI_Comm comm)
{
    enum { most = 600000, gap = 3, rounds = 8 };
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    int *counts = calloc(6 * ranks, sizeof *counts), *from = counts + ranks, *to = from + ranks;
    int *received = to + ranks, *from_bytes = received + ranks, *to_bytes = from_bytes + ranks;
    MPI_Datatype *numbers = calloc(2 * ranks, sizeof *numbers), *pairs = numbers + ranks, pair;
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    for (int round = 0; round < rounds; round++) {
        int out_count = 0, in_count = 0, is_typed = round % 2;
        for (int peer = 0; peer < ranks; peer++) {
            counts[peer] = part_of(r, peer, round, most) & ~1;
            received[peer] = part_of(peer, r, round, most) & ~1;
            from[peer] = out_count, to[peer] = in_count;
            from_bytes[peer] = 4 * out_count, to_bytes[peer] = 4 * in_count;
            out_count += counts[peer] + gap, in_count += received[peer] + gap;
            numbers[peer] = MPI_INT, pairs[peer] = pair;
        }
        int *goes = calloc(out_count, sizeof *goes), *comes = calloc(in_count, sizeof *comes);
        for (int peer = 0; peer < ranks; peer++)
            for (int i = 0; i < counts[peer]; i++) goes[from[peer] + i] = number_of(r, peer, i);
        for (int i = 0; i < in_count; i++) comes[i] = -1;
        if (is_typed) {
            for (int peer = 0; peer < ranks; peer++) received[peer] /= 2;
            OK(MPI_Alltoallw(goes, counts, from_bytes, numbers, comes, received, to_bytes, pairs, comm));
            for (int peer = 0; peer < ranks; peer++) received[peer] *= 2;
        } else {
            OK(MPI_Alltoallv(goes, counts, from, MPI_INT, comes, received, to, MPI_INT, comm));
        }
        for (int peer = 0; peer < ranks; peer++) {
            for (int i = 0; i < received[peer]; i++) CHECK(comes[to[peer] + i] == number_of(peer, r, i));
            for (int i = 0; i < gap; i++) CHECK(comes[to[peer] + received[peer] + i] == -1);
        }
        if (round == 3) OK(MPI_Barrier(comm));
        free(goes), free(comes);
    }
    OK(MPI_Type_free(&pair));
    free(counts), free(numbers);
}

/* What an in-order product of the functions of ranks `first` to `last` is at `i`. */
static struct affine product(int first, int last, int i)
{
    struct affine all = function_of(first, i);
    for (int rank = first + 1; rank <= last; rank++) all = after(all, function_of(rank, i));
    return all;
}

static int is_product(struct affine found, int first, int last, int i)
{
    struct affine expected = product(first, last, i);
    return found.a == expected.a && found.b == expected.b;
}

/* To a root and from one; what is in place, is. */
static void rooted(MPI_Comm comm, int count, int root, MPI_Op op)
{
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    struct affine *functions = (struct affine *)in, *composed = (struct affine *)out;
    for (int i = 0; i < count; i++) functions[i] = function_of(r, i), composed[i] = (struct affine){0, 0};
    OK(MPI_Reduce(functions, composed, count, affine_type, op, root, comm));
    for (int i = 0; i < count; i++)
        CHECK(r == root ? is_product(composed[i], 0, ranks - 1, i) : composed[i].a == 0 && composed[i].b == 0);
    OK(MPI_Reduce(r == root ? MPI_IN_PLACE : functions, functions, count, affine_type, op, root, comm));
    for (int i = 0; r == root && i < count; i++) CHECK(is_product(functions[i], 0, ranks - 1, i));
    for (int i = 0; i < count; i++) in[i] = r + i, out[i] = -1;
    OK(MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, root, comm));
    for (int i = 0; i < count; i++) CHECK(out[i] == (r == root ? ranks * i + ranks * (ranks - 1) / 2 : -1));
    OK(MPI_Reduce(r == root ? MPI_IN_PLACE : in, in, count, MPI_INT, MPI_SUM, root, comm));
    for (int i = 0; r == root && i < count; i++) CHECK(in[i] == out[i]);
    if (ranks * count > longest) return;

    for (int i = 0; i < count; i++) in[i] = 11 * r + i;
    for (int i = 0; i < ranks * count; i++) out[i] = -1;
    OK(MPI_Gather(in, count, MPI_INT, out, count, MPI_INT, root, comm));
    for (int i = 0; i < ranks * count; i++) CHECK(out[i] == (r == root ? 11 * (i / count) + i % count : -1));
    for (int i = 0; i < count; i++) out[(r == root ? r * count : 0) + i] = 13 * r + i;
    OK(MPI_Gather(r == root ? MPI_IN_PLACE : out, count, MPI_INT, out, count, MPI_INT, root, comm));
    for (int i = 0; r == root && i < ranks * count; i++) CHECK(out[i] == 13 * (i / count) + i % count);
    for (int i = 0; i < ranks * count; i++) in[i] = r == root ? 3 * i : -2, out[i] = -1;
    OK(MPI_Scatter(in, count, MPI_INT, out, count, MPI_INT, root, comm));
    for (int i = 0; i < count; i++) CHECK(out[i] == 3 * (r * count + i));
    OK(MPI_Scatter(in, count, MPI_INT, r == root ? MPI_IN_PLACE : out, count, MPI_INT, root, comm));
    for (int i = 0; i < count; i++) CHECK(out[i] == 3 * (r * count + i));
    for (int i = 0; i < ranks * count; i++) CHECK(in[i] == (r == root ? 3 * i : -2));
}

/* Reductions of which each member gets a block, or those before it. */
static void partial(MPI_Comm comm, int count, MPI_Op op)
{
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    struct affine *functions = (struct affine *)in, *composed = (struct affine *)out;
    for (int i = 0; i < count; i++) functions[i] = function_of(r, i), composed[i] = (struct affine){5, 5};
    OK(MPI_Scan(functions, composed, count, affine_type, op, comm));
    for (int i = 0; i < count; i++) CHECK(is_product(composed[i], 0, r, i)), composed[i] = (struct affine){5, 5};
    OK(MPI_Exscan(functions, composed, count, affine_type, op, comm));
    for (int i = 0; i < count; i++)
        CHECK(r ? is_product(composed[i], 0, r - 1, i) : composed[i].a == 5 && composed[i].b == 5);
    OK(MPI_Scan(MPI_IN_PLACE, functions, count, affine_type, op, comm));
    for (int i = 0; i < count; i++) CHECK(is_product(functions[i], 0, r, i)), in[i] = r + i;
    OK(MPI_Exscan(MPI_IN_PLACE, in, count, MPI_INT, MPI_SUM, comm));
    for (int i = 0; r && i < count; i++) CHECK(in[i] == r * i + r * (r - 1) / 2);
    if (2 * ranks * count > longest) return;

    for (int i = 0; i < ranks * count; i++) functions[i] = function_of(r, i);
    OK(MPI_Reduce_scatter_block(functions, composed, count, affine_type, op, comm));
    for (int i = 0; i < count; i++) CHECK(is_product(composed[i], 0, ranks - 1, r * count + i));
    OK(MPI_Reduce_scatter_block(MPI_IN_PLACE, functions, count, affine_type, op, comm));
    for (int i = 0; i < count; i++) CHECK(is_product(functions[i], 0, ranks - 1, r * count + i));
    for (int i = 0; i < ranks * count; i++) in[i] = r + i;
    OK(MPI_Reduce_scatter_block(MPI_IN_PLACE, in, count, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < count; i++) CHECK(in[i] == ranks * (r * count + i) + ranks * (ranks - 1) / 2);
}

struct located { double value; int at; };
struct triple { int a, b, c; };

/* The last of two triples, but for what both count. */
static void follow(void *left, void *right, int *len, MPI_Datatype *type)
{
    struct triple *before = left, *after = right;
    (void)type;
    for (int i = 0; i < *len; i++) after[i] = (struct triple){before[i].a + after[i].a, after[i].b, before[i].c};
}

/* Elements with gaps, blocks in memory with gaps, and elements that do not divide a piece. */
static void layouts(MPI_Comm comm, int count)
{
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    struct located *found = calloc(2 * ranks * count, sizeof *found), *best = found + ranks * count;
    for (int i = 0; i < ranks * count; i++) found[i] = (struct located){(r * 5 + i) % ranks, r};
    for (int kind = 0; kind < 3; kind++) {
        const int first = kind == 2 ? r * count : 0, last = kind == 1 ? r : ranks - 1;
        for (int i = 0; i < count; i++) best[i] = (struct located){-1, -1};
        if (kind == 0) OK(MPI_Reduce(found, best, count, MPI_DOUBLE_INT, MPI_MAXLOC, 0, comm));
        if (kind == 1) OK(MPI_Scan(found, best, count, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
        if (kind == 2) OK(MPI_Reduce_scatter_block(found, best, count, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
        for (int i = 0; (kind || r == 0) && i < count; i++) {
            struct located expected = {-1, -1};
            for (int rank = 0; rank <= last; rank++)
                if ((rank * 5 + first + i) % ranks > expected.value)
                    expected = (struct located){(rank * 5 + first + i) % ranks, rank};
            CHECK(best[i].value == expected.value && best[i].at == expected.at);
        }
    }
    free(found);

    MPI_Datatype triple;
    MPI_Op op;
    OK(MPI_Type_contiguous(3, MPI_INT, &triple));
    OK(MPI_Type_commit(&triple));
    OK(MPI_Op_create(follow, 0, &op));
    struct triple *mine = calloc(2 * ranks * count, sizeof *mine), *all = mine + ranks * count;
    for (int i = 0; i < ranks * count; i++) mine[i] = (struct triple){i, r, r};
    OK(MPI_Reduce_scatter_block(mine, all, count, triple, op, comm));
    for (int i = 0; i < count; i++)
        CHECK(all[i].a == ranks * (r * count + i) && all[i].b == ranks - 1 && all[i].c == 0);
    OK(MPI_Reduce(mine, all, ranks * count, triple, op, ranks - 1, comm));
    for (int i = 0; r == ranks - 1 && i < ranks * count; i++)
        CHECK(all[i].a == ranks * i && all[i].b == ranks - 1 && all[i].c == 0);
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&triple));
    free(mine);

    MPI_Datatype every_other;
    OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_other));
    OK(MPI_Type_commit(&every_other));
    int *from = calloc(4 * ranks * count, sizeof *from), *to = from + 2 * ranks * count;
    int *counts = calloc(2 * ranks, sizeof *counts), *places = counts + ranks;
    for (int peer = 0; peer < ranks; peer++) counts[peer] = count, places[peer] = peer * count;
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < 2 * ranks * count; i++) from[i] = i % 2 ? -2 : 1000 * r + i / 2, to[i] = -1;
        if (kind == 0) OK(MPI_Gather(from, count, every_other, to, count, every_other, ranks - 1, comm));
        if (kind == 1) OK(MPI_Scatter(from, count, every_other, to, count, every_other, ranks - 1, comm));
        if (kind == 2) OK(MPI_Allgatherv(from, count, every_other, to, counts, places, every_other, comm));
        const int received = kind == 1 ? count : kind == 0 && r != ranks - 1 ? 0 : ranks * count;
        for (int i = 0; i < 2 * ranks * count; i++) {
            int sender = kind == 1 ? ranks - 1 : i / 2 / count, at = kind == 1 ? r * count + i / 2 : i / 2 % count;
            CHECK(to[i] == (i % 2 || i / 2 >= received ? -1 : 1000 * sender + at));
        }
    }
    OK(MPI_Type_free(&every_other));
    free(from), free(counts);
}

/* Blocks of which one may be much longer than the others, or empty, in an order of their own and with gaps. */
static void uneven_gather(MPI_Comm comm, int count)
{
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    int *counts = calloc(2 * ranks, sizeof *counts), *places = counts + ranks, length = 1;
    for (int peer = ranks - 1; peer >= 0; peer--) {
        counts[peer] = peer == 1 ? count : peer % 3 == 2 ? 0 : count / 7 + peer;
        places[peer] = length;
        length += counts[peer] + 2;
    }
    int *all = calloc(length, sizeof *all);
    for (int in_place = 0; in_place < 2 && length <= longest; in_place++) {
        for (int i = 0; i < length; i++) all[i] = -1;
        int *mine = in_place ? all + places[r] : in;
        for (int i = 0; i < counts[r]; i++) mine[i] = number_of(r, in_place, i);
        OK(MPI_Allgatherv(in_place ? MPI_IN_PLACE : in, counts[r], MPI_INT, all, counts, places, MPI_INT, comm));
        for (int peer = 0; peer < ranks; peer++) {
            for (int i = 0; i < counts[peer]; i++) CHECK(all[places[peer] + i] == number_of(peer, in_place, i));
            CHECK(all[places[peer] - 1] == -1 && all[places[peer] + counts[peer]] == -1);
        }
    }
    free(all), free(counts);
}

/* A root that does not wait for those it tells. */
static void broadcasts(MPI_Comm comm, int count, int rounds)
{
    int r, ranks;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    for (int round = 0; round < rounds; round++) {
        int root = round / 20 % ranks;
        for (int i = 0; i < count; i++) in[i] = r == root ? round + i : -1;
        OK(MPI_Bcast(in, count, MPI_INT, root, comm));
        for (int i = 0; i < count; i++) CHECK(in[i] == round + i);
    }
}

/* Broadcasts in several pieces: at the limits, of data with gaps, and with short ones and other steps between them. */
static void long_broadcasts(MPI_Comm comm)
{
    static const int counts[] = {8191, 8192, 8193, 16383, 16385, 65536, 70001, 131072, 299999};
    int r, ranks;
    MPI_Datatype every_other;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_other));
    OK(MPI_Type_commit(&every_other));
    for (int round = 0; round < 18; round++) {
        int count = counts[round % 9], root = round % ranks, gaps = round % 4 == 3 && count <= longest / 2;
        int stride = gaps && r != root ? 2 : 1;
        for (int i = 0; i < count * stride; i++) in[i] = r == root ? round + i : -1;
        OK(MPI_Bcast(in, count, stride == 2 ? every_other : MPI_INT, root, comm));
        for (int i = 0; i < count * stride; i++) CHECK(in[i] == (i % stride ? -1 : round + i / stride));
        if (round % 3 == 0) broadcasts(comm, 5, 1);
        if (round % 5 == 0) OK(MPI_Barrier(comm));
    }
    OK(MPI_Type_free(&every_other));
}

static void everything(MPI_Comm comm, int rounds, MPI_Op op)
{
    static const int counts[] = {1, 12, 13, 100, 5000, 0, 70000};
    int ranks;
    OK(MPI_Comm_size(comm, &ranks));
    for (int round = 0; round < rounds; round++) {
        OK(MPI_Barrier(comm));
        int count = counts[round % (int)(sizeof counts / sizeof *counts)];
        allreduce(comm, count, op);
        if (count <= 5000) blocks(comm, count ? count : 1);
        broadcasts(comm, count % 9000, 3);
        rooted(comm, count ? count : 2, round % ranks, op);
        partial(comm, count ? count : 3, op);
        uneven_gather(comm, count);
    }
}

/* Members that run ahead of a root which is not told by all of them that they may. */
static void one_way(MPI_Comm comm, int rounds)
{
    int r, ranks, sum, all = 0;
    OK(MPI_Comm_rank(comm, &r));
    OK(MPI_Comm_size(comm, &ranks));
    for (int round = 0; round < rounds; round++) {
        int root = round / 30 % ranks, mine = round + r;
        if (round % 50 == 49 && r == root) usleep(3000);
        if (round % 3 == 0) OK(MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, root, comm));
        if (round % 3 == 1) OK(MPI_Gather(&mine, 1, MPI_INT, out, 1, MPI_INT, root, comm));
        if (round % 3 == 2) OK(MPI_Scatter(in, 1, MPI_INT, &all, 1, MPI_INT, root, comm));
        if (r == root && round % 3 == 0) CHECK(sum == ranks * round + ranks * (ranks - 1) / 2);
        for (int i = 0; r == root && round % 3 == 1 && i < ranks; i++) CHECK(out[i] == round + i);
        if (round % 3 == 2) CHECK(all == in[r]);
        if (round % 40 == 0) {
            OK(MPI_Scan(&mine, &sum, 1, MPI_INT, MPI_SUM, comm));
            CHECK(sum == (r + 1) * round + r * (r + 1) / 2);
            OK(MPI_Exscan(&mine, &sum, 1, MPI_INT, MPI_SUM, comm));
            CHECK(r == 0 || sum == r * round + r * (r - 1) / 2);
        }
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const int rank = world_rank, size = world_size;
    static const int long_counts[] = {8193, 20001, 65000, 149999};
    in = calloc(longest, sizeof *in);
    out = calloc(longest, sizeof *out);
    MPI_Op op;
    OK(MPI_Op_create(compose, 0, &op));
    OK(MPI_Type_contiguous(2, MPI_UNSIGNED, &affine_type));
    OK(MPI_Type_commit(&affine_type));

    everything(MPI_COMM_WORLD, 30, op);
    broadcasts(MPI_COMM_WORLD, 1, 500);
    broadcasts(MPI_COMM_WORLD, 3000, 100);
    long_broadcasts(MPI_COMM_WORLD);
    long_blocks(MPI_COMM_WORLD);
    uneven_blocks(MPI_COMM_WORLD);
    for (int c = 0; c < 4; c++) {
        rooted(MPI_COMM_WORLD, long_counts[c], c % size, op);
        partial(MPI_COMM_WORLD, long_counts[c] / 2, op);
        uneven_gather(MPI_COMM_WORLD, long_counts[c]);
    }
    layouts(MPI_COMM_WORLD, 5);
    layouts(MPI_COMM_WORLD, 700);
    layouts(MPI_COMM_WORLD, 30000);
    for (int i = 0; i < longest; i++) in[i] = 17 * i;
    one_way(MPI_COMM_WORLD, 1000);

    /* More at once than any process has boards, used in turns. */
    MPI_Comm many[12];
    for (int c = 0; c < 12; c++) OK(MPI_Comm_split(MPI_COMM_WORLD, rank % (c + 1), -rank, &many[c]));
    for (int turn = 0; turn < 3; turn++)
        for (int c = 0; c < 12; c++) everything(many[c], 5, op);
    for (int c = 0; c < 12; c++) OK(MPI_Comm_free(&many[c]));

    /* Coming and going: the last step of one is still read by some when the next begins. */
    for (int round = 0; round < 40; round++) {
        MPI_Comm comm;
        OK(MPI_Comm_split(MPI_COMM_WORLD, round % 3 ? 0 : rank % 2, round % 2 ? rank : -rank, &comm));
        broadcasts(comm, 2000, 12);
        OK(MPI_Comm_free(&comm));
    }

    /* One process is late: the others sleep meanwhile, and wake. */
    for (int round = 0; round < 3; round++) {
        if (rank == round % size) usleep(30000);
        allreduce(MPI_COMM_WORLD, 3, op);
        broadcasts(MPI_COMM_WORLD, 3, 30);
    }

    /* Requests go on while a collective waits. */
    MPI_Request request;
    int *long_in = calloc(longest, sizeof *long_in), *long_out = calloc(longest, sizeof *long_out);
    for (int i = 0; i < longest; i++) long_in[i] = rank + i;
    OK(MPI_Irecv(long_out, longest, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &request));
    MPI_Request sending;
    OK(MPI_Isend(long_in, longest, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, &sending));
    for (int round = 0; round < 10; round++) OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&sending, MPI_STATUS_IGNORE));
    for (int i = 0; i < longest; i++) CHECK(long_out[i] == (rank + size - 1) % size + i);

    OK(MPI_Type_free(&affine_type));
    OK(MPI_Op_free(&op));
    free(in), free(out), free(long_in), free(long_out);
    return finish();
}
