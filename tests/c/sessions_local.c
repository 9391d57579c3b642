/* Opening, asking and closing a session waits for nobody: rank 0 is through before the others call MPI at all. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int use_session(void)
{
    MPI_Session session;
    MPI_Info info;
    MPI_Group world, self, both;
    MPI_Datatype pair;
    int size = 0, rank = -1, other = -1, result = 0;
    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) != MPI_SUCCESS)
        return -1;
    MPI_Session_get_info(session, &info);
    MPI_Info_free(&info);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Group_from_session_pset(session, "mpi://SELF", &self);
    MPI_Group_size(world, &size);
    MPI_Group_rank(world, &rank);
    MPI_Group_translate_ranks(self, 1, (int[]){0}, world, &other);
    MPI_Group_union(self, world, &both);
    MPI_Group_compare(world, both, &result);
    MPI_Group_free(&both);
    MPI_Group_free(&self);
    MPI_Group_free(&world);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Type_free(&pair);
    MPI_Session_finalize(&session);
    int expected = rank == 0 || size == 1 ? MPI_IDENT : MPI_SIMILAR;
    return size > 0 && other == rank && result == expected ? rank : -1;
}

int main(void)
{
    char path[64];
    struct stat found;
    const char *given = getenv("PMI_RANK");
    int rank = given ? atoi(given) : 0;
    snprintf(path, sizeof path, "/tmp/ferrovia-sessions-local-%d-%d", (int)getuid(), (int)getppid());
    if (rank > 0) {
        /* Rank 0 leaves the folder behind when it has closed its session; the last one to see it removes it. */
        for (int tries = 0; stat(path, &found) != 0; tries++) {
            if (tries > 3000)
                return 2;
            usleep(10000);
        }
        int ok = use_session() == rank;
        char own[96];
        snprintf(own, sizeof own, "%s/%d", path, rank);
        return mkdir(own, 0700) != 0 || !ok;
    }
    int ok = use_session() == 0 && use_session() == 0;
    const char *count = getenv("PMI_SIZE");
    if (mkdir(path, 0700) != 0)
        return 3;
    for (int other = 1; count && other < atoi(count); other++) {
        char its[96];
        snprintf(its, sizeof its, "%s/%d", path, other);
        for (int tries = 0; rmdir(its) != 0; tries++) {
            if (tries > 3000)
                return 4;
            usleep(10000);
        }
    }
    rmdir(path);
    if (ok)
        printf("No Errors\n");
    return !ok;
}
