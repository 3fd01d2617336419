/* Who does what among the ranks of a job: which rank runs which workers, which ranks serve, which wait for their turn. The number
 * of workers never changes, so neither do the bits of what they compute; where they are does when ranks are lost. */
#ifndef TANDEM_PS_MEMBERS_H
#define TANDEM_PS_MEMBERS_H

#include "ps/comm.h"

typedef struct td_members {
    int32_t ranks, workers, servers;
    int32_t first_servers; /* of the options */
    bool colocated;        /* who works serves too */
    int32_t *worker_ranks; /* [workers] */
    int32_t *server_ranks; /* [ranks], of which `servers` are there */
    char (*roles)[TD_COMM_NAME];
} td_members;

/* Workers first, then servers (0: colocated), then spares, which do nothing until a rank is lost. Errors: nobody is left to work. */
td_status *td_members_create(int32_t ranks, int32_t servers, int32_t spares, td_members **out_members) TD_MUST_USE;
void td_members_destroy(td_members *members);
/* The workers and shards of ranks that are lost find others: spares first, then the rank that runs the fewest workers. Follows
 * from who is lost alone. */
void td_members_replace(td_members *members, td_comm *comm);
int32_t td_members_count_workers(const td_members *members, int32_t rank);
/* The number of the shards that a rank serves; -1: none. */
int32_t td_members_server(const td_members *members, int32_t rank);

#endif
