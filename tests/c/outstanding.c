/* Thousands of requests in flight at once, matched in an order far from that of posting. */
#include "check.h"

enum { many = 3000 };

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    MPI_Request *requests = allocate(2 * many * sizeof *requests);
    MPI_Status *statuses = allocate(2 * many * sizeof *statuses);
    int(*in)[2] = allocate(many * sizeof *in), (*out)[2] = allocate(many * sizeof *out);
    for (int round = 0; round < 2; round++) {
        /* Round 0: receives first. Round 1: everything arrives unexpected. */
        for (int step = 0; step < 2; step++) {
            for (int i = 0; i < many; i++) {
                if (step == round) {
                    int tag = many - 1 - i;
                    in[tag][0] = in[tag][1] = -1;
                    OK(MPI_Irecv(in[tag], 2, MPI_INT, left, tag, MPI_COMM_WORLD, &requests[tag]));
                } else {
                    int tag = (int)((uint64_t)i * 1009 % many);
                    out[tag][0] = world_rank;
                    out[tag][1] = tag;
                    OK(MPI_Isend(out[tag], 2, MPI_INT, right, tag, MPI_COMM_WORLD, &requests[many + tag]));
                }
            }
        }
        OK(MPI_Waitall(2 * many, requests, statuses));
        for (int tag = 0; tag < many; tag++) {
            CHECK(in[tag][0] == left && in[tag][1] == tag);
            CHECK(statuses[tag].MPI_SOURCE == left && statuses[tag].MPI_TAG == tag);
        }
    }
    free(in);
    free(out);
    free(requests);
    free(statuses);
    return finish();
}
