/* Long messages between buffers that have holes: pages between their blocks are no memory at all. Whatever is
 * registered together with the blocks, the message arrives, in every combination of narrow and wide holes. */
#include "check.h"

#include <sys/mman.h>
#include <unistd.h>

enum { blocks = 24, bytes = 12 * 1024, layouts = 3, rounds = 4 };

/* Bytes from one block to the next: without room for a hole, with a few pages between, with many. */
static const size_t strides[layouts] = { 16 * 1024, 48 * 1024, 256 * 1024 };

/* Memory in which only the pages of the blocks exist. */
static unsigned char *reserve(size_t stride)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = blocks * stride;
    unsigned char *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (size_t at = 0; at < all; at += stride) {
        size_t used = (bytes + page - 1) / page * page;
        if (used < stride)
            CHECK(munmap(memory + at + used, stride - used) == 0);
    }
    return memory;
}

static unsigned char value(int rank, int round, int block, int at)
{
    return (unsigned char)(rank * 31 + round * 17 + block * 7 + at);
}

static void ring(unsigned char *out, MPI_Datatype from, size_t out_stride, unsigned char *in, MPI_Datatype to,
                 size_t in_stride, int round)
{
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    for (int i = 0; i < blocks; i++)
        for (int at = 0; at < bytes; at++) {
            out[(size_t)i * out_stride + (size_t)at] = value(world_rank, round, i, at);
            in[(size_t)i * in_stride + (size_t)at] = 0;
        }
    OK(MPI_Sendrecv(out, 1, from, right, round, in, 1, to, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < blocks; i++)
        for (int at = 0; at < bytes; at++)
            CHECK(in[(size_t)i * in_stride + (size_t)at] == value(left, round, i, at));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    unsigned char *out[layouts], *in[layouts];
    MPI_Datatype types[layouts];
    for (int i = 0; i < layouts; i++) {
        out[i] = reserve(strides[i]);
        in[i] = reserve(strides[i]);
        OK(MPI_Type_create_hvector(blocks, bytes, (MPI_Aint)strides[i], MPI_BYTE, &types[i]));
        OK(MPI_Type_commit(&types[i]));
    }
    for (int round = 0; round < rounds; round++)
        for (int from = 0; from < layouts; from++)
            for (int to = 0; to < layouts; to++)
                ring(out[from], types[from], strides[from], in[to], types[to], strides[to], round);
    /* The blocks go, too, and come back elsewhere or at the same place: no old registration is used. */
    for (int i = 0; i < layouts; i++) {
        for (size_t at = 0; at < blocks * strides[i]; at += strides[i])
            CHECK(munmap(out[i] + at, bytes) == 0 && munmap(in[i] + at, bytes) == 0);
        out[i] = reserve(strides[i]);
        in[i] = reserve(strides[i]);
    }
    for (int from = 0; from < layouts; from++)
        ring(out[from], types[from], strides[from], in[layouts - 1 - from], types[layouts - 1 - from],
             strides[layouts - 1 - from], rounds);
    for (int i = 0; i < layouts; i++)
        OK(MPI_Type_free(&types[i]));
    return finish();
}
