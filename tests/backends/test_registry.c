/* The registry of backends, device options and host services. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/isa.h"
#include "backends/options.h"
#include "backends/registry.h"
#include "base/memory.h"

static void assert_error(td_status *status, td_code code, const char *part)
{
    assert_non_null(status);
    assert_int_equal(td_status_code(status), code);
    if (!strstr(td_status_message(status), part))
        fail_msg("\"%s\" does not say \"%s\"", td_status_message(status), part);
    td_status_destroy(status);
}

static void test_built_in_backends_are_found_by_name(void **state)
{
    (void)state;
    const td_backend_api *api = NULL;
    assert_null(td_backend_find("cpu", &api));
    assert_string_equal(api->name, "cpu");
    unsetenv("TANDEM_PLUGIN_PATH");
    assert_error(td_backend_find("cqu", &api), TD_NOT_FOUND, "no backend \"cqu\"");
    assert_null(api);
}

static void test_a_missing_library_is_named(void **state)
{
    (void)state;
    const td_backend_api *api = NULL;
    assert_error(td_backend_find("/nowhere/libmine.so", &api), TD_NOT_FOUND, "/nowhere/libmine.so");
}

static void test_a_device_splits_into_backend_and_options(void **state)
{
    (void)state;
    char *name = NULL, *options = NULL;
    assert_null(td_backend_split("emulated:memory=1MiB,cores=2", &name, &options));
    assert_string_equal(name, "emulated");
    assert_string_equal(options, "memory=1MiB,cores=2");
    td_free(name);
    td_free(options);
    assert_null(td_backend_split("cpu", &name, &options));
    assert_string_equal(options, "");
    td_free(name);
    td_free(options);
    assert_error(td_backend_split(":x=1", &name, &options), TD_INVALID_ARGUMENT, "expected a backend's name");
}

/* ---- adopting tables --------------------------------------------------------------------------------------------------- */

static void test_a_table_of_another_major_version_is_refused_with_numbers(void **state)
{
    (void)state;
    const td_backend_api *cpu = NULL;
    assert_null(td_backend_find("cpu", &cpu));
    td_backend_api table = *cpu, adopted;
    table.abi_major = 7;
    table.abi_minor = 3;
    assert_error(td_backend_adopt("x.so", &table, &adopted), TD_UNSUPPORTED, "x.so: made for backend ABI 7.3");
}

static void test_a_table_without_a_required_slot_is_refused_by_its_name(void **state)
{
    (void)state;
    const td_backend_api *cpu = NULL;
    assert_null(td_backend_find("cpu", &cpu));
    td_backend_api table = *cpu, adopted;
    table.event_record = NULL;
    assert_error(td_backend_adopt("x.so", &table, &adopted), TD_UNSUPPORTED, "\"event_record\"");
    assert_error(td_backend_adopt("x.so", NULL, &adopted), TD_UNSUPPORTED, "x.so: td_backend_entry returned no table");
}

static void test_a_shorter_table_is_read_up_to_its_size(void **state)
{
    (void)state;
    const td_backend_api *cpu = NULL;
    assert_null(td_backend_find("cpu", &cpu));
    td_backend_api table = *cpu, adopted;
    assert_non_null(table.memory_in_use);
    table.struct_size = offsetof(td_backend_api, compile_subgraph);
    assert_null(td_backend_adopt("x.so", &table, &adopted));
    assert_non_null(adopted.kernel_run);
    assert_null(adopted.memory_in_use);
    table.struct_size = offsetof(td_backend_api, kernel_run);
    assert_error(td_backend_adopt("x.so", &table, &adopted), TD_UNSUPPORTED, "required slots alone take");
}

static void test_a_longer_table_of_a_newer_minor_version_is_taken(void **state)
{
    (void)state;
    const td_backend_api *cpu = NULL;
    assert_null(td_backend_find("cpu", &cpu));
    struct {
        td_backend_api api;
        void (*later)(void);
    } table = {.api = *cpu};
    td_backend_api adopted;
    table.api.struct_size = sizeof table;
    table.api.abi_minor = 9;
    assert_null(td_backend_adopt("x.so", &table.api, &adopted));
    assert_non_null(adopted.memory_in_use);
}

/* ---- options ----------------------------------------------------------------------------------------------------------- */

typedef struct device_settings {
    uint64_t memory;
    int32_t cores, gemm;
    double link, latency;
} device_settings;

static td_status *parse(const char *text, device_settings *out)
{
    static const char *const choices[] = {"tiles", "library", "reference", NULL};
    *out = (device_settings){.memory = 1, .cores = 2, .gemm = 0, .link = 3, .latency = 4};
    const td_option table[] = {
        {.key = "memory", .type = TD_OPTION_BYTES, .target = &out->memory},
        {.key = "cores", .type = TD_OPTION_INT, .target = &out->cores, .least = 1, .most = 64},
        {.key = "gemm", .type = TD_OPTION_CHOICE, .target = &out->gemm, .choices = choices},
        {.key = "link", .type = TD_OPTION_RATE, .target = &out->link},
        {.key = "latency", .type = TD_OPTION_SECONDS, .target = &out->latency},
    };
    return td_options_parse("emulated", text, table, 5);
}

