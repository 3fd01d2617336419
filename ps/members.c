/* See members.h. */
#include "ps/members.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"

/* ---- roles ------------------------------------------------------------------------------------------------------------------ */

int32_t td_members_count_workers(const td_members *m, int32_t rank)
{
    int32_t n = 0;
    for (int32_t w = 0; w < m->workers; w++)
        n += m->worker_ranks[w] == rank;
    return n;
}

int32_t td_members_server(const td_members *m, int32_t rank)
{
    for (int32_t s = 0; s < m->servers; s++)
        if (m->server_ranks[s] == rank)
            return s;
    return -1;
}

/* "worker 0", "workers 0, 2 and server 1", "spare". */
static void name_role(const td_members *m, int32_t rank, char *out)
{
    const int32_t server = td_members_server(m, rank), workers = td_members_count_workers(m, rank);
    int length = 0;
    if (m->colocated && workers == 1 && server >= 0 && m->worker_ranks[server] == rank) {
        (void)snprintf(out, TD_COMM_NAME, "worker and server %d", server);
        return;
    }
    const char *before = workers > 1 ? "workers " : "worker ";
    for (int32_t w = 0; w < m->workers && length < TD_COMM_NAME; w++)
        if (m->worker_ranks[w] == rank) {
            length += snprintf(out + length, (size_t)(TD_COMM_NAME - length), "%s%d", before, w);
            before = ", ";
        }
    if (server >= 0 && length < TD_COMM_NAME)
        (void)snprintf(out + length, (size_t)(TD_COMM_NAME - length), "%sserver %d", workers ? " and " : "", server);
    else if (!workers)
        (void)snprintf(out, TD_COMM_NAME, "spare");
}

static void name_roles(td_members *m)
{
    for (int32_t r = 0; r < m->ranks; r++)
        name_role(m, r, m->roles[r]);
}

/* ---- at first --------------------------------------------------------------------------------------------------------------- */

static void assign_first(td_members *m)
{
    m->colocated = m->first_servers == 0;
    m->servers = m->colocated ? m->workers : m->first_servers;
    for (int32_t w = 0; w < m->workers; w++)
        m->worker_ranks[w] = w;
    for (int32_t s = 0; s < m->servers; s++)
        m->server_ranks[s] = m->colocated ? s : m->workers + s;
}

td_status *td_members_create(int32_t ranks, int32_t servers, int32_t spares, td_members **out_members)
{
    td_members *m = NULL;
    *out_members = NULL;
    if (servers < 0 || spares < 0 || (int64_t)servers + spares >= ranks) {
        td_status *status =
            spares && !servers ? TD_ERROR(TD_INVALID_ARGUMENT, "%d of %s spare, so none is left to work", spares,
                                          TD_COUNTED(ranks, "rank"))
            : spares ? TD_ERROR(TD_INVALID_ARGUMENT, "%d of %s to serve and %d spare, so none is left to work", servers,
                                TD_COUNTED(ranks, "rank"), spares)
                     : TD_ERROR(TD_INVALID_ARGUMENT, "%d of %s to serve, so none is left to work", servers,
                                TD_COUNTED(ranks, "rank"));
        return td_status_help(status, "start more ranks (mpirun -n %lld)%s%s", (long long)servers + spares + 1,
                              servers ? ", or set ps.servers to less, or to colocated" : "",
                              spares ? ", or set ps.spares to less" : "");
    }
    TD_TRY(TD_NEW(m, 1));
    *m = (td_members){.ranks = ranks, .workers = ranks - servers - spares, .first_servers = servers};
    m->worker_ranks = td_calloc((size_t)ranks, sizeof *m->worker_ranks);
    m->server_ranks = td_calloc((size_t)ranks, sizeof *m->server_ranks);
    m->roles = td_calloc((size_t)ranks, sizeof *m->roles);
    if (!m->worker_ranks || !m->server_ranks || !m->roles) {
        td_members_destroy(m);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a job of %s", TD_COUNTED(ranks, "rank"));
    }
    assign_first(m);
    name_roles(m);
    *out_members = m;
    return NULL;
}

void td_members_destroy(td_members *m)
{
    if (!m)
        return;
    td_free(m->worker_ranks);
    td_free(m->server_ranks);
    td_free(m->roles);
    td_free(m);
}

/* ---- after a loss ----------------------------------------------------------------------------------------------------------- */

static bool is_idle(const td_members *m, int32_t rank)
{
    return !td_members_count_workers(m, rank) && td_members_server(m, rank) < 0;
}

static int32_t idle_rank(const td_members *m, td_comm *comm)
{
    for (int32_t r = 0; r < m->ranks; r++)
        if (!td_comm_is_lost(comm, r) && is_idle(m, r))
            return r;
    return -1;
}

/* `works`: among those that work already. -1: there is none. */
static int32_t least_busy(const td_members *m, td_comm *comm, bool works)
{
    int32_t best = -1, fewest = 0;
    for (int32_t r = 0; r < m->ranks; r++) {
        const int32_t n = td_members_count_workers(m, r);
        if (td_comm_is_lost(comm, r) || (works && !n) || (best >= 0 && n >= fewest))
            continue;
        best = r;
        fewest = n;
    }
    return best;
}

static void replace_workers(td_members *m, td_comm *comm)
{
    for (int32_t w = 0; w < m->workers; w++) {
        if (!td_comm_is_lost(comm, m->worker_ranks[w]))
            continue;
        int32_t rank = idle_rank(m, comm);
        rank = rank < 0 ? least_busy(m, comm, true) : rank;
        m->worker_ranks[w] = rank < 0 ? least_busy(m, comm, false) : rank;
    }
}

/* Shards are cut anew among the servers that are left; where none is, who works serves. */
static void replace_servers(td_members *m, td_comm *comm)
{
    int32_t kept = 0;
    for (int32_t s = 0; s < m->servers && !m->colocated; s++) {
        int32_t rank = td_comm_is_lost(comm, m->server_ranks[s]) ? idle_rank(m, comm) : m->server_ranks[s];
        if (rank >= 0)
            m->server_ranks[kept++] = rank;
    }
    m->colocated = kept == 0;
    for (int32_t r = 0; r < m->ranks && m->colocated; r++)
        if (td_members_count_workers(m, r))
            m->server_ranks[kept++] = r;
    m->servers = kept;
}

void td_members_replace(td_members *m, td_comm *comm)
{
    /* What was replaced before is replaced anew: not all ranks need have seen the same losses in between. */
    assign_first(m);
    replace_workers(m, comm);
    replace_servers(m, comm);
    name_roles(m);
}
