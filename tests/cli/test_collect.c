/* What tandem train records for charts: it changes no bit of the result. (Files that cannot be written:
 * test_faults.c.) */
#include "tests/cli/runs.h"

#include "board/board.h"

#define SHORT "--set", "train.steps=8"
#define ALL                                                                                                            \
    "--set", "summary.every=2", "--set", "summary.parameters=[\"*\"]", "--set", "summary.gradients=[\"*\"]", "--set",  \
        "summary.activations=[\"*\"]", "--set", "summary.tensors=[\"*\"]"

static void test_no_bit_depends_on_what_is_recorded(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "none", SHORT, "--set", "summary.scalars=0", "--set", "summary.every=0");
    SUCCEED("train", "x.yaml", "--run", "all", SHORT, ALL);
    SUCCEED("train", "x.yaml", "--run", "clipped", SHORT, "--set", "train.clip_norm=1");
    SUCCEED("train", "x.yaml", "--run", "clipped_all", SHORT, ALL, "--set", "train.clip_norm=1");
    expect_same_parameters("none/summary.json", "all/summary.json");
    expect_same_parameters("clipped/summary.json", "clipped_all/summary.json");
    assert_int_equal(system("test -z \"$(ls none | grep events)\" && test -n \"$(ls all | grep events)\""), 0);
}

static void test_watching_finds_its_value_among_other_outputs(void **state)
{
    (void)state;
    SUCCEED("train", "x.yaml", "--run", "watched", SHORT, ALL, "--watch", "loss", "--set", "train.log_every=4");
    char *first = strstr(out, "loss: mean ");
    assert_non_null(first);
    assert_true(strtod(first + 11, NULL) > 0.3 && strtod(first + 11, NULL) < 1.5);
    assert_non_null(strstr(out, "deviation 0;")); /* one number */
}

/* Rows of characters, as they stand in the file; what is no character of UTF-8 is "?". */
static void test_texts_of_a_batch_are_recorded(void **state)
{
    (void)state;
    td_board *board = NULL;
    FILE *file = fopen("letters.txt", "w");
    for (int i = 0; i < 400; i++)
        fputs(i % 7 ? "abc\u00e9 " : "\xff", file);
    fclose(file);
    file = fopen("letters.yaml", "w");
    fputs("model: {name: gpt, layers: 1, heads: 1, width: 8}\n"
          "data: {format: text, train: letters.txt, context: 8, batch: 4}\n"
          "train: {steps: 4}\nsummary: {every: 2, texts: 2}\n",
          file);
    fclose(file);
    SUCCEED("train", "letters.yaml", "--run", "letters");
    td_status *status = td_board_open(".", &board);
    assert_null(status);
    static const td_board_parameter parameters[] = {{"run", "letters"}, {"tag", "batch/ids/1"}};
    td_board_response response = td_board_answer(board, &(td_board_request){"/api/v1/texts", parameters, 2});
    assert_int_equal(response.status, 200);
    json_t *json = json_loadb(response.body, response.bytes, 0, NULL), *texts = json_object_get(json, "texts");
    assert_int_equal(json_array_size(texts), 2); /* of steps 2 and 4 */
    for (size_t i = 0; i < 2; i++) {
        const char *text = json_string_value(json_object_get(json_array_get(texts, i), "text"));
        assert_true(!strncmp(text, "```\n", 4));
        assert_int_equal(strspn(text + 4, "abc? \xc3\xa9") + 4, strlen(text) - 5); /* to the closing fence */
    }
    json_decref(json);
    td_board_response_deinit(&response);
    td_board_close(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_bit_depends_on_what_is_recorded),
        cmocka_unit_test(test_texts_of_a_batch_are_recorded),
        cmocka_unit_test(test_watching_finds_its_value_among_other_outputs),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
