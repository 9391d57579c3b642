/* A flood of messages nobody has asked for yet: kept in order, within bounds, nothing lost.
 *
 * The senders use blocking sends, so the library may hold them back; it may not fail. The
 * receiver first waits for a message behind the flood's beginning, then drains it.
 * The argument: how many short messages each sends. */
#include "check.h"

enum { large_count = 24, large_bytes = 400000, small_tag = 1, large_tag = 2, last_tag = 3 };

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int small_count = argc > 1 ? atoi(argv[1]) : 20000;
    char *large = allocate(large_bytes);
    if (world_rank != 0) {
        MPI_Request last;
        MPI_Request requests[large_count];
        int word[2] = {world_rank, 0};
        fill(large, large_bytes, (uint64_t)world_rank);
        OK(MPI_Isend(&word[0], 1, MPI_INT, 0, last_tag, MPI_COMM_WORLD, &last));
        for (int i = 0; i < large_count; i++)
            OK(MPI_Isend(large, large_bytes, MPI_CHAR, 0, large_tag, MPI_COMM_WORLD, &requests[i]));
        for (int i = 0; i < small_count; i++) {
            word[1] = i;
            OK(MPI_Send(word, 2, MPI_INT, 0, small_tag, MPI_COMM_WORLD));
        }
        OK(MPI_Waitall(large_count, requests, MPI_STATUSES_IGNORE));
        OK(MPI_Wait(&last, MPI_STATUS_IGNORE));
    } else {
        for (int peer = world_size - 1; peer > 0; peer--) {
            int word[2];
            OK(MPI_Recv(word, 1, MPI_INT, peer, last_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int i = 0; i < small_count; i++) {
                OK(MPI_Recv(word, 2, MPI_INT, peer, small_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(word[0] == peer && word[1] == i);
            }
            for (int i = 0; i < large_count; i++) {
                memset(large, 0, large_bytes);
                OK(MPI_Recv(large, large_bytes, MPI_CHAR, peer, large_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(verify(large, large_bytes, (uint64_t)peer));
            }
        }
    }
    free(large);
    return finish();
}
