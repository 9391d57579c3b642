/* Communicators on their way: duplication in the background, hints, creation by name, division by resources. */
#include "check.h"

/* The text of an error, to see that call and argument are named. */
static int says(int code, const char *word)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    return strstr(text, word) != NULL;
}

static const char *hint(MPI_Comm comm, const char *key)
{
    static char value[64];
    MPI_Info info;
    int length = sizeof value, found = 0;
    OK(MPI_Comm_get_info(comm, &info));
    OK(MPI_Info_get_string(info, key, &length, value, &found));
    OK(MPI_Info_free(&info));
    return found ? value : "absent";
}

static void background(void)
{
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Request request;
    int value = world_rank, sum = 0, code;
    /* While rank 0 is not there, the others cannot use what they are making. */
    if (world_rank == 0 && world_size > 1)
        OK(MPI_Recv(NULL, 0, MPI_INT, world_size - 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request));
    CHECK(copy != MPI_COMM_NULL);
    if (world_rank == world_size - 1 && world_size > 1) {
        int size = 0, done = 1;
        OK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        CHECK(!done);
        code = MPI_Send(&value, 1, MPI_INT, 0, 0, copy);
        CHECK(class_of(code) == MPI_ERR_COMM && says(code, "MPI_Send") && says(code, "comm"));
        code = MPI_Barrier(copy);
        CHECK(class_of(code) == MPI_ERR_COMM && says(code, "MPI_Barrier") && says(code, "comm"));
        MPI_Comm same = copy;
        code = MPI_Comm_free(&same);
        CHECK(class_of(code) == MPI_ERR_COMM && same == copy);
        /* To look at it does no harm. */
        OK(MPI_Comm_size(copy, &size));
        CHECK(size == world_size);
        OK(MPI_Comm_set_name(copy, "copy"));
        OK(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
        /* Now the others may go on. */
        OK(MPI_Send(NULL, 0, MPI_INT, 0, 9, MPI_COMM_WORLD));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, copy));
    CHECK(sum == world_size * (world_size - 1) / 2);
    OK(MPI_Comm_free(&copy));

    /* Several at once, on the same communicator, completed in reverse. */
    MPI_Comm copies[8];
    MPI_Request requests[8];
    for (int i = 0; i < 8; i++)
        OK(MPI_Comm_idup(MPI_COMM_WORLD, &copies[i], &requests[i]));
    for (int i = 7; i >= 0; i--) {
        OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        OK(MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_MAX, copies[i]));
        CHECK(sum == i);
    }
    for (int i = 0; i < 8; i++)
        OK(MPI_Comm_free(&copies[i]));
}

