/* Gathering what `tandem doctor` judges: from the kernel's files, the environment and the cpu device. A fact that cannot be
 * had stays zero or empty; nothing here fails. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifdef TANDEM_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#include "backends/isa.h"
#include "backends/registry.h"
#include "base/cgroup.h"
#include "base/cores.h"
#include "base/memory.h"
#include "cli/doctor.h"

static bool read_line(const char *path, char *buffer, size_t bytes)
{
    buffer[0] = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool read = fgets(buffer, (int)bytes, file) != NULL;
    fclose(file);
    buffer[strcspn(buffer, "\n")] = 0;
    return read;
}

static void environment(const char *name, char *buffer, size_t bytes)
{
    const char *value = getenv(name);
    snprintf(buffer, bytes, "%s", value ? value : "");
}

static void gather_cores(td_doctor_facts *facts)
{
    facts->cores_online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    td_core_set *set = td_calloc(1, sizeof *set);
    td_status *status = set ? td_cores_allowed(set) : NULL;
    facts->cores_allowed = set && !status ? td_core_set_count(set) : facts->cores_online;
    td_status_destroy(status);
    td_free(set);
}

/* Memory, and what the control group grants of it and of the cores. */
static void gather_limits(td_doctor_facts *facts)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[200];
    long long kib;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemTotal: %lld kB", &kib) == 1)
            facts->memory_bytes = kib * 1024;
        if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1)
            facts->available_bytes = kib * 1024;
    }
    if (file)
        fclose(file);
    td_cgroup group = td_cgroup_read("");
    facts->cores_quota = group.cpus;
    if (group.memory_bytes <= 0 || group.memory_bytes >= facts->memory_bytes)
        return;
    facts->limit_bytes = group.memory_bytes;
    int64_t left = group.memory_bytes - group.memory_used_bytes;
    if (left < facts->available_bytes)
        facts->available_bytes = left;
}

static void gather_huge_pages(td_doctor_facts *facts)
{
    char line[100];
    if (!read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line))
        return;
    const char *open = strchr(line, '[');
    if (open)
        snprintf(facts->huge_pages, sizeof facts->huge_pages, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
}

static void gather_host(td_doctor_facts *facts)
{
    const td_backend_api *api = NULL;
    td_device *device = NULL;
    td_status *status = td_backend_find("cpu", &api);
    if (!status)
        status = api->device_open(td_backend_host(), "", &device);
    if (!status) {
        td_device_properties properties = {.struct_size = sizeof properties};
        api->device_properties(device, &properties);
        snprintf(facts->host, sizeof facts->host, "%s", properties.description);
        api->device_close(device);
    } else {
        snprintf(facts->host_problem, sizeof facts->host_problem, "%s", td_status_message(status));
        facts->host_problem[strcspn(facts->host_problem, "\n")] = 0;
    }
    td_status_destroy(status);
#ifdef TANDEM_HAVE_ONEDNN
    const dnnl_version_t *version = dnnl_version();
    snprintf(facts->library, sizeof facts->library, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
#endif
#if defined(__x86_64__)
    facts->x86 = true;
    facts->avx2 = td_isa_available(TD_ISA_AVX2);
    facts->avx512 = td_isa_available(TD_ISA_AVX512);
    facts->bf16 = td_isa_best() >= TD_ISA_AVX512_BF16;
#endif
}

static void gather_plugins(td_doctor_facts *facts)
{
    environment("TANDEM_PLUGIN_PATH", facts->plugin_path, sizeof facts->plugin_path);
    for (const char *at = facts->plugin_path; *at;) {
        size_t length = strcspn(at, ":");
        char folder[512];
        snprintf(folder, sizeof folder, "%.*s", (int)length, at);
        if (length && access(folder, R_OK | X_OK) && !facts->plugin_missing[0])
            snprintf(facts->plugin_missing, sizeof facts->plugin_missing, "%.200s", folder);
        at += length + (at[length] == ':');
    }
}

static int64_t limit_of(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY ? 0 : (int64_t)limit.rlim_cur;
}

static void gather_system(td_doctor_facts *facts)
{
    char line[64];
    struct statvfs disk;
    facts->load = read_line("/proc/loadavg", line, sizeof line) ? strtod(line, NULL) : -1;
    (void)read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", facts->governor, sizeof facts->governor);
    facts->strict_overcommit = read_line("/proc/sys/vm/overcommit_memory", line, sizeof line) && line[0] == '2';
    facts->address_limit_bytes = limit_of(RLIMIT_AS);
    facts->file_limit_bytes = limit_of(RLIMIT_FSIZE);
    facts->disk_free_bytes = statvfs(".", &disk) ? -1 : (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
    facts->folder_writable = !access(".", W_OK | X_OK);
}

void td_doctor_gather(td_doctor_facts *out_facts)
{
    *out_facts = (td_doctor_facts){0};
    gather_cores(out_facts);
    gather_host(out_facts);
    environment("TANDEM_ISA", out_facts->isa_override, sizeof out_facts->isa_override);
    environment("OMP_NUM_THREADS", out_facts->omp_threads, sizeof out_facts->omp_threads);
    environment("OMP_WAIT_POLICY", out_facts->omp_wait_policy, sizeof out_facts->omp_wait_policy);
    environment("OMP_PROC_BIND", out_facts->omp_proc_bind, sizeof out_facts->omp_proc_bind);
    char ranks[16];
    environment("OMPI_COMM_WORLD_LOCAL_SIZE", ranks, sizeof ranks);
    out_facts->mpi_local_ranks = (int32_t)strtol(ranks, NULL, 10);
    gather_huge_pages(out_facts);
    gather_limits(out_facts);
    gather_system(out_facts);
    gather_plugins(out_facts);
}
