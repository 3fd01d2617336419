/* See base/cgroup.h. /proc/self/cgroup names the group per controller (one line "0::/path" in version 2); the limits are
 * files under /sys/fs/cgroup. Where that path does not exist, as in containers that hide the host's tree, the container's
 * own group is the top of what is mounted, which the walk upwards ends at. */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4096 };

typedef struct controller {
    const char *root;
    char folder[64];     /* under /sys/fs/cgroup; "" in version 2 */
    char group[LONGEST]; /* "/a/b", shortened while walking up */
} controller;

/* The beginning of a small file; false where there is none. */
static bool read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, size - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    return n > 0;
}

static bool read_limit_file(const controller *c, const char *name, char *text, size_t size)
{
    char path[2 * LONGEST];
    int length = snprintf(path, sizeof path, "%s/sys/fs/cgroup/%s%s/%s", c->root, c->folder, c->group, name);
    return length > 0 && (size_t)length < sizeof path && read_text(path, text, size);
}

/* A number; -1 where the file is missing or says "max". */
static int64_t read_number(const controller *c, const char *name)
{
    char text[64], *end;
    if (!read_limit_file(c, name, text, sizeof text))
        return -1;
    long long value = strtoll(text, &end, 10);
    return end == text ? -1 : value;
}

/* The value after `key ` at the start of a line of a statistics file; 0 where there is none. */
static int64_t read_statistic(const controller *c, const char *name, const char *key)
{
    char text[16384];
    if (!read_limit_file(c, name, text, sizeof text))
        return 0;
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoll(line + length, NULL, 10);
    }
    return 0;
}

static void limit_cpus(const controller *c, bool v2, td_cgroup *out)
{
    long long quota = -1, period = 0;
    if (v2) {
        char text[64];
        if (!read_limit_file(c, "cpu.max", text, sizeof text) || sscanf(text, "%lld %lld", &quota, &period) != 2)
            return; /* "max 100000" has no number in front */
    } else {
        quota = read_number(c, "cpu.cfs_quota_us");
        period = read_number(c, "cpu.cfs_period_us");
    }
    if (quota <= 0 || period <= 0)
        return;
    double cpus = (double)quota / (double)period;
    if (out->cpus == 0 || cpus < out->cpus)
        out->cpus = cpus;
}

static void limit_memory(const controller *c, bool v2, td_cgroup *out)
{
    const int64_t no_limit = (int64_t)1 << 60; /* version 1 says "none" by a number close to 2^63 */
    int64_t limit = read_number(c, v2 ? "memory.max" : "memory.limit_in_bytes");
    if (limit <= 0 || limit >= no_limit || (out->memory_bytes && limit >= out->memory_bytes))
        return;
    int64_t used = read_number(c, v2 ? "memory.current" : "memory.usage_in_bytes");
    int64_t droppable = read_statistic(c, "memory.stat", v2 ? "inactive_file" : "total_inactive_file");
    out->memory_bytes = limit;
    out->memory_used_bytes = used > droppable ? used - droppable : 0;
}

/* From the group up to the top. */
static void walk(controller *c, bool v2, void (*limit)(const controller *, bool, td_cgroup *), td_cgroup *out)
{
    for (;;) {
        limit(c, v2, out);
        char *slash = strrchr(c->group, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* Whether a comma-separated list has this name. */
static bool lists(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* One line of /proc/self/cgroup: "4:cpu,cpuacct:/docker/..." or "0::/user.slice". */
static void read_line(const char *root, char *line, td_cgroup *out)
{
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return;
    *group++ = '\0';
    controllers++;
    controller c = {.root = root};
    bool v2 = *controllers == '\0', cpu = lists(controllers, "cpu"), memory = lists(controllers, "memory");
    if ((!v2 && !cpu && !memory) || strlen(controllers) >= sizeof c.folder)
        return;
    for (int each = 0; each < 2; each++) { /* walking shortens the path, so it is copied for each */
        (void)snprintf(c.group, sizeof c.group, "%s", strcmp(group, "/") == 0 ? "" : group);
        (void)snprintf(c.folder, sizeof c.folder, "%s", controllers);
        if (each == 0 && (v2 || cpu))
            walk(&c, v2, limit_cpus, out);
        if (each == 1 && (v2 || memory))
            walk(&c, v2, limit_memory, out);
    }
}

td_cgroup td_cgroup_read(const char *root)
{
    td_cgroup limits = {0};
    char path[LONGEST], text[16384];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_text(path, text, sizeof text))
        return limits;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        read_line(root, line, &limits);
    return limits;
}
