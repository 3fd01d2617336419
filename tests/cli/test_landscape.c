/* Weights that are kept on the way, and the loss around them: training keeps its bits, pictures go through the path, planes are what
 * their points say. */
#include "tests/cli/runs.h"

#include <math.h>

#include "cli/landscape.h"

#define SHORT "--set", "train.steps=9", "--set", "landscape.unit=step"
#define KEEP "--set", "landscape.intervals=[[0, 3, 6, 9], [9]]", "--set", "landscape.create_landscape.result=on"

static json_t *landscapes(const char *run, json_t **out_file)
{
    char path[200];
    snprintf(path, sizeof path, "%s/landscape/landscape.json", run);
    *out_file = json_load_file(path, 0, NULL);
    assert_non_null(*out_file);
    return json_object_get(*out_file, "landscapes");
}

static double at(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

static void test_keeping_weights_changes_no_bit(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "bare", SHORT);
    SUCCEED("train", "x.yaml", "--run", "kept", SHORT, KEEP);
    expect_same_parameters("bare/summary.json", "kept/summary.json");
    assert_int_equal(access("bare/landscape", F_OK), -1);
    static const char *const kept[] = {"kept/landscape/step-000000000.safetensors",
                                       "kept/landscape/step-000000003.safetensors",
                                       "kept/landscape/step-000000009.safetensors"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(access(kept[i], R_OK), 0);
}

static void test_a_picture_holds_the_path_and_its_losses(void **state)
{
    (void)state;
    json_t *file = NULL;
    SUCCEED("train", "x.yaml", "--run", "drawn", SHORT, KEEP);
    SUCCEED("landscape", "drawn", "--size", "5", "--samples", "100");
    assert_non_null(strstr(out, "landscape  40/80 points  50 %  ")); /* three of 25 points, five on paths */
    assert_non_null(strstr(out, "landscape  80/80 points  100 %  "));
    assert_non_null(strstr(out, " points/s  0:00 left\n"));
    json_t *list = landscapes("drawn", &file);
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(json_integer_value(json_object_get(file, "samples")), 100);
    const json_t *one = json_array_get(list, 0), *path = json_object_get(one, "path"), *x = json_object_get(one, "x");
    assert_int_equal(json_array_size(path), 4);
    assert_int_equal(json_array_size(x), 5);
    assert_int_equal(json_array_size(json_object_get(one, "loss")), 5);
    const json_t *last = json_array_get(path, 3); /* the middle of the plane */
    assert_true(json_number_value(json_object_get(last, "x")) == 0 &&
                json_number_value(json_object_get(last, "y")) == 0);
    double before = json_number_value(json_object_get(json_array_get(path, 0), "loss")),
           after = json_number_value(json_object_get(last, "loss"));
    assert_true(after < before); /* it has learnt something */
    for (size_t i = 0; i < 4; i++) {
        double place = json_number_value(json_object_get(json_array_get(path, i), "x"));
        assert_true(place >= at(x, 0) && place <= at(x, 4));
    }
    const json_t *explained = json_object_get(one, "explained");
    assert_true(at(explained, 0) >= at(explained, 1) && at(explained, 0) + at(explained, 1) <= 1 + 1e-9);
    const json_t *single = json_array_get(list, 1),
                 *result = json_array_get(list, 2); /* of one point: both by chance */
    assert_true(json_is_true(json_array_get(json_object_get(single, "random"), 1)));
    assert_string_equal(json_string_value(json_object_get(result, "kind")), "result");
    double middle =
        at(json_array_get(json_object_get(result, "loss"), 2), 2); /* of five points from -1 to 1: the weights */
    assert_true(fabs(middle - after) <= 1e-6 * fabs(after));
    SUCCEED("landscape", "drawn", "--size", "5", "--samples", "100"); /* again: the same bits */
    json_t *again = NULL;
    assert_true(json_equal(list, landscapes("drawn", &again)));
    json_decref(again);
    json_decref(file);
}

static void test_what_cannot_be_drawn_is_refused(void **state)
{
    (void)state;
    assert_int_equal(RUN("train", "x.yaml", "--run", "r1", SHORT, "--set", "landscape.intervals=[[3, 2]]"), 2);
    assert_non_null(strstr(errors, "does not come after"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "r2", SHORT, "--set", "landscape.intervals=[[10]]"), 2);
    assert_non_null(strstr(errors, "beyond the training's end, step 9"));
    assert_int_equal(RUN("train", "x.yaml", "--run", "r3", SHORT, "--set", "landscape.intervals=[[x]]"), 2);
    SUCCEED("train", "x.yaml", "--run", "none", SHORT);
    assert_int_equal(RUN("landscape", "none"), 2);
    assert_non_null(strstr(errors, "no weights were kept"));
    assert_int_equal(RUN("landscape", "none", "--set", "offload.embedding=ps"), 2); /* as a job's configuration says */
    assert_non_null(strstr(errors, "a job under mpirun keeps none"));
    assert_int_equal(RUN("landscape", "nowhere"), 2);
    assert_non_null(strstr(errors, "nowhere/run.json"));
    SUCCEED("train", "x.yaml", "--run", "lost", SHORT, KEEP);
    assert_int_equal(unlink("lost/landscape/step-000000006.safetensors"), 0);
    assert_true(RUN("landscape", "lost", "--size", "3") != 0);
    assert_non_null(strstr(errors, "step-000000006"));
    FILE *cut = fopen("lost/landscape/step-000000006.safetensors", "w");
    fputs("no tensors", cut);
    fclose(cut);
    assert_true(RUN("landscape", "lost", "--size", "3") != 0);
}

/* Every byte of the numbers, and of what is said of them. */
static void test_weights_with_a_changed_byte_are_refused(void **state)
{
    (void)state;
    static const char path[] = "flipped/landscape/step-000000003.safetensors";
    SUCCEED("train", "x.yaml", "--run", "flipped", SHORT, "--set", "landscape.intervals=[[3]]");
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long bytes = ftell(file);
    for (long at = 9; at < bytes; at += bytes / 13) {
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        const int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 1, file);
        fflush(file);
        assert_true(RUN("landscape", "flipped", "--size", "3", "--samples", "10") != 0);
        assert_non_null(strstr(errors, path));
        fseek(file, at, SEEK_SET);
        fputc(byte, file);
        fflush(file);
    }
    fclose(file);
    assert_non_null(strstr(errors, "not the weights that were kept: xxh64 "));
    SUCCEED("landscape", "flipped", "--size", "3", "--samples", "10");
    SUCCEED("landscape", "flipped", "--size", "3", "--samples", "10", "--json");
    assert_true(out[0] == '{');
}

