/* Error handlers of sessions, and which handler is asked by what belongs to no communicator. */
#include "check.h"

static int session_calls, session_code, comm_calls, comm_was_null;
static MPI_Session session_seen;

static void on_session(MPI_Session *session, int *code, ...)
{
    session_calls++;
    session_seen = *session;
    session_code = *code;
}

static void on_comm(MPI_Comm *comm, int *code, ...)
{
    comm_calls++;
    comm_was_null = *comm == MPI_COMM_NULL;
    (void)code;
}

int main(int argc, char **argv)
{
    MPI_Session session, nothing = MPI_SESSION_NULL, other;
    MPI_Errhandler for_sessions, for_comms, got;
    MPI_Info info, hints;
    MPI_Group group;
    MPI_Comm comm;
    int length = 0, code;
    /* Handlers exist before anything is initialised. */
    OK(MPI_Session_create_errhandler(on_session, &for_sessions));
    OK(MPI_Session_init(MPI_INFO_NULL, for_sessions, &session));
    OK(MPI_Session_get_errhandler(session, &got));
    CHECK(got == for_sessions);
    OK(MPI_Errhandler_free(&got));
    code = MPI_Session_get_pset_info(session, "nonsense", &info);
    CHECK(session_calls == 1 && session_seen == session && session_code == code && class_of(code) == MPI_ERR_ARG);
    code = MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 99, &length, NULL);
    CHECK(session_calls == 2 && class_of(code) == MPI_ERR_ARG);
    OK(MPI_Session_call_errhandler(session, MPI_ERR_IO));
    CHECK(session_calls == 3 && session_seen == session && session_code == MPI_ERR_IO);
    OK(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN));
    OK(MPI_Session_call_errhandler(session, MPI_ERR_IO));
    CHECK(class_of(MPI_Session_get_pset_info(session, "nonsense", &info)) == MPI_ERR_ARG);
    CHECK(session_calls == 3);

    /* A session that cannot be opened asks the handler it would have had. */
    OK(MPI_Info_create(&hints));
    OK(MPI_Info_set(hints, "thread_level", "MPI_THREAD_TWICE"));
    CHECK(MPI_Session_init(hints, for_sessions, &other) != MPI_SUCCESS);
    CHECK(session_calls == 4 && session_seen == MPI_SESSION_NULL);
    OK(MPI_Info_free(&hints));

    /* So does a communicator that cannot be made. */
    OK(MPI_Comm_create_errhandler(on_comm, &for_comms));
    CHECK(class_of(MPI_Session_set_errhandler(session, for_comms)) == MPI_ERR_ERRHANDLER);
    CHECK(class_of(MPI_Comm_create_from_group(MPI_GROUP_NULL, "org.example", MPI_INFO_NULL, for_comms, &comm)) ==
          MPI_ERR_GROUP);
    CHECK(comm_calls == 1 && comm_was_null);
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    OK(MPI_Comm_create_from_group(group, "org.example", MPI_INFO_NULL, for_comms, &comm));
    CHECK(MPI_Send(NULL, 0, MPI_INT, 12345, 0, comm) != MPI_SUCCESS);
    CHECK(comm_calls == 2 && !comm_was_null);
    OK(MPI_Errhandler_free(&for_comms));
    CHECK(MPI_Send(NULL, 0, MPI_INT, 12345, 0, comm) != MPI_SUCCESS);
    CHECK(comm_calls == 3);
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_disconnect(&comm));

    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Session_finalize(&nothing)) == MPI_ERR_SESSION);
    CHECK(class_of(MPI_Session_get_info(nothing, &info)) == MPI_ERR_SESSION);
    other = session;
    OK(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL);
    CHECK(class_of(MPI_Session_get_info(other, &info)) == MPI_ERR_SESSION);
    CHECK(class_of(MPI_Session_finalize(&other)) == MPI_ERR_SESSION);
    OK(MPI_Errhandler_free(&for_sessions));
    return finish();
}
