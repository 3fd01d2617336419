/* What every program of ranks has: a check that ends this rank with a word, and so, by mpirun, the others. */
#ifndef TANDEM_TESTS_MPI_RANKS_H
#define TANDEM_TESTS_MPI_RANKS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tandem/status.h"

static inline void require(bool good, const char *what)
{
    if (good) /* asked of each byte of long messages */
        return;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    fprintf(stderr, "rank %s: %s\n", rank ? rank : "?", what);
    _exit(1);
}

static inline void no_error(td_status *status)
{
    require(!status, td_status_message(status));
}

#endif