static void test_eigenvectors_are_orthogonal_and_give_the_matrix_back(void **state)
{
    (void)state;
    enum { N = 7 };
    double matrix[N * N], lost[N * N], values[N], vectors[N * N];
    unsigned random = 12345;
    for (int i = 0; i < N; i++)
        for (int k = 0; k <= i; k++) {
            random = random * 1664525u + 1013904223u;
            matrix[i * N + k] = matrix[k * N + i] = (double)(random >> 8) / (1 << 24) - 0.5;
        }
    memcpy(lost, matrix, sizeof lost);
    td_symmetric_eigen(lost, N, values, vectors);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            double dot = 0, back = 0;
            for (int e = 0; e < N; e++) {
                dot += vectors[i * N + e] * vectors[k * N + e];
                back += values[e] * vectors[e * N + i] * vectors[e * N + k];
            }
            assert_true(fabs(dot - (i == k)) < 1e-12);
            assert_true(fabs(back - matrix[i * N + k]) < 1e-12);
        }
    for (int i = 1; i < N; i++)
        assert_true(values[i] <= values[i - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeping_weights_changes_no_bit),
        cmocka_unit_test(test_a_picture_holds_the_path_and_its_losses),
        cmocka_unit_test(test_what_cannot_be_drawn_is_refused),
        cmocka_unit_test(test_weights_with_a_changed_byte_are_refused),
        cmocka_unit_test(test_eigenvectors_are_orthogonal_and_give_the_matrix_back),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
