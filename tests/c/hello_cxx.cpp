// The header from C++: the same world, through the C interface.
#include "check.h"
#include <complex>
#include <string>
#include <vector>

int main(int argc, char **argv)
{
    start(&argc, &argv);
    std::vector<std::complex<double>> mine(100, {double(world_rank), 1.0}), sums(100);
    OK(MPI_Allreduce(mine.data(), sums.data(), 100, MPI_CXX_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sums[99].real() == world_size * (world_size - 1) / 2.0 && sums[99].imag() == world_size);
    bool mine_true = world_rank == 0, any = false;
    OK(MPI_Allreduce(&mine_true, &any, 1, MPI_CXX_BOOL, MPI_LOR, MPI_COMM_WORLD));
    CHECK(any);
    return finish();
}
