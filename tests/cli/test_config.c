/* The configuration: values and their units, defaults, --set, and how mistakes are named. */
#include "tests/cli/config_helpers.h"

#include "base/memory.h"
#include "cli/config_keys.h"

static const char *const whole =
    "model: {name: dlrm, dim: 16, bottom: [512, 256], top: 64}\n"
    "devices: [cpu, {name: accel, backend: emulated, memory: 256MiB, cores: 1, link: 12GB/s}]\n"
    "placement:\n"
    "  default: accel\n"
    "  rules: [{match: \"table.*\", target: cpu}]\n"
    "train: {epochs: 5, pipeline: off}\n"
    "optimizer:\n"
    "  - {match: \"table.*\", name: lazy_adam, lr: 1e-3}\n"
    "  - {match: \"*\", name: adamw, lr: 2.5e-4, betas: [0.9, 0.99], schedule: {kind: cosine, warmup_steps: 1_000}}\n"
    "log: {level: null}\n";

static void test_values_come_with_their_types(void **state)
{
    (void)state;
    td_config *config = good_config(whole, NULL);
    td_section root = td_config_root(config);
    assert_int_equal(td_section_int(root, "train.epochs"), 5);
    assert_false(td_section_bool(root, "train.pipeline"));
    assert_int_equal(td_section_count(root, "model.bottom"), 2);
    assert_int_equal(td_section_int_at(root, "model.bottom", 1), 256);
    assert_int_equal(td_section_count(root, "model.top"), 1);
    assert_int_equal(td_section_int_at(root, "model.top", 0), 64);
    assert_string_equal(td_section_string(root, "log.level"), "null");
    td_section accel = td_section_item(root, "devices", 1);
    assert_int_equal(td_section_size(accel, "memory"), 256 << 20);
    assert_true(td_section_rate(accel, "link") == 12e9);
    td_section group = td_section_item(root, "optimizer", 1);
    assert_true(td_section_float(group, "lr") == 2.5e-4);
    assert_true(td_section_float_at(group, "betas", 1) == 0.99);
    assert_string_equal(td_section_string(group, "schedule.kind"), "cosine");
    assert_int_equal(td_section_int(group, "schedule.warmup_steps"), 1000);
    td_config_destroy(config);
}

static void test_defaults_are_filled_in_and_told_apart(void **state)
{
    (void)state;
    td_config *config = good_config(whole, NULL);
    td_section root = td_config_root(config);
    assert_int_equal(td_section_int(root, "train.seed"), 1);
    assert_true(td_section_has(root, "train.seed"));
    assert_false(td_section_given(root, "train.seed"));
    assert_true(td_section_given(root, "train.epochs"));
    assert_false(td_section_has(root, "train.steps"));
    td_config_destroy(config);

    config = good_config("optimizer: [{name: sgd, lr: 1}]\n", NULL);
    root = td_config_root(config);
    assert_string_equal(td_section_string(td_section_item(root, "optimizer", 0), "match"), "*");
    assert_int_equal(td_section_count(root, "devices"), 1);
    assert_string_equal(td_section_string(td_section_item(root, "devices", 0), "name"), "cpu");
    assert_false(td_section_has(root, "model.dim")); /* applies to models only */
    td_config_destroy(config);
}

static void test_a_bare_word_in_devices_is_a_name(void **state)
{
    (void)state;
    td_config *config = good_config("devices: [cpu, accel]\n", "devices.accel.memory=1GiB");
    td_section root = td_config_root(config);
    assert_int_equal(td_section_count(root, "devices"), 2);
    assert_int_equal(td_section_size(td_section_item(root, "devices", 1), "memory"), 1 << 30);
    td_config_destroy(config);
}

static void test_set_goes_on_top(void **state)
{
    (void)state;
    td_config *config = good_config(whole, "placement.rules=[]");
    assert_int_equal(td_section_count(td_config_root(config), "placement.rules"), 0);
    td_config_destroy(config);
    config = good_config(whole, "optimizer[1].schedule.kind=linear");
    assert_string_equal(td_section_string(td_section_item(td_config_root(config), "optimizer", 1), "schedule.kind"),
                        "linear");
    td_config_destroy(config);
    config = good_config(whole, "optimizer.*.lr=1"); /* by its match */
    td_config_destroy(config);
}

