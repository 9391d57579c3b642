/* Error numbers: classes and texts of all predefined ones (before MPI_Init too), numbers of the user. */
#include "check.h"

static void predefined(void)
{
    char text[MPI_MAX_ERROR_STRING];
    for (int code = MPI_SUCCESS; code <= MPI_ERR_ABI; code++) {
        int length = -1, found = -1;
        OK(MPI_Error_class(code, &found));
        CHECK(found == code);
        OK(MPI_Error_string(code, text, &length));
        CHECK(length > 0 && length < MPI_MAX_ERROR_STRING && (size_t)length == strlen(text));
    }
}

/* The text of a failed call's code is about that call, even after other calls have failed. */
static void texts_of_failures(void)
{
    int value = 0, length = 0, codes[3];
    char text[3][MPI_MAX_ERROR_STRING];
    codes[0] = MPI_Send(&value, 1, MPI_INT, world_size + 41, 0, MPI_COMM_WORLD);
    codes[1] = MPI_Send(&value, -17, MPI_INT, 0, 0, MPI_COMM_WORLD);
    codes[2] = MPI_Send(&value, 1, MPI_INT, 0, -23, MPI_COMM_WORLD);
    CHECK(class_of(codes[0]) == MPI_ERR_RANK);
    CHECK(class_of(codes[1]) == MPI_ERR_COUNT);
    CHECK(class_of(codes[2]) == MPI_ERR_TAG);
    for (int i = 0; i < 3; i++)
        OK(MPI_Error_string(codes[i], text[i], &length));
    CHECK(strcmp(text[0], text[1]) != 0 && strcmp(text[1], text[2]) != 0);
}

static void own_numbers(void)
{
    int class = 0, code, other, found, last, *attribute = NULL, flag = 0, length = -1;
    char text[MPI_MAX_ERROR_STRING] = "x";
    OK(MPI_Add_error_class(&class));
    CHECK(class > MPI_ERR_LASTCODE);
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_code(MPI_ERR_IO, &other));
    CHECK(code != other && code > MPI_ERR_LASTCODE && other > MPI_ERR_LASTCODE);
    OK(MPI_Error_class(other, &found));
    CHECK(found == MPI_ERR_IO);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &attribute, &flag));
    last = flag ? *attribute : -1;
    CHECK(last >= code && last >= other);
    OK(MPI_Error_string(code, text, &length)); /* without a string: an empty one */
    CHECK(length == (int)strlen(text));
    OK(MPI_Add_error_string(code, "first"));
    OK(MPI_Add_error_string(code, "second"));
    OK(MPI_Error_string(code, text, &length));
    CHECK(strcmp(text, "second") == 0 && length == 6);
    CHECK(MPI_Add_error_string(MPI_ERR_TAG, "mine") != MPI_SUCCESS); /* predefined ones stay */
    CHECK(MPI_Remove_error_class(class) != MPI_SUCCESS);        /* a code of it is left */
    CHECK(MPI_Remove_error_class(MPI_ERR_TAG) != MPI_SUCCESS);
    OK(MPI_Remove_error_string(code));
    OK(MPI_Remove_error_code(code));
    OK(MPI_Remove_error_code(other));
    OK(MPI_Remove_error_class(class));
}

static int calls;
static void note(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    calls += class_of(*code) == MPI_ERR_RANK ? 1 : 100;
}

/* A handler freed while in use serves on; every reference is freed on its own. */
static void handler_references(void)
{
    MPI_Errhandler handler, again;
    MPI_Comm comm;
    int value = 0;
    OK(MPI_Comm_create_errhandler(note, &handler));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_set_errhandler(comm, handler));
    OK(MPI_Errhandler_free(&handler));
    CHECK(MPI_Send(&value, 1, MPI_INT, 9, 0, comm) != MPI_SUCCESS);
    for (int i = 0; i < 3; i++) {
        OK(MPI_Comm_get_errhandler(comm, &again));
        OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, again));
        OK(MPI_Errhandler_free(&again));
        CHECK(again == MPI_ERRHANDLER_NULL);
    }
    CHECK(MPI_Send(&value, 1, MPI_INT, 9, 0, MPI_COMM_SELF) != MPI_SUCCESS);
    CHECK(MPI_Send(&value, 1, MPI_INT, 9, 0, comm) != MPI_SUCCESS);
    CHECK(calls == 3);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_get_errhandler(MPI_COMM_SELF, &again));
    CHECK(again == MPI_ERRORS_RETURN);
    OK(MPI_Errhandler_free(&again));
    CHECK(again == MPI_ERRHANDLER_NULL);
}

int main(int argc, char **argv)
{
    predefined();
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)); /* for errors that belong to no communicator */
    texts_of_failures();
    own_numbers();
    handler_references();
    return finish();
}
