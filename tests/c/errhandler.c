/* Error handlers: returned errors, user handlers, inheritance, classes, codes and strings. */
#include "check.h"

static int calls, last_code;
static MPI_Comm last_comm;

static void count_errors(MPI_Comm *comm, int *code, ...)
{
    int value = 0;
    calls++;
    last_code = *code;
    last_comm = *comm;
    /* A handler may call MPI, even send. */
    MPI_Sendrecv(&calls, 1, MPI_INT, world_rank, 77, &value, 1, MPI_INT, world_rank, 77, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(value == calls);
}

static void handlers(void)
{
    MPI_Errhandler mine, current;
    MPI_Comm comm, child;
    int value = 0, code;
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &current));
    CHECK(current == MPI_ERRORS_ARE_FATAL);
    OK(MPI_Comm_create_errhandler(count_errors, &mine));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, mine));
    code = MPI_Send(&value, 1, MPI_INT, world_size, 0, comm);
    CHECK(class_of(code) == MPI_ERR_RANK && calls == 1 && last_comm == comm && class_of(last_code) == MPI_ERR_RANK);
    code = MPI_Send(&value, -1, MPI_INT, 0, 0, comm);
    CHECK(class_of(code) == MPI_ERR_COUNT && calls == 2);
    OK(MPI_Comm_dup(comm, &child)); /* inherited */
    code = MPI_Send(&value, 1, MPI_INT, 0, -5, child);
    CHECK(class_of(code) == MPI_ERR_TAG && calls == 3 && last_comm == child);
    OK(MPI_Comm_call_errhandler(child, MPI_ERR_OTHER));
    CHECK(calls == 4 && last_code == MPI_ERR_OTHER);
    OK(MPI_Comm_get_errhandler(comm, &current));
    CHECK(current == mine);
    OK(MPI_Errhandler_free(&current));
    OK(MPI_Errhandler_free(&mine)); /* still in use by the communicators */
    CHECK(mine == MPI_ERRHANDLER_NULL);
    code = MPI_Send(&value, 1, MPI_INT, -7, 0, comm);
    CHECK(class_of(code) == MPI_ERR_RANK && calls == 5);
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    code = MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, comm);
    CHECK(class_of(code) == MPI_ERR_TYPE && calls == 5);
    OK(MPI_Comm_free(&child));
    OK(MPI_Comm_free(&comm));
}

/* Calls that were given no communicator ask the handler of MPI_COMM_SELF; programs older than MPI 4 have set that of
 * MPI_COMM_WORLD only. */
static void without_communicator(void)
{
    MPI_Errhandler mine;
    MPI_Datatype type;
    MPI_Comm comm;
    int value = 0, before = calls;
    OK(MPI_Comm_create_errhandler(count_errors, &mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Type_contiguous(-1, MPI_INT, &type)) == MPI_ERR_COUNT && calls == before);
    CHECK(class_of(MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL)) == MPI_ERR_COMM && calls == before);
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_set_errhandler(comm, mine)); /* of another communicator */
    CHECK(class_of(MPI_Type_contiguous(-1, MPI_INT, &type)) == MPI_ERR_COUNT && calls == before);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    CHECK(class_of(MPI_Type_contiguous(-1, MPI_INT, &type)) == MPI_ERR_COUNT && calls == before + 1);
    CHECK(last_comm == MPI_COMM_WORLD);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, mine));
    CHECK(class_of(MPI_Type_contiguous(-1, MPI_INT, &type)) == MPI_ERR_COUNT && calls == before + 2);
    CHECK(last_comm == MPI_COMM_SELF);
    OK(MPI_Errhandler_free(&mine));
    OK(MPI_Comm_free(&comm));
}

/* Each bad argument has the class the standard gives it. */
static void classes_of_errors(void)
{
    int value = 0, flag = 0;
    MPI_Request request;
    MPI_Datatype type;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Recv(&value, 1, MPI_INT, -9, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Recv(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Isend(&value, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &request)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Bcast(&value, 1, MPI_INT, world_size, MPI_COMM_WORLD)) == MPI_ERR_ROOT);
    CHECK(class_of(MPI_Probe(world_size + 3, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Type_contiguous(-1, MPI_INT, &type)) == MPI_ERR_COUNT);
    OK(MPI_Type_contiguous(2, MPI_INT, &type)); /* not committed */
    CHECK(class_of(MPI_Send(&value, 1, type, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
    OK(MPI_Type_free(&type));
    OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void own_classes(void)
{
    int class = 0, code = 0, found = 0, length = -1, *last = NULL, flag = 0;
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Add_error_class(&class));
    CHECK(class > MPI_ERR_LASTCODE);
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_string(code, "the bridge is out"));
    OK(MPI_Error_class(code, &found));
    CHECK(found == class);
    OK(MPI_Error_string(code, text, &length));
    CHECK(strcmp(text, "the bridge is out") == 0 && length == 17);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag));
    CHECK(flag && *last >= class);
    OK(MPI_Remove_error_string(code));
    OK(MPI_Remove_error_code(code));
    OK(MPI_Remove_error_class(class));
    for (int known = MPI_SUCCESS; known <= MPI_ERR_UNKNOWN; known++) {
        OK(MPI_Error_string(known, text, &length));
        CHECK(length > 0 && (size_t)length == strlen(text));
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    handlers();
    without_communicator();
    classes_of_errors();
    own_classes();
    return finish();
}