static void test_set_makes_sections_that_are_not_there(void **state)
{
    (void)state;
    td_config *config = good_config("", "train.steps=7");
    char place[64];
    assert_int_equal(td_section_int(td_config_root(config), "train.steps"), 7);
    assert_string_equal(td_section_place(td_config_root(config), "train.steps", place, sizeof place),
                        "--set train.steps");
    td_config_destroy(config);
}

static void test_windows_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    expect_refusal(whole, "train.accumulate=0",
                   "--set train.accumulate: 0 is below the least allowed, 1 (micro-batches)");
    expect_refusal(whole, "train.mini_steps=two",
                   "--set train.mini_steps: train.accumulate: \"two\" is not an integer");
    expect_refusal(whole, "train.replicas=-1", "--set train.replicas: -1 is below the least allowed, 1");
    expect_refusal(whole, "train.reduction=max", "--set train.reduction: \"max\" is not one of mean|sum");
    expect_refusal(
        whole, "train.accumulate_from=[{step: 1, accumulate: 2}]",
        "--set train.accumulate_from: train.accumulate_from[].step: 1 is below the least allowed, 2 (updates)");
    expect_refusal(whole, "train.accumulate_from=[{step: 9}]",
                   "--set train.accumulate_from: train.accumulate_from[].accumulate is missing: as train.accumulate "
                   "(also mini_steps)");
    expect_refusal("train: {mini_steps: 2, accumulate: 4}\n", NULL,
                   "x.yaml:1:9: mini_steps and accumulate are the same setting; remove one");
}

static void test_set_errors_name_the_flag(void **state)
{
    (void)state;
    expect_refusal(whole, "train.epochs=many", "--set train.epochs: \"many\" is not an integer");
    expect_refusal(whole, "train.epocs=3",
                   "--set train.epocs: unknown key; did you mean \"train.epochs\"? (tandem config --explain train)");
    expect_refusal(whole, "train.epochs=[1]", "--set train.epochs must be an integer, not a list");
    expect_refusal(whole, "devices[1].memory=x",
                   "--set devices[1].memory: \"x\" is not a size; write it like 256MiB, 1.5GiB or 4096");
    expect_refusal(whole, "train={epochs: x}", "--set train: train.epochs: \"x\" is not an integer");
    expect_refusal(whole, "devices[7].memory=1",
                   "--set devices[7].memory: the list has no item \"7\" (it has 2, counted from 0: cpu, accel)");
    expect_refusal(whole, "train.epochs", "--set train.epochs: write it as key=value (train.epochs=2)");
    expect_refusal(whole, "train..epochs=1",
                   "--set train..epochs: not a key; keys look like train.epochs or devices[1].memory");
    expect_refusal(whole, "train.epochs=[1",
                   "--set train.epochs: not YAML: did not find expected ',' or ']', while parsing a "
                   "flow sequence");
}

static void test_unknown_keys_name_the_nearest(void **state)
{
    (void)state;
    expect_refusal("train:\n  epochs: 1\n  log_evry: 10\n", NULL,
                   "x.yaml:3:3: unknown key \"train.log_evry\"; did you mean \"train.log_every\"? "
                   "(tandem config --explain train)");
    expect_refusal("devices:\n- cpu\n- {name: a, memry: 1}\n", NULL,
                   "x.yaml:3:13: unknown key \"devices[].memry\"; did you mean \"devices[].memory\"? "
                   "(tandem config --explain devices)");
    expect_refusal("tran: {epochs: 1}\n", NULL,
                   "x.yaml:1:1: unknown key \"tran\"; did you mean \"train\"? (tandem config --explain)");
    static const char *const meant[][2] = {
        {"data.cross", "data.crosses"},        {"data.separator", "data.delimiter"},
        {"data.delimeter", "data.delimiter"},  {"rules", "placement.rules"},
        {"placement.rule", "placement.rules"}, {"placement.rules[].device", "placement.rules[].target"},
        {"trian.epochs", "train.epochs"},      {"data.epochs", "train.epochs"},
        {"train.lr", "optimizer[].lr"}};
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        assert_string_equal(td_config_key_nearest(meant[i][0]), meant[i][1]);
    assert_null(td_config_key_nearest("data.zzz"));
}

