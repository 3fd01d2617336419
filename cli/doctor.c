/* Judging an environment: one rule per function, each adding at most one line. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

typedef struct report {
    td_doctor_line *lines;
    int32_t n;
} report;

static void add(report *r, td_doctor_level level, const char *fix, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void add(report *r, td_doctor_level level, const char *fix, const char *format, ...)
{
    if (r->n == TD_DOCTOR_MOST_LINES)
        return;
    td_doctor_line *line = &r->lines[r->n++];
    line->level = level;
    snprintf(line->fix, sizeof line->fix, "%s", fix);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line->text, sizeof line->text, format, arguments);
    va_end(arguments);
}

static void judge_host(const td_doctor_facts *facts, report *r)
{
    if (facts->host_problem[0])
        add(r, TD_DOCTOR_WARN, "", "the cpu device does not open: %s", facts->host_problem);
    else
        add(r, TD_DOCTOR_OK, "", "%s, %s%s%s", TD_COUNTED(facts->cores_allowed, "core"), facts->host,
            facts->library[0] && !strstr(facts->host, "oneDNN") ? "; " : "",
            strstr(facts->host, "oneDNN") ? "" : facts->library);
    if (facts->x86 && !facts->avx2)
        add(r, TD_DOCTOR_WARN, "",
            "this processor has no AVX2: kernels run in their baseline form, several times slower");
}

static void judge_library(const td_doctor_facts *facts, report *r)
{
    if (!facts->library[0])
        add(r, TD_DOCTOR_MISS, "apt install libdnnl-dev and build again",
            "built without oneDNN: matrix products run in plain C, many times slower");
}

static void judge_cores(const td_doctor_facts *facts, report *r)
{
    if (facts->mpi_local_ranks > 0 && facts->cores_allowed < facts->cores_online)
        add(r, TD_DOCTOR_WARN, "add: --bind-to none", "mpirun binds each of %s to %d of %d cores",
            TD_COUNTED(facts->mpi_local_ranks, "rank"), facts->cores_allowed, facts->cores_online);
    else if (facts->cores_allowed < facts->cores_online)
        add(r, TD_DOCTOR_WARN, "widen it with taskset, or mind it in devices[].cores",
            "the affinity mask allows %d of %d cores", facts->cores_allowed, facts->cores_online);
    if (facts->cores_quota > 0 && facts->cores_quota < facts->cores_allowed)
        add(r, TD_DOCTOR_WARN, "raise cpu.max of the control group, or set cpu.threads",
            "the control group grants %.2g cores of time and %d are allowed: threads will be paused",
            facts->cores_quota, facts->cores_allowed);
    if (facts->cores_allowed == 1)
        add(r, TD_DOCTOR_WARN, "", "one core: the host and an emulated device take turns; overlap cannot show");
}

static void judge_openmp(const td_doctor_facts *facts, report *r)
{
    long threads = strtol(facts->omp_threads, NULL, 10);
    if (threads > 0 && threads < facts->cores_allowed)
        add(r, TD_DOCTOR_WARN, "unset it",
            "OMP_NUM_THREADS=%.20s is set: cpu.gemm: library will use no more (tiles do not care)", facts->omp_threads);
    if (!strcasecmp(facts->omp_wait_policy, "active"))
        add(r, TD_DOCTOR_WARN, "unset it", "OMP_WAIT_POLICY=active is set: idle OpenMP threads keep cores from others");
    if (facts->omp_proc_bind[0] && strcasecmp(facts->omp_proc_bind, "false"))
        add(r, TD_DOCTOR_WARN, "unset it", "OMP_PROC_BIND=%.20s is set: it may pile a library's threads onto one core",
            facts->omp_proc_bind);
}

static void judge_isa(const td_doctor_facts *facts, report *r)
{
    if (facts->isa_override[0])
        add(r, TD_DOCTOR_WARN, "unset it unless that is the aim", "TANDEM_ISA=%.20s overrides the instruction set",
            facts->isa_override);
}

/* What train.precision: bf16 is worth here. */
static void judge_bf16(const td_doctor_facts *facts, report *r)
{
    if (!facts->x86 || facts->host_problem[0])
        return;
    if (strstr(facts->host, "bf16 products"))
        add(r, TD_DOCTOR_OK, "", "bf16 instructions: train.precision: bf16 multiplies with them");
    else if (facts->bf16)
        add(r, TD_DOCTOR_WARN, "unset TANDEM_ISA", "bf16 instructions are here and not used");
    else
        add(r, TD_DOCTOR_OK, "",
            "no bf16 instructions that are faster than f32 (AMX, or AVX512_BF16 of AMD): train.precision: bf16 saves "
            "memory "
            "and traffic, not arithmetic");
}

