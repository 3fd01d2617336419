/* What in this environment will hurt. Facts are gathered once, then judged by a function of the facts alone, so that tests
 * can judge environments that they are not in. */
#ifndef TANDEM_CLI_DOCTOR_H
#define TANDEM_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td_doctor_facts {
    int32_t cores_online, cores_allowed;
    double cores_quota;                                 /* of the control group; 0: none */
    char host[128];                                     /* the cpu device's own words: "avx2 kernels" */
    char library[32];                                   /* "oneDNN 2.6.3"; "" built without it */
    char host_problem[192];                             /* why it cannot be opened, or "" */
    bool x86, avx2, avx512;                             /* what the processor has */
    bool bf16;                                          /* and bf16 instructions that are worth it */
    char isa_override[32];                              /* TANDEM_ISA; "" not set */
    char omp_threads[32];                               /* OMP_NUM_THREADS */
    char omp_wait_policy[32];                           /* OMP_WAIT_POLICY */
    char omp_proc_bind[32];                             /* OMP_PROC_BIND */
    int32_t mpi_local_ranks;                            /* of mpirun on this host; 0: not under it */
    char huge_pages[16];                                /* always, madvise, never; "" unknown */
    int64_t memory_bytes, available_bytes, limit_bytes; /* limit: of the control group; 0: none */
    char plugin_path[512];                              /* TANDEM_PLUGIN_PATH */
    double load;                                        /* of the last minute; negative: unknown */
    char governor[32];                                  /* of the first core's clock; "" unknown */
    bool strict_overcommit;                             /* vm.overcommit_memory is 2 */
    int64_t address_limit_bytes, file_limit_bytes;      /* ulimit -v, -f; 0: none */
    int64_t disk_free_bytes;                            /* where the current folder is; -1: unknown */
    bool folder_writable;                               /* runs/ can be made in it */
    char plugin_missing[256];                           /* the first folder of it that does not exist, or "" */
} td_doctor_facts;

typedef enum td_doctor_level { TD_DOCTOR_OK, TD_DOCTOR_WARN, TD_DOCTOR_MISS } td_doctor_level;

typedef struct td_doctor_line {
    td_doctor_level level;
    char text[256];
    char fix[160]; /* "" where there is nothing to do */
} td_doctor_line;

enum { TD_DOCTOR_MOST_LINES = 24 };

void td_doctor_gather(td_doctor_facts *out_facts);
/* Returns how many lines, at most TD_DOCTOR_MOST_LINES. */
int32_t td_doctor_judge(const td_doctor_facts *facts, td_doctor_line *out_lines);

#endif