static void test_wrong_values_name_the_rule(void **state)
{
    (void)state;
    expect_refusal("train: {epochs: 1.5}\n", NULL, "x.yaml:1:9: train.epochs: \"1.5\" is not an integer");
    expect_refusal("train: {epochs: 0}\n", NULL,
                   "x.yaml:1:9: train.epochs: 0 is below the least allowed, 1 (passes over the data)");
    expect_refusal("model: {name: dlrm, dim: 0}\n", NULL, "x.yaml:1:21: model.dim: 0 is below the least allowed, 1");
    expect_refusal("devices: [{name: a, latency: 1h}]\n", NULL,
                   "x.yaml:1:21: devices[].latency: 1h is above the most allowed, 1 (seconds)");
    expect_refusal("train: {epochs: 99999999999999999999}\n", NULL,
                   "x.yaml:1:9: train.epochs: 99999999999999999999 is more than 64 bits hold");
    expect_refusal("offload: {optimizer: gpu}\n", NULL,
                   "x.yaml:1:11: offload.optimizer: \"gpu\" is not one of none|cpu|auto, nor {ratio: 0.6}");
    expect_refusal(
        "data: {format: csv, label: a, train: a, crosses: [a, b]}\n", NULL,
        "x.yaml:1:51: data.crosses: \"a\" is not a list of lists of texts\n  data.crosses: pairs of categorical "
        "columns that get an id together: [[education, occupation]]");
    expect_refusal("train: {epochs: [1]}\n", NULL, "x.yaml:1:9: train.epochs must be an integer, not a list");
    expect_refusal("train: 3\n", NULL, "x.yaml:1:1: train is a section: its keys go below it, indented");
    expect_refusal("cpu: {gemm: fast}\n", NULL, "x.yaml:1:7: cpu.gemm: \"fast\" is not one of tiles|library|reference");
    expect_refusal("cpu: {gemm: [tiles]}\n", NULL,
                   "x.yaml:1:7: cpu.gemm must be one of tiles|library|reference, not a list");
    expect_refusal("tables: {hash: [{admit_probability: 0}]}\n", NULL,
                   "x.yaml:1:18: tables.hash[].admit_probability: 0 is below the least allowed, 1e-09");
    expect_refusal("devices: [{name: a, memory: 12 parsecs}]\n", NULL,
                   "x.yaml:1:21: devices[].memory: \"12 parsecs\" is not a size; write it like 256MiB, 1.5GiB or 4096");
    expect_refusal("model: {name: dlrm, bottom: [4, x]}\n", NULL,
                   "x.yaml:1:33: model.bottom: \"x\" is not a list of integers");
    expect_refusal("placement: {rules: [{match: a}]}\n", NULL,
                   "x.yaml:1:21: placement.rules[].target is missing: a device's name, CPU or DEVICE");
}

static void test_keys_that_do_not_apply_are_refused(void **state)
{
    (void)state;
    expect_refusal("model: {name: wide_deep, bottom: [4]}\n", NULL,
                   "x.yaml:1:26: model.bottom does not apply to model.name wide_deep; it is for dlrm");
    expect_refusal("model: {bottom: [4]}\n", NULL, "x.yaml:1:9: model.bottom needs model.name (dlrm)");
}

static void test_malformed_files_are_refused_with_their_place(void **state)
{
    (void)state;
    expect_refusal("train: {epochs: 1}\ntrain: {seed: 2}\n", NULL,
                   "x.yaml:2:1: \"train\" is given twice (first in line 1); remove one");
    expect_refusal("- a\n", NULL, "x.yaml:1:1: a configuration is a map of sections (model:, data:, train:, ...)");
    expect_refusal("train: {seed: 1}\n---\ntrain: {seed: 2}\n", NULL,
                   "x.yaml:3:1: a second document; a configuration is one");
    expect_refusal("? [a]\n: 1\n", NULL, "x.yaml:1:3: a key must be a word, not a list or a map");
    expect_refusal("&a [*a]\n", NULL, "x.yaml:1:1: nested more than 32 deep (an alias inside its own anchor?)");
}

