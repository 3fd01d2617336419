/* A server: owns shards, answers requests in turn, and applies each window when the gradients of all replicas are there: folded in
 * the replicas' order, then one update per row. A pull that asks for a window which is not applied yet waits, not the server. */
#ifndef TANDEM_PS_SERVER_H
#define TANDEM_PS_SERVER_H

#include "ps/comm.h"
#include "tandem/job.h"

typedef struct td_server td_server;

td_status *td_server_create(td_comm *comm, int32_t index, int32_t servers, int32_t workers, int32_t replicas,
                            bool at_once, td_server **out_server) TD_MUST_USE;
void td_server_destroy(td_server *server);
/* Until all workers have left. An error is the job's, or fails it. */
td_status *td_server_run(td_server *server) TD_MUST_USE;
td_job_served td_server_count(const td_server *server);

#endif
