/* Counts of what the library did since a moment, by its performance variables (MPI_T). */
#ifndef FERROVIA_TESTS_COUNTER_H
#define FERROVIA_TESTS_COUNTER_H

#include "check.h"

struct counter {
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
};

/* The counter of that name, from now on. */
static inline struct counter start_counting(const char *name)
{
    int index = 0, count = 0, provided = 0;
    struct counter counter;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index));
    OK(MPI_T_pvar_session_create(&counter.session));
    OK(MPI_T_pvar_handle_alloc(counter.session, index, NULL, &counter.handle, &count));
    OK(MPI_T_pvar_start(counter.session, counter.handle));
    return counter;
}

static inline unsigned long long counted(const struct counter *counter)
{
    unsigned long long count = 0;
    OK(MPI_T_pvar_read(counter->session, counter->handle, &count));
    return count;
}

static inline void stop_counting(struct counter *counter)
{
    OK(MPI_T_pvar_handle_free(counter->session, &counter->handle));
    OK(MPI_T_pvar_session_free(&counter->session));
    OK(MPI_T_finalize());
}

#endif