static void test_expanding_aliases_cannot_exhaust_memory(void **state)
{
    (void)state;
    expect_refusal("a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
                   "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
                   "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
                   NULL, "x.yaml:1:26: more than 100000 values, aliases written out");
}

static void test_a_ratio_of_the_optimizer_is_a_key_of_its_own(void **state)
{
    (void)state;
    td_config *config = good_config("offload: {optimizer: {ratio: 0.6}}\n", NULL);
    assert_string_equal(td_section_string(td_config_root(config), "offload.optimizer"), "cpu");
    assert_true(td_section_float(td_config_root(config), "offload.ratio") == 0.6);
    td_config_destroy(config);
    expect_refusal("offload: {optimizer: {share: 0.6}}\n", NULL,
                   "x.yaml:1:11: offload.optimizer is none, cpu, auto or {ratio: 0.6}");
    expect_refusal("offload: {optimizer: {ratio: 0.6}, ratio: 0.5}\n", NULL,
                   "x.yaml:1:23: offload.ratio is given twice; remove one");
}

static void test_words_of_mindspore_have_a_home(void **state)
{
    (void)state;
    td_config *config = good_config("optimizer:\n"
                                    "- {match: \"*.bias\", name: adamw, lr: 1e-3, decay_flags: false}\n"
                                    "- {match: \"head*\", optim_filter: false}\n"
                                    "- {name: adamw, is_group_lr: 0.25, decay_flags: true}\n"
                                    "placement: {rules: [{match: a, primitive_target: cpu}]}\n",
                                    NULL);
    td_section root = td_config_root(config);
    td_section bias = td_section_item(root, "optimizer", 0), head = td_section_item(root, "optimizer", 1);
    td_section rest = td_section_item(root, "optimizer", 2);
    assert_true(td_section_given(bias, "weight_decay"));
    assert_true(td_section_float(bias, "weight_decay") == 0);
    assert_true(td_section_bool(head, "frozen"));
    assert_true(td_section_float(rest, "lr") == 0.25);
    assert_false(td_section_has(rest, "weight_decay"));
    assert_string_equal(td_section_string(td_section_item(root, "placement.rules", 0), "target"), "cpu");
    td_config_destroy(config);
    expect_refusal("optimizer: [{lr: 1, is_group_lr: 2}]\n", NULL,
                   "x.yaml:1:21: is_group_lr and lr are the same setting; remove one");
}

static void test_null_means_not_given(void **state)
{
    (void)state;
    td_config *config = good_config("train: {steps: null, epochs: ~}\n", NULL);
    assert_false(td_section_has(td_config_root(config), "train.steps"));
    assert_int_equal(td_section_int(td_config_root(config), "train.epochs"), 1);
    td_config_destroy(config);
}

/* The printed configuration loads to the same values again. */
static void test_printing_round_trips(void **state)
{
    (void)state;
    char first[8192] = "", second[8192] = "";
    td_config *config = good_config(whole, "data={format: criteo, train: \"a \\\"b\\\" c: #d\"}");
    FILE *stream = fmemopen(first, sizeof first, "w");
    td_config_print(config, stream);
    fclose(stream);
    td_config_destroy(config);
    config = good_config(first, NULL);
    assert_string_equal(td_section_string(td_config_root(config), "data.train"), "a \"b\" c: #d");
    assert_int_equal(td_section_size(td_section_item(td_config_root(config), "devices", 1), "memory"), 256 << 20);
    stream = fmemopen(second, sizeof second, "w");
    td_config_print(config, stream);
    fclose(stream);
    td_config_destroy(config);
    char *comment; /* origins differ: "default" became lines */
    for (char *text = first; (comment = strstr(text, "  # ")); memset(comment, ' ', strcspn(comment, "\n")))
        text = comment;
    for (char *text = second; (comment = strstr(text, "  # ")); memset(comment, ' ', strcspn(comment, "\n")))
        text = comment;
    const char *a = first, *b = second;
    while (*a || *b) {
        a += strspn(a, " \n");
        b += strspn(b, " \n");
        assert_int_equal(*a, *b);
        a += *a != 0;
        b += *b != 0;
    }
}

