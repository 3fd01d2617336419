/* Shared objects as backends: built outside the tree's own build, found by path and by name, refused with the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "backends/registry.h"
#include "base/memory.h"
#include "where.h"

static char directory[] = "/tmp/tandem_plugin_XXXXXX";

static void must(td_status *status)
{
    if (status)
        fail_msg("%s", td_status_message(status));
}

static void must_fail(td_status *status, td_code code, const char *part, const char *other_part)
{
    assert_non_null(status);
    assert_int_equal(td_status_code(status), code);
    if (!strstr(td_status_message(status), part) || !strstr(td_status_message(status), other_part))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", td_status_message(status), part, other_part);
    td_status_destroy(status);
}

static void shell(const char *format, const char *a, const char *b)
{
    char command[2048];
    (void)snprintf(command, sizeof command, format, a, b);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

/* Compiles a library with this body, after #include "tandem/backend.h"; its path in `out`. */
static const char *compile(const char *name, const char *body, char *out, size_t bytes)
{
    char source[512];
    (void)snprintf(source, sizeof source, "%s/%s.c", directory, name);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "#include \"tandem/backend.h\"\n%s\n", body) > 0);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(out, bytes, "%s/%s.so", directory, name);
    shell("cc -shared -fPIC -I" TD_SOURCE_DIR "/include %s -o %s", source, out);
    return out;
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : 1;
}

static int remove_directory(void **state)
{
    (void)state;
    td_backend_forget_plugins();
    shell("rm -rf '%s'%s", directory, "");
    return 0;
}

static td_status *doubling(const td_kernel_call *call)
{
    const float *x = call->inputs[0].data;
    float *y = call->outputs[0].data;
    for (int64_t i = 0; i < call->outputs[0].dims[0]; i++)
        y[i] = 2 * x[i];
    return NULL;
}

static td_status *(*find_doubling(const char *op))(const td_kernel_call *call)
{
    return strcmp(op, "double") == 0 ? doubling : NULL;
}

/* ---- the sample ------------------------------------------------------------------------------------------------------------------ */

static void compute_on(const td_backend_api *api)
{
    td_device *device = NULL;
    td_queue *queue = NULL;
    td_kernel *kernel = NULL;
    void *memory = NULL;
    size_t scratch = 0;
    float host[3] = {1, 2, 3};
    td_backend_set_reference(find_doubling);
    must(api->device_open(td_backend_host(), "memory=1KiB", &device));
    td_queue_options options = {.struct_size = sizeof options, .kind = TD_QUEUE_COMPUTE};
    must(api->queue_open(device, &options, &queue));
    must(api->allocate(device, sizeof host, &memory));
    must(api->copy_to_device(queue, memory, host, sizeof host));
    td_tensor x = {.kind = TD_DENSE, .dtype = TD_F32, .rank = 1, .dims = {3}, .data = memory};
    td_kernel_call call = {.struct_size = sizeof call,
                           .op = "double",
                           .name = "d",
                           .inputs = &x,
                           .n_inputs = 1,
                           .outputs = &x,
                           .n_outputs = 1};
    must(api->kernel_prepare(device, &call, &kernel, &scratch));
    must(api->kernel_run(queue, kernel, &call));
    must(api->copy_to_host(queue, host, memory, sizeof host));
    assert_true(host[0] == 2 && host[1] == 4 && host[2] == 6);
    api->kernel_release(device, kernel);
    api->release(device, memory);
    api->queue_close(queue);
    api->device_close(device);
    td_backend_set_reference(NULL);
}

static void test_the_sample_builds_alone_and_is_found_by_name_and_by_path(void **state)
{
    (void)state;
    shell("make -s -C " TD_SOURCE_DIR "/samples/plugin INCLUDE=" TD_SOURCE_DIR "/include OUT=%s CFLAGS='-O1 -Werror%s'",
          directory, "");
    uint64_t before = td_memory_read().bytes_now;
    char path[512];
    const td_backend_api *by_path = NULL, *by_name = NULL;
    (void)snprintf(path, sizeof path, "%s/libmirror.so", directory);
    must(td_backend_find(path, &by_path));
    assert_string_equal(by_path->name, "mirror");
    (void)snprintf(path, sizeof path, "::/nowhere:%s", directory);
    setenv("TANDEM_PLUGIN_PATH", path, 1);
    must(td_backend_find("mirror", &by_name));
    assert_ptr_equal(by_name, by_path); /* loaded once */
    compute_on(by_name);
    must_fail(td_backend_find("mirrro", &by_name), TD_NOT_FOUND, "no backend \"mirrro\"", "libmirrro.so");
    td_backend_forget_plugins();
    assert_int_equal(td_memory_read().bytes_now, before);
    must(td_backend_find("mirror", &by_name));
    td_backend_forget_plugins();
}

