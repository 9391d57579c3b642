/* What a C program does that is called from Fortran, or calls it: handles and statuses as INTEGERs.
 * MPI: 19.3.4, 19.3.5 */
#include "check.h"
#include <dlfcn.h>

/* A handle there and back, by the header's name, the profiling one, and what the library exports: configure scripts
 * look for that. */
#define THERE_AND_BACK(KIND, TYPE, HANDLE)                                                                         \
    do {                                                                                                            \
        MPI_Fint number = MPI_##KIND##_c2f(HANDLE);                                                                 \
        MPI_Fint (*there)(TYPE) = (MPI_Fint (*)(TYPE))dlsym(RTLD_DEFAULT, "MPI_" #KIND "_c2f");                     \
        TYPE (*back)(MPI_Fint) = (TYPE (*)(MPI_Fint))dlsym(RTLD_DEFAULT, "MPI_" #KIND "_f2c");                      \
        CHECK(MPI_##KIND##_f2c(number) == (HANDLE));                                                                \
        CHECK(PMPI_##KIND##_c2f(HANDLE) == number && PMPI_##KIND##_f2c(number) == (HANDLE));                        \
        CHECK(there && there(HANDLE) == number);                                                                    \
        CHECK(back && back(number) == (HANDLE));                                                                    \
    } while (0)

static void handles(void)
{
    MPI_Comm comm;
    MPI_Group group;
    MPI_Datatype type;
    MPI_Info info;
    MPI_Request request;
    MPI_Message message;
    MPI_Session session;
    int value = 0, sent = 42;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    THERE_AND_BACK(Comm, MPI_Comm, MPI_COMM_WORLD);
    THERE_AND_BACK(Comm, MPI_Comm, MPI_COMM_NULL);
    THERE_AND_BACK(Comm, MPI_Comm, comm);
    OK(MPI_Comm_group(comm, &group));
    THERE_AND_BACK(Group, MPI_Group, group);
    THERE_AND_BACK(Group, MPI_Group, MPI_GROUP_EMPTY);
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    THERE_AND_BACK(Type, MPI_Datatype, type);
    THERE_AND_BACK(Type, MPI_Datatype, MPI_DOUBLE_PRECISION);
    THERE_AND_BACK(Op, MPI_Op, MPI_SUM);
    THERE_AND_BACK(Errhandler, MPI_Errhandler, MPI_ERRORS_RETURN);
    OK(MPI_Info_create(&info));
    THERE_AND_BACK(Info, MPI_Info, info);
    OK(MPI_Irecv(&value, 1, MPI_INT, world_rank, 7, comm, &request));
    THERE_AND_BACK(Request, MPI_Request, request);
    OK(MPI_Send(&sent, 1, MPI_INT, world_rank, 7, comm));
    /* As a library does that was handed a request by a Fortran program. */
    request = MPI_Request_f2c(MPI_Request_c2f(request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(value == 42);
    THERE_AND_BACK(Request, MPI_Request, request);
    OK(MPI_Isend(&sent, 1, MPI_INT, world_rank, 8, comm, &request));
    OK(MPI_Mprobe(world_rank, 8, comm, &message, MPI_STATUS_IGNORE));
    THERE_AND_BACK(Message, MPI_Message, message);
    OK(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    THERE_AND_BACK(Session, MPI_Session, session);
    OK(MPI_Session_finalize(&session));
    THERE_AND_BACK(Win, MPI_Win, MPI_WIN_NULL);
    THERE_AND_BACK(File, MPI_File, MPI_FILE_NULL);
    OK(MPI_Info_free(&info));
    OK(MPI_Type_free(&type));
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_free(&comm));
}

/* What a status says must survive all ways from one form to another: count and cancelled are in its inner part. */
static void statuses(void)
{
    MPI_Status status, again;
    MPI_F08_status f08, f08_again;
    MPI_Fint numbers[MPI_F_STATUS_SIZE], numbers_again[MPI_F_STATUS_SIZE];
    int values[5] = {1, 2, 3, 4, 5}, received[8], count = -1, cancelled = -1;
    OK(MPI_Sendrecv(values, 5, MPI_INT, world_rank, 9, received, 8, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
                    MPI_COMM_WORLD, &status));
    OK(MPI_Status_set_cancelled(&status, 1));
    status.MPI_ERROR = MPI_ERR_OTHER;
    OK(MPI_Status_c2f(&status, numbers));
    CHECK(numbers[MPI_F_SOURCE] == world_rank && numbers[MPI_F_TAG] == 9 && numbers[MPI_F_ERROR] == MPI_ERR_OTHER);
    OK(MPI_Status_f2f08(numbers, &f08));
    CHECK(f08.MPI_SOURCE == world_rank && f08.MPI_TAG == 9 && f08.MPI_ERROR == MPI_ERR_OTHER);
    OK(MPI_Status_f082f(&f08, numbers_again));
    CHECK(memcmp(numbers, numbers_again, sizeof numbers) == 0);
    OK(MPI_Status_f082c(&f08, &again));
    OK(MPI_Get_count(&again, MPI_INT, &count));
    OK(MPI_Test_cancelled(&again, &cancelled));
    CHECK(count == 5 && cancelled == 1 && again.MPI_ERROR == MPI_ERR_OTHER);
    OK(MPI_Status_c2f08(&again, &f08_again));
    CHECK(memcmp(&f08, &f08_again, sizeof f08) == 0);
    memset(&again, 0, sizeof again);
    OK(PMPI_Status_f2c(numbers_again, &again));
    CHECK(memcmp(&again, &status, sizeof again) == 0);
    /* What is to be ignored has nothing to convert. */
    CHECK(MPI_Status_c2f(MPI_STATUS_IGNORE, numbers) == MPI_ERR_ARG);
    CHECK(MPI_Status_f2c(numbers, MPI_STATUS_IGNORE) == MPI_ERR_ARG);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    handles();
    statuses();
    return finish();
}