static void judge_huge_pages(const td_doctor_facts *facts, report *r)
{
    if (!strcmp(facts->huge_pages, "never"))
        add(r, TD_DOCTOR_WARN, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (root)",
            "huge pages are off: lookups in large tables miss the TLB");
    else if (facts->huge_pages[0])
        add(r, TD_DOCTOR_OK, "", "huge pages: %s", facts->huge_pages);
}

static void judge_memory(const td_doctor_facts *facts, report *r)
{
    char total[TD_UNIT_TEXT], available[TD_UNIT_TEXT];
    int64_t most = facts->limit_bytes ? facts->limit_bytes : facts->memory_bytes;
    if (most <= 0)
        return;
    td_format_bytes(total, (double)most);
    td_format_bytes(available, (double)facts->available_bytes);
    const char *whose = facts->limit_bytes ? " (the control group's limit)" : "";
    if (facts->available_bytes * 8 < most)
        add(r, TD_DOCTOR_WARN, "end what else uses it", "%s of memory%s, but only %s available", total, whose,
            available);
    else
        add(r, TD_DOCTOR_OK, "", "%s of memory%s, %s available", total, whose, available);
}

static void judge_busy(const td_doctor_facts *facts, report *r)
{
    if (facts->load > 0.5 && facts->load > 0.25 * facts->cores_allowed)
        add(r, TD_DOCTOR_WARN, "see who: top",
            "other work keeps %.1f cores busy (load of the last minute): times will vary", facts->load);
    if (!strcmp(facts->governor, "powersave"))
        add(r, TD_DOCTOR_WARN, "cpupower frequency-set -g performance (root)",
            "the clock's governor is powersave: cores may run at their lowest frequency");
}

static void judge_system_limits(const td_doctor_facts *facts, report *r)
{
    char bytes[TD_UNIT_TEXT];
    if (facts->strict_overcommit)
        add(r, TD_DOCTOR_WARN, "sysctl vm.overcommit_memory=0 (root)",
            "memory is never overcommitted: tables of which few rows are used need all of it at once");
    if (facts->address_limit_bytes)
        add(r, TD_DOCTOR_WARN, "ulimit -v unlimited", "ulimit -v allows %s of addresses",
            td_format_bytes(bytes, (double)facts->address_limit_bytes));
    if (facts->file_limit_bytes)
        add(r, TD_DOCTOR_WARN, "ulimit -f unlimited", "ulimit -f allows files of %s: a larger checkpoint fails",
            td_format_bytes(bytes, (double)facts->file_limit_bytes));
}

static void judge_disk(const td_doctor_facts *facts, report *r)
{
    const int64_t little = (int64_t)1 << 30;
    char bytes[TD_UNIT_TEXT];
    if (!facts->folder_writable)
        add(r, TD_DOCTOR_WARN, "go elsewhere, or name a folder with --run",
            "the current folder cannot be written: no runs/");
    else if (facts->disk_free_bytes >= 0 && facts->disk_free_bytes < little)
        add(r, TD_DOCTOR_WARN, "make room, or name another disk with --run",
            "the disk here has %s left for checkpoints", td_format_bytes(bytes, (double)facts->disk_free_bytes));
}

static void judge_plugins(const td_doctor_facts *facts, report *r)
{
    if (facts->plugin_missing[0])
        add(r, TD_DOCTOR_MISS, "make it, or correct the variable", "TANDEM_PLUGIN_PATH names %s, which cannot be read",
            facts->plugin_missing);
}

int32_t td_doctor_judge(const td_doctor_facts *facts, td_doctor_line *out_lines)
{
    static void (*const rules[])(const td_doctor_facts *, report *) = {
        judge_host,       judge_library, judge_cores, judge_openmp,        judge_isa,  judge_bf16,
        judge_huge_pages, judge_memory,  judge_busy,  judge_system_limits, judge_disk, judge_plugins,
    };
    report r = {out_lines, 0};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        rules[i](facts, &r);
    return r.n;
}
