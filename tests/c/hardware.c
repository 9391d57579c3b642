/* The hardware a process is restricted to, and communicators of those that share a piece of it. */
#include "check.h"
#include <sched.h>
#include <unistd.h>

static int is_restricted(const char *kind)
{
    MPI_Info info;
    char value[16] = "";
    int length = sizeof value, flag = 0;
    OK(MPI_Get_hw_resource_info(&info));
    OK(MPI_Info_get_string(info, kind, &length, value, &flag));
    OK(MPI_Info_free(&info));
    CHECK(!flag || strcmp(value, "true") == 0 || strcmp(value, "false") == 0);
    return flag ? strcmp(value, "true") == 0 : -1;
}

/* Size of the communicator of those that share a piece of this kind; 0 if there is none. */
static int sharers(const char *kind, int split_type)
{
    MPI_Info hints;
    MPI_Comm comm;
    int size = 0;
    OK(MPI_Info_create(&hints));
    OK(MPI_Info_set(hints, "mpi_hw_resource_type", kind));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, split_type, 0, hints, &comm));
    OK(MPI_Info_free(&hints));
    if (comm == MPI_COMM_NULL)
        return 0;
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Comm_free(&comm));
    return size;
}

/* The unguided kind: those that share a piece of the highest level which divides everybody; the level is named. */
static void unguided(int is_divided)
{
    MPI_Info hints, given;
    MPI_Comm comm, guided;
    char kind[64] = "", told[64] = "";
    int length = sizeof kind, told_length = sizeof told, flag = 0, result = MPI_UNEQUAL;
    OK(MPI_Info_create(&given));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, world_rank, given, &comm));
    OK(MPI_Info_get_string(given, "mpi_hw_resource_type", &told_length, told, &flag));
    OK(MPI_Info_free(&given));
    CHECK((comm != MPI_COMM_NULL) == is_divided && flag == is_divided);
    /* Who gives no hints, or such as can not be changed, gets the same. */
    for (int gives_none = 0; gives_none < 2; gives_none++) {
        given = gives_none ? MPI_INFO_NULL : MPI_INFO_ENV;
        OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, world_rank, given, &guided));
        CHECK((guided != MPI_COMM_NULL) == is_divided);
        if (guided == MPI_COMM_NULL)
            continue;
        OK(MPI_Comm_compare(comm, guided, &result));
        CHECK(result == MPI_CONGRUENT);
        OK(MPI_Comm_free(&guided));
    }
    if (comm == MPI_COMM_NULL)
        return;
    OK(MPI_Comm_get_info(comm, &hints));
    OK(MPI_Info_get_string(hints, "mpi_hw_resource_type", &length, kind, &flag));
    OK(MPI_Info_free(&hints));
    CHECK(flag && strcmp(kind, told) == 0);
    OK(MPI_Info_create(&hints));
    OK(MPI_Info_set(hints, "mpi_hw_resource_type", kind));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, world_rank, hints, &guided));
    OK(MPI_Info_free(&hints));
    OK(MPI_Comm_compare(comm, guided, &result));
    CHECK(result == MPI_CONGRUENT);
    OK(MPI_Comm_size(comm, &length));
    CHECK(length < world_size);
    OK(MPI_Comm_free(&guided));
    OK(MPI_Comm_free(&comm));
}

static void bind(int from, int count)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = from; cpu < from + count; cpu++)
        CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

int main(int argc, char **argv)
{
    cpu_set_t before;
    int usable[CPU_SETSIZE], count = 0;
    CHECK(is_restricted("hwloc://Machine") == 1); /* also before MPI_Init */
    start(&argc, &argv);
    CHECK(is_restricted("mpi_shared_memory") == 1 && is_restricted("no such thing") == -1);
    CHECK(sharers("hwloc://Machine", MPI_COMM_TYPE_HW_GUIDED) == world_size);
    CHECK(sharers("mpi_shared_memory", MPI_COMM_TYPE_HW_GUIDED) == world_size);
    CHECK(sharers("no such thing", MPI_COMM_TYPE_HW_GUIDED) == 0);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before))
            usable[count++] = cpu;
    if (is_restricted("hwloc://PU") >= 0) {
        /* Everybody on a processor of its own, as far as they go. */
        int mine = usable[world_rank % count], expected = 0;
        bind(mine, 1);
        CHECK(is_restricted("hwloc://PU") == 1 && is_restricted("hwloc://Core") != 0);
        for (int rank = 0; rank < world_size; rank++)
            expected += rank % count == world_rank % count;
        CHECK(sharers("hwloc://PU", MPI_COMM_TYPE_HW_GUIDED) == expected);
        unguided(count > 1 && world_size > 1);
        CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
        unguided(0);
        CHECK(is_restricted("hwloc://PU") == (count == 1));
        CHECK(sharers("hwloc://PU", MPI_COMM_TYPE_HW_GUIDED) == (count == 1 ? world_size : 0));
    }
    return finish();
}