static void test_options_read_values_with_units(void **state)
{
    (void)state;
    device_settings settings;
    assert_null(parse("memory=256MiB,cores=3,link=12GB/s,latency=8us,gemm=reference", &settings));
    assert_int_equal(settings.memory, 256 << 20);
    assert_int_equal(settings.cores, 3);
    assert_int_equal(settings.gemm, 2);
    assert_true(settings.link == 12e9);
    assert_true(settings.latency == 8 * 1e-6);
    assert_null(parse("memory=1.5kB", &settings));
    assert_int_equal(settings.memory, 1500);
    assert_int_equal(settings.cores, 2);
    assert_null(parse(NULL, &settings));
    assert_null(parse("", &settings));
    assert_int_equal(settings.memory, 1);
}

static void test_wrong_options_are_refused_with_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"memroy=1", "emulated: unknown device option \"memroy\"\n  known: memory, cores, gemm, link, latency"},
        {"memory", "\"memory\": expected key=value"},
        {"memory=", "memory=: expected bytes"},
        {"memory=1XB", "memory=1XB: expected bytes"},
        {"memory=-1", "memory=-1: expected bytes"},
        {"memory=inf", "memory=inf: expected bytes"},
        {"memory=1e30", "memory=1e30: expected bytes"},
        {"cores=0", "cores=0: expected a whole number from 1 to 64"},
        {"cores=65", "from 1 to 64"},
        {"cores=2.5", "expected a whole number"},
        {"cores=99999999999999999999", "expected a whole number"},
        {"link=0GB/s", "expected a rate above 0"},
        {"link=12GB", "expected a rate above 0"},
        {"latency=8", "expected a time"},
        {"gemm=fast", "expected one of tiles, library, reference"},
        {"cores=1,cores=2", "\"cores\" is given twice"},
        {"cores=1,", "end with a comma"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        device_settings settings;
        assert_error(parse(cases[i].text, &settings), TD_INVALID_ARGUMENT, cases[i].part);
    }
}

/* ---- host services ------------------------------------------------------------------------------------------------------- */

static void test_host_services_count_memory_and_make_errors(void **state)
{
    (void)state;
    const td_host_services *host = td_backend_host();
    uint64_t before = td_memory_read().bytes_now;
    char *memory = host->allocate(100);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_int_equal(td_memory_read().bytes_now, before + 100);
    host->release(memory);
    assert_int_equal(td_memory_read().bytes_now, before);
    assert_error((host->fail)(TD_DATA_ERROR, "mine.c", 3, "100 % wrong"), TD_DATA_ERROR, "100 % wrong");
    assert_error((host->fail)(12345, NULL, 3, NULL), TD_INTERNAL, "unknown error");
}

static td_status *nothing(const td_kernel_call *call)
{
    (void)call;
    return NULL;
}

static td_status *(*find_nothing(const char *op))(const td_kernel_call *call)
{
    return strcmp(op, "nothing") == 0 ? nothing : NULL;
}

static void test_reference_kernels_come_from_where_the_runtime_says(void **state)
{
    (void)state;
    assert_null(td_backend_host()->reference_kernel("nothing"));
    td_backend_set_reference(find_nothing);
    assert_true(td_backend_host()->reference_kernel("nothing") == nothing);
    assert_null(td_backend_host()->reference_kernel("other"));
    td_backend_set_reference(NULL);
}

/* ---- instruction sets ------------------------------------------------------------------------------------------------------ */

static void test_the_instruction_set_is_the_best_one_or_what_is_asked_for(void **state)
{
    (void)state;
    td_isa isa;
    unsetenv("TANDEM_ISA");
    assert_null(td_isa_choose(&isa));
    assert_int_equal(isa, td_isa_best());
    setenv("TANDEM_ISA", "baseline", 1);
    assert_null(td_isa_choose(&isa));
    assert_int_equal(isa, TD_ISA_BASELINE);
    setenv("TANDEM_ISA", "sse9", 1);
    assert_error(td_isa_choose(&isa), TD_INVALID_ARGUMENT, "TANDEM_ISA=sse9: unknown instruction set");
    for (int32_t i = 0; i < TD_ISA_COUNT; i++) {
        setenv("TANDEM_ISA", td_isa_name((td_isa)i), 1);
        td_status *status = td_isa_choose(&isa);
        assert_int_equal(status == NULL, td_isa_available((td_isa)i));
        if (!status)
            assert_int_equal(isa, i);
        td_status_destroy(status);
    }
    unsetenv("TANDEM_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in_backends_are_found_by_name),
        cmocka_unit_test(test_a_missing_library_is_named),
        cmocka_unit_test(test_a_device_splits_into_backend_and_options),
        cmocka_unit_test(test_a_table_of_another_major_version_is_refused_with_numbers),
        cmocka_unit_test(test_a_table_without_a_required_slot_is_refused_by_its_name),
        cmocka_unit_test(test_a_shorter_table_is_read_up_to_its_size),
        cmocka_unit_test(test_a_longer_table_of_a_newer_minor_version_is_taken),
        cmocka_unit_test(test_options_read_values_with_units),
        cmocka_unit_test(test_wrong_options_are_refused_with_what_is_allowed),
        cmocka_unit_test(test_host_services_count_memory_and_make_errors),
        cmocka_unit_test(test_reference_kernels_come_from_where_the_runtime_says),
        cmocka_unit_test(test_the_instruction_set_is_the_best_one_or_what_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
