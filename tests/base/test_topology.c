/* The machine as this process may use it; limits by control groups, read from invented file trees; lanes sharing cores. */
#include "tests/base/check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/cores.h"
#include "base/topology.h"
#include "tests/base/folder.h"

static void test_cores_are_those_of_the_affinity_mask(void **state)
{
    (void)state;
    td_core_set allowed, seen = {{0}};
    assert_ok(td_cores_allowed(&allowed));
    td_topology *t = NULL;
    assert_ok(td_topology_create(&t));
    assert_int_equal(t->n_cores, td_core_set_count(&allowed));
    for (int32_t i = 0; i < t->n_cores; i++) {
        assert_true(td_core_set_has(&allowed, t->cores[i]));
        assert_false(td_core_set_has(&seen, t->cores[i]));
        td_core_set_add(&seen, t->cores[i]);
    }
    assert_in_range(t->usable, 1, t->n_cores);
    assert_in_range(t->n_physical, 1, t->n_cores);
    assert_true(t->n_numa >= 1 && t->l1_bytes >= 0 && t->l2_bytes >= 0 && t->l3_bytes >= 0);
    assert_true(t->memory_bytes > (int64_t)16 << 20);
    assert_true(t->memory_available_bytes >= 0 && t->memory_available_bytes <= t->memory_bytes);
    td_topology_destroy(t);
}

static void test_a_narrower_mask_is_seen(void **state)
{
    (void)state;
    td_core_set before, one = {{0}};
    assert_ok(td_cores_allowed(&before));
    int32_t last = -1;
    for (int32_t core = 0; core < TD_MAX_CORES; core++)
        last = td_core_set_has(&before, core) ? core : last;
    td_core_set_add(&one, last);
    assert_ok(td_cores_bind_self(&one));
    td_topology *t = NULL;
    td_status *status = td_topology_create(&t);
    assert_ok(td_cores_bind_self(&before));
    assert_ok(status);
    assert_int_equal(t->n_cores, 1);
    assert_int_equal(t->n_physical, 1);
    assert_int_equal(t->usable, 1);
    assert_int_equal(t->cores[0], last);
    td_topology_destroy(t);
}

static td_status *create(void *context)
{
    return td_topology_create(context);
}
static void destroy(void *context)
{
    td_topology_destroy(*(td_topology **)context);
}

static void test_survives_allocation_failures(void **state)
{
    (void)state;
    td_topology *t = NULL;
    assert_int_equal(assert_survives_allocation_failures(create, destroy, &t), 2);
    td_topology_destroy(NULL);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------------ */

static int32_t numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static void test_lanes_get_disjoint_cores_while_there_are_enough(void **state)
{
    (void)state;
    td_topology t = {.cores = numbers, .n_cores = 8, .n_physical = 8, .usable = 8};
    td_lane_cores lanes[3];
    assert_false(td_topology_split(&t, 3, (int32_t[]){3, 1, 4}, lanes));
    assert_ptr_equal(lanes[0].cores, numbers);
    assert_ptr_equal(lanes[1].cores, numbers + 3);
    assert_ptr_equal(lanes[2].cores, numbers + 4);
    assert_int_equal(lanes[0].n_cores, 3);
    assert_int_equal(lanes[1].n_cores, 1);
    assert_int_equal(lanes[2].n_cores, 4);
    assert_false(td_topology_split(&t, 3, (int32_t[]){0, 1, 0}, lanes)); /* 7 left for two */
    assert_int_equal(lanes[0].n_cores, 4);
    assert_ptr_equal(lanes[1].cores, numbers + 4);
    assert_ptr_equal(lanes[2].cores, numbers + 5);
    assert_int_equal(lanes[2].n_cores, 3);
    assert_false(td_topology_split(&t, 0, NULL, lanes));
}

static void test_lanes_take_turns_when_there_are_not(void **state)
{
    (void)state;
    td_topology t = {.cores = numbers, .n_cores = 8, .n_physical = 8, .usable = 2, .quota = 2.5};
    td_lane_cores lanes[3];
    assert_false(td_topology_split(&t, 2, (int32_t[]){1, 1}, lanes));
    assert_true(td_topology_split(&t, 3, (int32_t[]){2, 9, 0}, lanes));
    const int32_t sizes[3] = {2, 2, 1};
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(lanes[i].cores, numbers);
        assert_int_equal(lanes[i].n_cores, sizes[i]);
    }
    assert_true(td_topology_split(&t, 3, (int32_t[]){0, 0, 0}, lanes));
}