static void hints(void)
{
    MPI_Comm copy, other;
    MPI_Request request;
    MPI_Info info, more;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
    OK(MPI_Info_set(info, "colour", "red"));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &copy));
    /* What happens to the object afterwards is no matter. */
    OK(MPI_Info_set(info, "colour", "blue"));
    CHECK(strcmp(hint(copy, "mpi_assert_no_any_tag"), "true") == 0);
    CHECK(strcmp(hint(copy, "colour"), "red") == 0);
    /* Setting some leaves the others. */
    OK(MPI_Info_create(&more));
    OK(MPI_Info_set(more, "colour", "green"));
    OK(MPI_Comm_set_info(copy, more));
    OK(MPI_Info_free(&more));
    CHECK(strcmp(hint(copy, "mpi_assert_no_any_tag"), "true") == 0);
    CHECK(strcmp(hint(copy, "colour"), "green") == 0);
    /* A copy gets those that it is given, and no others. */
    OK(MPI_Comm_dup(copy, &other));
    CHECK(strcmp(hint(other, "colour"), "absent") == 0);
    OK(MPI_Comm_free(&other));
    OK(MPI_Comm_idup(copy, &other, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(strcmp(hint(other, "mpi_assert_no_any_tag"), "absent") == 0);
    OK(MPI_Comm_free(&other));
    OK(MPI_Comm_idup_with_info(copy, info, &other, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(strcmp(hint(other, "colour"), "blue") == 0);
    OK(MPI_Comm_free(&other));
    OK(MPI_Comm_free(&copy));
    OK(MPI_Info_free(&info));
}

static void by_name(void)
{
    MPI_Group world, part;
    MPI_Comm comm, second;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int range[1][3] = {{world_rank % 2, world_rank % 2 ? (world_size / 2) * 2 - 1 : (world_size - 1) / 2 * 2, 2}};
    OK(MPI_Group_range_incl(world, 1, range, &part));
    /* Two groups under one name, and two names for one group. */
    OK(MPI_Comm_create_from_group(part, "org.example.first", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Comm_create_from_group(part, "org.example.second", MPI_INFO_NULL, MPI_ERRORS_RETURN, &second));
    int size, rank, compared, sum, code;
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Comm_rank(comm, &rank));
    CHECK(rank == world_rank / 2 && size == (world_size + 1 - world_rank % 2) / 2);
    OK(MPI_Comm_compare(comm, second, &compared));
    CHECK(compared == MPI_CONGRUENT);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, second));
    CHECK(sum == size * (size - 1) / 2);
    /* The handler given is the communicator's. */
    code = MPI_Send(&rank, 1, MPI_INT, size, 0, comm);
    CHECK(class_of(code) == MPI_ERR_RANK);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_free(&second));
    OK(MPI_Comm_create_from_group(MPI_GROUP_EMPTY, "org.example.none", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    CHECK(comm == MPI_COMM_NULL);
    OK(MPI_Group_free(&part));
    OK(MPI_Group_free(&world));
}

static int size_of_split(int kind, const char *key, const char *value)
{
    MPI_Info info = MPI_INFO_NULL;
    MPI_Comm part;
    int size = 0;
    if (key) {
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, key, value));
    }
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, kind, -world_rank, info, &part));
    if (key)
        OK(MPI_Info_free(&info));
    if (part == MPI_COMM_NULL)
        return 0;
    OK(MPI_Comm_size(part, &size));
    int rank;
    OK(MPI_Comm_rank(part, &rank));
    CHECK(size == 1 || rank == world_size - 1 - world_rank);
    if (key && strcmp(key, "mpi_hw_resource_type") == 0)
        CHECK(strcmp(hint(part, key), value) == 0);
    OK(MPI_Comm_free(&part));
    return size;
}

static void by_resource(void)
{
    CHECK(size_of_split(MPI_COMM_TYPE_SHARED, NULL, NULL) == world_size);
    CHECK(size_of_split(MPI_UNDEFINED, NULL, NULL) == 0);
    /* All on one machine: nothing smaller is known. */
    CHECK(size_of_split(MPI_COMM_TYPE_HW_UNGUIDED, NULL, NULL) == 0);
    CHECK(size_of_split(MPI_COMM_TYPE_HW_GUIDED, NULL, NULL) == 0);
    CHECK(size_of_split(MPI_COMM_TYPE_HW_GUIDED, "mpi_hw_resource_type", "mpi_shared_memory") == world_size);
    CHECK(size_of_split(MPI_COMM_TYPE_HW_GUIDED, "mpi_hw_resource_type", "teapot") == 0);
    CHECK(size_of_split(MPI_COMM_TYPE_RESOURCE_GUIDED, "mpi_hw_resource_type", "mpi_shared_memory") == world_size);
    CHECK(size_of_split(MPI_COMM_TYPE_RESOURCE_GUIDED, "mpi_pset_name", "mpi://WORLD") == world_size);
    CHECK(size_of_split(MPI_COMM_TYPE_RESOURCE_GUIDED, "mpi_pset_name", "mpi://SELF") == 1);
    CHECK(size_of_split(MPI_COMM_TYPE_RESOURCE_GUIDED, "mpi_pset_name", "app://unheard-of") == 0);
    CHECK(size_of_split(MPI_COMM_TYPE_RESOURCE_GUIDED, NULL, NULL) == 0);
    MPI_Comm part;
    CHECK(class_of(MPI_Comm_split_type(MPI_COMM_WORLD, 12345, 0, MPI_INFO_NULL, &part)) == MPI_ERR_ARG);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    background();
    hints();
    by_name();
    by_resource();
    return finish();
}
