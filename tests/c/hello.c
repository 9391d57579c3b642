/* The first program: a world, its ranks, names and versions. */
#include "check.h"

int main(int argc, char **argv)
{
    int length = -1, version = 0, subversion = 0;
    char name[MPI_MAX_PROCESSOR_NAME], library[MPI_MAX_LIBRARY_VERSION_STRING];
    start(&argc, &argv);
    CHECK(world_rank >= 0 && world_rank < world_size);
    OK(MPI_Get_processor_name(name, &length));
    CHECK(length > 0 && (size_t)length == strlen(name));
    OK(MPI_Get_version(&version, &subversion));
    CHECK(version == MPI_VERSION && subversion == MPI_SUBVERSION);
    OK(MPI_Get_library_version(library, &length));
    CHECK(length > 0 && (size_t)length == strlen(library));
    printf("hello from rank %d of %d\n", world_rank, world_size);
    return finish();
}
