/* Whether mpirun was told to leave the others alone: by what it says in the environment, or by its own command line. Here a shell plays
 * mpirun, by its name. */
#include "cli/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/base/check.h"

static char self[4096];

/* What a process says that a launcher of this name, with these words, has started through another shell. */
static bool under(const char *launcher, const char *word, const char *next)
{
    char folder[] = "/tmp/tandem_launcher_XXXXXX", path[sizeof folder + 64];
    char command[] = "sh -c '\"$0\" say; exit $?' \"$0\"; exit $?";
    char *words[] = {path, "-c", command, self, (char *)(uintptr_t)word, (char *)(uintptr_t)next, NULL};
    int ended = -1;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/%s", folder, launcher);
    assert_int_equal(symlink("/bin/bash", path), 0);
    const pid_t child = fork();
    if (!child) {
        execv(path, words);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(unlink(path) + rmdir(folder), 0);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) <= 1);
    return WEXITSTATUS(ended) == 1;
}

static void test_the_environment_tells(void **state)
{
    (void)state;
    setenv("OMPI_MCA_orte_enable_recovery", "1", 1);
    assert_true(td_launcher_leaves_others());
    setenv("OMPI_MCA_orte_enable_recovery", "0", 1);
    assert_false(td_launcher_leaves_others());
    unsetenv("OMPI_MCA_orte_enable_recovery");
}

static void test_the_launchers_words_tell(void **state)
{
    (void)state;
    unsetenv("OMPI_MCA_orte_enable_recovery");
    assert_true(under("prterun", "--enable-recovery", "tandem"));
    assert_true(under("mpiexec.openmpi", "--enable-recovery", "tandem")); /* as long as a name is told */
    assert_true(under("mpirun", "--runtime-options", "error-nonzero-status,RECOVERABLE"));
    assert_false(under("prterun", "-n", "2"));
    assert_false(under("mpirun", "--runtime-options", "recoverable=false"));
    assert_false(under("mpirun", "tandem", "recover"));
    assert_false(under("make", "--enable-recovery", "tandem"));
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "say"))
        return td_launcher_leaves_others();
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_environment_tells),
        cmocka_unit_test(test_the_launchers_words_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
