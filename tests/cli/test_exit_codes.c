/* The same kind of fault has the same exit code wherever it happens, and its message says what, where, and what helps: the table in
 * docs/configuration.md. */
#include "runs.h"

/* What a name stands for that is not what it should be. */
static void make_names(void)
{
    FILE *file = fopen("rows.csv", "w");
    fputs("city;bought\nBonn;yes\nLyon;no\n", file);
    fclose(file);
    file = fopen("header.csv", "w");
    fputs("city,bought\n", file);
    fclose(file);
    file = fopen("bad.yaml", "w");
    fputs("train: {epochs: many}\n", file);
    fclose(file);
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
}

typedef struct fault {
    const char *words[10];
    int code;
    const char *message; /* part of it */
} fault;

#define CSV "--set", "data={format: csv, label: bought, categorical: [city], train: "

static const fault faults[] = {
    /* a name that the command or the configuration gives */
    {{"plan", "y.yaml"}, 2, "y.yaml: cannot open: No such file or directory\n  did you mean"},
    {{"plan", "nowhere/x.yaml"}, 2, " has no \"nowhere\""},
    {{"plan", "folder"}, 2, "folder: cannot read: Is a directory\n  it is a folder: name a file"},
    {{"plan", "loop"}, 2, "loop: cannot open: Too many levels"},
    {{"plan", "x.yaml/y"}, 2, "cannot open: Not a directory\n"},
    {{"plan", "x.yaml", "--set", "graph=absent.tdg", "--set", "model=null"},
     2,
     "absent.tdg: cannot open: No such file"},
    {{"plan", "x.yaml", "--set", "graph=folder", "--set", "model=null"}, 2, "folder: cannot read: Is a directory"},
    {{"plan", "x.yaml", "--dot", "folder"}, 2, "--dot: folder: cannot create: Is a directory"},
    {{"plan", "x.yaml", "--dot", "none/x.dot"}, 2, "--dot: none/x.dot: cannot create: No such file"},
    {{"plan", "x.yaml", CSV "row.csv}"},
     2,
     "row.csv: cannot open: No such file or directory\n  did you mean \"rows.csv\"?"},
    {{"plan", "x.yaml", CSV "folder}"}, 2, "folder: cannot read: Is a directory"},
    {{"train", "x.yaml", "--run", "x.yaml"}, 2, "x.yaml: cannot make directory: Not a directory"},
    {{"train", "x.yaml", "--run", "absent", "--resume"}, 2, "absent: cannot open"},
    {{"train", "x.yaml", "--set", "model.weights.file=absent"}, 2, "absent: cannot open"},
    {{"train", "x.yaml", "--set", "model.weights.file=folder"}, 2, "folder: is not a regular file"},
    {{"eval", "x.yaml", "--checkpoint", "absent"}, 2, "absent: cannot open"},
    {{"eval", "x.yaml", "--checkpoint", "x.yaml"}, 2, "x.yaml: is a file, and a checkpoint is a folder"},
    {{"eval", "x.yaml", "--checkpoint", "folder"}, 2, "folder"},
    {{"profile", "absent"}, 2, "absent: cannot open"},
    {{"board", "absent"}, 2, "absent: cannot open"},
    {{"board", "x.yaml"}, 2, "x.yaml: cannot open: Not a directory"},
    /* a word of them */
    {{"plan", "bad.yaml"}, 2, "bad.yaml:1:9: train.epochs: \"many\" is not an integer"},
    {{"plan", "x.yaml", CSV "rows.csv}"}, 2, "data.delimiter: \";\" it has 2"},
    /* what is in files that they name */
    {{"plan", "x.yaml", CSV "/dev/null}"}, 1, "/dev/null: empty"},
    {{"plan", "x.yaml", CSV "header.csv}"}, 1, "header.csv: it has no rows after its header line"},
    {{"profile", "x.yaml"}, 1, "x.yaml"},
    {{"train", "x.yaml", "--set", "model.weights.file=x.yaml"}, 1, "x.yaml"},
    /* the machine */
    {{"plan", "x.yaml", "--dot", "/dev/full"}, 1, "--dot: /dev/full: cannot write: No space left on device"},
    {{"plan", "x.yaml", "--set", "devices.accel.memory=1KiB", "--set", "placement.rules=[]"}, 3, "does not fit"},
};

static void test_one_kind_of_fault_has_one_exit_code(void **state)
{
    (void)state;
    make_names();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char *words[12] = {"tandem"};
        for (int w = 0; faults[i].words[w]; w++)
            words[w + 1] = (char *)(uintptr_t)faults[i].words[w];
        int code = run_words(words);
        if (code != faults[i].code || !strstr(errors, faults[i].message))
            print_message("tandem %s %s ...: %d: %s\n", words[1], words[2], code, errors);
        assert_int_equal(code, faults[i].code);
        assert_non_null(strstr(errors, faults[i].message));
        assert_int_equal(strncmp(errors, "tandem: ", 8), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_kind_of_fault_has_one_exit_code, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