static void test_every_row_of_the_table_is_sound(void **state)
{
    (void)state;
    for (int32_t i = 0; i < td_config_key_count(); i++) {
        const td_config_key *key = td_config_key_at(i);
        assert_ptr_equal(td_config_key_find(key->name), key); /* no name twice */
        assert_non_null(key->help);
        assert_int_equal(key->type == TD_CONFIG_ENUM, key->allowed != NULL);
        assert_true(key->least <= key->most);
        char section[64];
        snprintf(section, sizeof section, "%.*s", (int)strcspn(key->name, ".["), key->name);
        assert_string_equal(td_config_key_nearest(section), section); /* nearest knows all sections */
        const char *equals = key->when ? strchr(key->when, '=') : NULL;
        assert_true(!key->when || equals);
        if (key->when) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)(equals - key->when), key->when);
            assert_non_null(td_config_key_find(name));
        }
        const char *items = strstr(key->name, "[]");
        if (items) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)(items - key->name), key->name);
            assert_int_equal(td_config_key_find(name)->type, TD_CONFIG_MAPS);
        }
        if (key->fallback && !key->when && !items) {
            char set[256];
            snprintf(set, sizeof set, "%s=%s", key->name, key->fallback); /* a default passes its own check */
            td_config_destroy(good_config("", set));
        }
    }
}

/* Every allocation fails once; each failure is an error, and nothing leaks (the sanitizers look). */
static void test_running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        td_memory_fail_after(n);
        td_config *config = NULL;
        td_status *status = resolve_text(whole, "devices.accel.memory=1GiB", &config);
        bool failed = td_memory_failed();
        td_memory_fail_after(0);
        td_config_destroy(config);
        if (!failed) {
            assert_null(status);
            break;
        }
        assert_non_null(status);
        assert_int_equal(td_status_code(status), TD_OUT_OF_MEMORY);
        td_status_destroy(status);
    }
}

static void test_any_bytes_are_a_value_or_an_error(void **state)
{
    (void)state;
    size_t bytes = strlen(whole);
    char *copy = td_strdup(whole);
    uint32_t seed = 1;
    for (int i = 0; i < 3000; i++) {
        memcpy(copy, whole, bytes);
        for (int j = 0; j < 3; j++) {
            seed = seed * 1664525 + 1013904223;
            copy[(seed >> 8) % bytes] = (char)(seed >> 24);
        }
        td_config *config = NULL;
        td_status *status = td_config_parse(copy, bytes, "x.yaml", &config);
        if (!status)
            status = td_config_resolve(config);
        if (status)
            assert_string_not_equal(td_status_message(status), "");
        td_status_destroy(status);
        td_config_destroy(config);
    }
    td_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_come_with_their_types),
        cmocka_unit_test(test_defaults_are_filled_in_and_told_apart),
        cmocka_unit_test(test_a_bare_word_in_devices_is_a_name),
        cmocka_unit_test(test_set_goes_on_top),
        cmocka_unit_test(test_set_makes_sections_that_are_not_there),
        cmocka_unit_test(test_windows_that_make_no_sense_are_refused),
        cmocka_unit_test(test_set_errors_name_the_flag),
        cmocka_unit_test(test_unknown_keys_name_the_nearest),
        cmocka_unit_test(test_wrong_values_name_the_rule),
        cmocka_unit_test(test_keys_that_do_not_apply_are_refused),
        cmocka_unit_test(test_malformed_files_are_refused_with_their_place),
        cmocka_unit_test(test_expanding_aliases_cannot_exhaust_memory),
        cmocka_unit_test(test_a_ratio_of_the_optimizer_is_a_key_of_its_own),
        cmocka_unit_test(test_words_of_mindspore_have_a_home),
        cmocka_unit_test(test_null_means_not_given),
        cmocka_unit_test(test_printing_round_trips),
        cmocka_unit_test(test_every_row_of_the_table_is_sound),
        cmocka_unit_test(test_running_out_of_memory_is_an_error),
        cmocka_unit_test(test_any_bytes_are_a_value_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