/* ---- what is refused ----------------------------------------------------------------------------------------------------------------- */

static void test_a_library_without_the_entry_is_refused_by_the_symbols_name(void **state)
{
    (void)state;
    char path[512];
    const td_backend_api *api = NULL;
    must_fail(td_backend_find(compile("empty", "int nothing;", path, sizeof path), &api), TD_NOT_FOUND,
              "td_backend_entry", "empty.so");
}

static void test_a_library_that_lacks_a_function_of_another_is_refused_by_its_name(void **state)
{
    (void)state;
    char path[512];
    const td_backend_api *api = NULL;
    const char *body = "void vendor_launch(void);\n"
                       "const td_backend_api *td_backend_entry(void) { vendor_launch(); return 0; }";
    must_fail(td_backend_find(compile("lacking", body, path, sizeof path), &api), TD_NOT_FOUND, "vendor_launch",
              "lacking.so");
}

static void test_a_file_that_is_no_library_is_refused(void **state)
{
    (void)state;
    char path[512];
    const td_backend_api *api = NULL;
    (void)snprintf(path, sizeof path, "%s/text.so", directory);
    shell("echo hello > %s%s", path, "");
    must_fail(td_backend_find(path, &api), TD_NOT_FOUND, "text.so", "");
}

static void test_another_abi_is_refused_with_both_numbers(void **state)
{
    (void)state;
    char path[512];
    const td_backend_api *api = NULL;
    const char *body =
        "static const td_backend_api api = {.struct_size = sizeof api, .abi_major = 9, .abi_minor = 2};\n"
        "const td_backend_api *td_backend_entry(void) { return &api; }";
    must_fail(td_backend_find(compile("newer", body, path, sizeof path), &api), TD_UNSUPPORTED, "newer.so", "ABI 9.2");
}

static void test_an_empty_slot_is_refused_by_its_name(void **state)
{
    (void)state;
    char path[512];
    const td_backend_api *api = NULL;
    const char *body = "static const td_backend_api api = {.struct_size = sizeof api, .abi_major = 1, .name = \"x\"};\n"
                       "const td_backend_api *td_backend_entry(void) { return &api; }";
    must_fail(td_backend_find(compile("hollow", body, path, sizeof path), &api), TD_UNSUPPORTED, "hollow.so",
              "device_open");
}

/* ---- listing -------------------------------------------------------------------------------------------------------------------------- */

static const td_backend_listing *find_row(const td_backend_listing *rows, const char *name)
{
    for (; rows->name; rows++)
        if (strcmp(rows->name, name) == 0)
            return rows;
    return NULL;
}

static void test_the_list_has_built_in_ones_plugins_and_what_is_wrong_with_the_others(void **state)
{
    (void)state;
    setenv("TANDEM_PLUGIN_PATH", directory, 1);
    td_backend_listing *rows = NULL;
    must(td_backend_list(&rows));
    assert_non_null(find_row(rows, "cpu"));
    assert_null(find_row(rows, "cpu")->library);
    assert_non_null(find_row(rows, "emulated"));
    const td_backend_listing *mirror = find_row(rows, "mirror"), *text = find_row(rows, "text.so");
    assert_non_null(mirror);
    assert_null(mirror->problem);
    assert_non_null(strstr(mirror->library, "libmirror.so"));
    assert_non_null(text);
    assert_non_null(text->problem);
    td_backend_list_destroy(rows);
}

static void test_every_failed_allocation_of_the_list_is_an_error_without_a_leak(void **state)
{
    (void)state;
    setenv("TANDEM_PLUGIN_PATH", directory, 1);
    td_backend_forget_plugins();
    uint64_t before = td_memory_read().bytes_now;
    for (uint64_t n = 1;; n++) {
        td_backend_listing *rows = NULL;
        td_memory_fail_after(n);
        td_status *status = td_backend_list(&rows);
        bool failed = td_memory_failed();
        td_memory_fail_after(0);
        assert_true(failed || !status);
        td_status_destroy(status);
        td_backend_list_destroy(rows);
        td_backend_forget_plugins();
        assert_int_equal(td_memory_read().bytes_now, before);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_sample_builds_alone_and_is_found_by_name_and_by_path),
        cmocka_unit_test(test_a_library_without_the_entry_is_refused_by_the_symbols_name),
        cmocka_unit_test(test_a_library_that_lacks_a_function_of_another_is_refused_by_its_name),
        cmocka_unit_test(test_a_file_that_is_no_library_is_refused),
        cmocka_unit_test(test_another_abi_is_refused_with_both_numbers),
        cmocka_unit_test(test_an_empty_slot_is_refused_by_its_name),
        cmocka_unit_test(test_the_list_has_built_in_ones_plugins_and_what_is_wrong_with_the_others),
        cmocka_unit_test(test_every_failed_allocation_of_the_list_is_an_error_without_a_leak),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
