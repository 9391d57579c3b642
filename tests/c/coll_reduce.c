/* Reductions and scans against a plain loop: many sizes, all roots, in place, user functions. */
#include "check.h"

static const int counts[] = {0, 1, 2, 3, 5, 8, 33, 100, 1024, 5000, 40001};
enum { counts_count = sizeof counts / sizeof counts[0] };

/* What rank `rank` contributes; small enough that sums are exact. */
static long long value(int rank, int i)
{
    return (long long)((rank * 31 + i * 7) % 1000) - 300;
}

static long long sum_to(int last, int i)
{
    long long sum = 0;
    for (int rank = 0; rank <= last; rank++)
        sum += value(rank, i);
    return sum;
}

static long long *longs(int count)
{
    long long *memory = allocate((size_t)count * sizeof *memory);
    for (int i = 0; i < count; i++)
        memory[i] = -12345678;
    return memory;
}

/* Whether out[i] is the sum over ranks 0..=last of element first + i. */
static int sums(const long long *out, int count, int first, int last)
{
    for (int i = 0; i < count; i++)
        if (out[i] != sum_to(last, first + i))
            return 0;
    return 1;
}

static void sum_everywhere(int count)
{
    long long *mine = longs(count), *out = longs(count);
    size_t bytes = (size_t)count * sizeof *mine;
    for (int i = 0; i < count; i++)
        mine[i] = value(world_rank, i);

    for (int root = 0; root < world_size; root++) {
        memset(out, 0, bytes);
        OK(MPI_Reduce(mine, world_rank == root ? out : NULL, count, MPI_LONG_LONG, MPI_SUM, root, MPI_COMM_WORLD));
        CHECK(world_rank != root || sums(out, count, 0, world_size - 1));
        memcpy(out, mine, bytes);
        OK(MPI_Reduce(world_rank == root ? MPI_IN_PLACE : mine, out, count, MPI_LONG_LONG, MPI_SUM, root,
                      MPI_COMM_WORLD));
        CHECK(world_rank != root || sums(out, count, 0, world_size - 1));
    }
    memset(out, 0, bytes);
    OK(MPI_Allreduce(mine, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, count, 0, world_size - 1));
    memcpy(out, mine, bytes);
    OK(MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, count, 0, world_size - 1));

    memset(out, 0, bytes);
    OK(MPI_Scan(mine, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, count, 0, world_rank));
    memcpy(out, mine, bytes);
    OK(MPI_Scan(MPI_IN_PLACE, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, count, 0, world_rank));
    memset(out, 0, bytes);
    OK(MPI_Exscan(mine, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(world_rank == 0 || sums(out, count, 0, world_rank - 1));
    memcpy(out, mine, bytes);
    OK(MPI_Exscan(MPI_IN_PLACE, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(world_rank == 0 || sums(out, count, 0, world_rank - 1));
    CHECK(world_rank != 0 || memcmp(out, mine, bytes) == 0);
    free(mine);
    free(out);
}

static void sum_scattered(int count)
{
    int total = count * world_size, shares[world_size], first = 0, before = 0;
    long long *mine = longs(total), *out = longs(total);
    for (int i = 0; i < total; i++)
        mine[i] = value(world_rank, i);
    OK(MPI_Reduce_scatter_block(mine, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, count, world_rank * count, world_size - 1));
    memcpy(out, mine, (size_t)total * sizeof *mine);
    OK(MPI_Reduce_scatter_block(MPI_IN_PLACE, out, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, count, world_rank * count, world_size - 1));

    /* Unequal shares: none for rank 0, the rest to the last. */
    for (int rank = 0; rank < world_size; rank++) {
        shares[rank] = rank == world_size - 1 ? total - before : rank * count / world_size;
        first = rank == world_rank ? before : first;
        before += shares[rank];
    }
    OK(MPI_Reduce_scatter(mine, out, shares, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, shares[world_rank], first, world_size - 1));
    memcpy(out, mine, (size_t)total * sizeof *mine);
    OK(MPI_Reduce_scatter(MPI_IN_PLACE, out, shares, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums(out, shares[world_rank], first, world_size - 1));
    free(mine);
    free(out);
}

/* 2x2 matrices over integers modulo a prime: associative, not commutative. */
struct matrix {
    unsigned a, b, c, d;
};
enum { prime = 65521 };

static struct matrix product(struct matrix l, struct matrix r)
{
    return (struct matrix){
        (l.a * r.a % prime + l.b * r.c % prime) % prime, (l.a * r.b % prime + l.b * r.d % prime) % prime,
        (l.c * r.a % prime + l.d * r.c % prime) % prime, (l.c * r.b % prime + l.d * r.d % prime) % prime};
}

static void multiply(void *in, void *inout, int *length, MPI_Datatype *type)
{
    struct matrix *left = in, *right = inout;
    int size = 0;
    MPI_Type_size(*type, &size);
    CHECK(size == (int)sizeof(struct matrix));
    for (int i = 0; i < *length; i++)
        right[i] = product(left[i], right[i]);
}

static struct matrix matrix_of(int rank, int i)
{
    return (struct matrix){(unsigned)(rank + 2), (unsigned)(i % 97 + 1), (unsigned)(rank * i % 89),
                           (unsigned)(rank + i % 5 + 1)};
}

static struct matrix product_to(int first, int last, int i)
{
    struct matrix p = matrix_of(first, i);
    for (int rank = first + 1; rank <= last; rank++)
        p = product(p, matrix_of(rank, i));
    return p;
}

static int products(const struct matrix *out, int count, int first, int last)
{
    for (int i = 0; i < count; i++) {
        struct matrix p = product_to(0, last, first + i);
        if (memcmp(&out[i], &p, sizeof p) != 0)
            return 0;
    }
    return 1;
}

/* The order of ranks is kept for an operation that does not commute, at every size and root. */
static void in_rank_order(int count)
{
    MPI_Op op;
    MPI_Datatype type;
    int commutes = -1, total = count * world_size;
    struct matrix *mine = allocate((size_t)total * sizeof *mine), *out = allocate((size_t)total * sizeof *out);
    OK(MPI_Type_contiguous(4, MPI_UNSIGNED, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Op_create(multiply, 0, &op));
    OK(MPI_Op_commutative(op, &commutes));
    CHECK(commutes == 0);
    for (int i = 0; i < total; i++)
        mine[i] = matrix_of(world_rank, i);
    for (int root = 0; root < world_size; root++) {
        OK(MPI_Reduce(mine, out, count, type, op, root, MPI_COMM_WORLD));
        CHECK(world_rank != root || products(out, count, 0, world_size - 1));
        memcpy(out, mine, (size_t)count * sizeof *mine);
        OK(MPI_Reduce(world_rank == root ? MPI_IN_PLACE : mine, out, count, type, op, root, MPI_COMM_WORLD));
        CHECK(world_rank != root || products(out, count, 0, world_size - 1));
    }
    OK(MPI_Allreduce(mine, out, count, type, op, MPI_COMM_WORLD));
    CHECK(products(out, count, 0, world_size - 1));
    OK(MPI_Scan(mine, out, count, type, op, MPI_COMM_WORLD));
    CHECK(products(out, count, 0, world_rank));
    OK(MPI_Exscan(mine, out, count, type, op, MPI_COMM_WORLD));
    CHECK(world_rank == 0 || products(out, count, 0, world_rank - 1));
    OK(MPI_Reduce_scatter_block(mine, out, count, type, op, MPI_COMM_WORLD));
    CHECK(products(out, count, world_rank * count, world_size - 1));
    OK(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL);
    OK(MPI_Type_free(&type));
    free(mine);
    free(out);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int c = 0; c < counts_count; c++) {
        sum_everywhere(counts[c]);
        if (counts[c] <= 5000) {
            sum_scattered(counts[c]);
            in_rank_order(counts[c]);
        }
    }
    return finish();
}