/* ---- control groups ----------------------------------------------------------------------------------------------------- */

static void plant(const folder *t, const char *path, const char *text)
{
    char full[512];
    assert_true(snprintf(full, sizeof full, "%s/%s", t->path, path) < (int)sizeof full);
    for (char *slash = full + strlen(t->path) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_no_files_mean_no_limit(void **state)
{
    (void)state;
    folder t = make_folder();
    td_cgroup limits = td_cgroup_read(t.path);
    assert_true(limits.cpus == 0 && limits.memory_bytes == 0 && limits.memory_used_bytes == 0);
    remove_folder(&t);
}

static void test_version_2_takes_the_tightest_of_all_levels(void **state)
{
    (void)state;
    folder t = make_folder();
    plant(&t, "proc/self/cgroup", "0::/a/b\n");
    plant(&t, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    plant(&t, "sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    plant(&t, "sys/fs/cgroup/a/b/memory.max", "1073741824\n");
    plant(&t, "sys/fs/cgroup/a/b/memory.current", "500000\n");
    plant(&t, "sys/fs/cgroup/a/b/memory.stat", "anon 7\nnot_inactive_file 1\ninactive_file 200000\nslab 1\n");
    plant(&t, "sys/fs/cgroup/a/memory.max", "2147483648\n");
    td_cgroup limits = td_cgroup_read(t.path);
    assert_true(limits.cpus == 1.5);
    assert_int_equal(limits.memory_bytes, 1 << 30);
    assert_int_equal(limits.memory_used_bytes, 300000);
    remove_folder(&t);
}

/* A container sees the host's path in /proc but only its own group under /sys. */
static void test_version_2_in_a_container(void **state)
{
    (void)state;
    folder t = make_folder();
    plant(&t, "proc/self/cgroup", "0::/system.slice/docker-0123.scope\n");
    plant(&t, "sys/fs/cgroup/cpu.max", "50000 100000\n");
    plant(&t, "sys/fs/cgroup/memory.max", "max\n");
    td_cgroup limits = td_cgroup_read(t.path);
    assert_true(limits.cpus == 0.5);
    assert_int_equal(limits.memory_bytes, 0);
    remove_folder(&t);
}

static void test_version_1(void **state)
{
    (void)state;
    folder t = make_folder();
    plant(&t, "proc/self/cgroup",
          "garbage\n11:cpuset:/x\n5:memory:/docker/12\n4:cpu,cpuacct:/docker/12\n1:name=systemd:/docker/12\n0::/\n");
    plant(&t, "sys/fs/cgroup/cpu,cpuacct/docker/12/cpu.cfs_quota_us", "300000\n");
    plant(&t, "sys/fs/cgroup/cpu,cpuacct/docker/12/cpu.cfs_period_us", "100000\n");
    plant(&t, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    plant(&t, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    plant(&t, "sys/fs/cgroup/memory/docker/12/memory.limit_in_bytes", "9223372036854771712\n");
    plant(&t, "sys/fs/cgroup/memory/memory.limit_in_bytes", "4194304\n");
    plant(&t, "sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
    plant(&t, "sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 5000\n");
    td_cgroup limits = td_cgroup_read(t.path);
    assert_true(limits.cpus == 3);
    assert_int_equal(limits.memory_bytes, 4194304);
    assert_int_equal(limits.memory_used_bytes, 0); /* more can be dropped than is counted: never negative */
    remove_folder(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_are_those_of_the_affinity_mask),
        cmocka_unit_test(test_a_narrower_mask_is_seen),
        cmocka_unit_test(test_survives_allocation_failures),
        cmocka_unit_test(test_lanes_get_disjoint_cores_while_there_are_enough),
        cmocka_unit_test(test_lanes_take_turns_when_there_are_not),
        cmocka_unit_test(test_no_files_mean_no_limit),
        cmocka_unit_test(test_version_2_takes_the_tightest_of_all_levels),
        cmocka_unit_test(test_version_2_in_a_container),
        cmocka_unit_test(test_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
