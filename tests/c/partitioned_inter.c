/* Partitioned communication between two groups: ranks are those of the other group, tags and contexts are kept apart
 * from plain messages, and either side may be ready first. */
#include "check.h"

enum { parts = 5, each = 300, rounds = 3 };

int main(int argc, char **argv)
{
    static int out[parts * each], in[parts * each], plain;
    MPI_Comm half, inter;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    start(&argc, &argv);
    int side = world_rank % 2, own, remote, wrong = 0;
    OK(MPI_Comm_split(MPI_COMM_WORLD, side, -world_rank, &half)); /* the last ones first */
    OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world_size - 1 - ((world_size - 1) % 2 == side), 5, &inter));
    OK(MPI_Comm_rank(inter, &own));
    OK(MPI_Comm_remote_size(inter, &remote));
    if (own < remote) {
        OK(MPI_Psend_init(out, parts, each, MPI_INT, own, 3, inter, MPI_INFO_NULL, &requests[0]));
        OK(MPI_Precv_init(in, 1, parts * each, MPI_INT, own, 3, inter, MPI_INFO_NULL, &requests[1]));
    }
    for (int round = 0; round < rounds && own < remote; round++) {
        for (int i = 0; i < parts * each; i++)
            out[i] = side * 100000 + own * 5000 + round * 17 + i;
        OK(MPI_Startall(2, requests));
        OK(MPI_Sendrecv(&own, 1, MPI_INT, own, 3, &plain, 1, MPI_INT, own, 3, inter, MPI_STATUS_IGNORE));
        CHECK(plain == own);
        for (int part = parts; part-- > 0;)
            OK(MPI_Pready(part, requests[0]));
        OK(MPI_Waitall(2, requests, statuses));
        CHECK(statuses[1].MPI_SOURCE == own && statuses[1].MPI_TAG == 3);
        for (int i = 0; i < parts * each; i++)
            wrong += in[i] != (1 - side) * 100000 + own * 5000 + round * 17 + i;
        CHECK(wrong == 0);
    }
    if (own < remote) {
        OK(MPI_Request_free(&requests[0]));
        OK(MPI_Request_free(&requests[1]));
    }
    OK(MPI_Comm_free(&inter));
    OK(MPI_Comm_free(&half));
    return finish();
}
