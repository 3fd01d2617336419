/* See cli/launcher.h. */
#include "cli/launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MOST_ANCESTORS = 64, MOST_BYTES = 65536 };

static size_t read_of(long pid, const char *what, char *text, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%ld/%s", pid, what);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, size - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    return n;
}

/* 0: there is none, or it cannot be seen. */
static long parent_of(long pid)
{
    char text[512];
    long parent = 0;
    (void)read_of(pid, "stat", text, sizeof text);
    const char *after_name = strrchr(text, ')'); /* a name may have blanks and brackets */
    return after_name && sscanf(after_name, ") %*c %ld", &parent) == 1 ? parent : 0;
}

static bool is_launcher(long pid)
{
    static const char *const names[] = {"mpirun\n",          "mpiexec\n", "orterun\n", "mpirun.openmpi\n",
                                        "mpiexec.openmpi\n", "prterun\n", "prun\n"};
    char name[64];
    (void)read_of(pid, "comm", name, sizeof name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Words end with a zero each. */
static bool asks_for_recovery(const char *words, size_t bytes)
{
    bool options = false;
    for (const char *word = words; word < words + bytes; word += strlen(word) + 1) {
        if (!strcmp(word, "--enable-recovery") || !strcmp(word, "-enable-recovery"))
            return true;
        if (options && strcasestr(word, "recov") && !strcasestr(word, "=f") && !strcasestr(word, "=0"))
            return true;
        options = !strcmp(word, "--runtime-options");
    }
    return false;
}

/* 0: it is not among this process's ancestors. */
static long find_launcher(void)
{
    long pid = (long)getppid();
    for (int i = 0; i < MOST_ANCESTORS && pid > 1; i++, pid = parent_of(pid))
        if (is_launcher(pid))
            return pid;
    return 0;
}

bool td_launcher_leaves_others(void)
{
    const char *told = getenv("OMPI_MCA_orte_enable_recovery");
    char words[MOST_BYTES];
    if (told)
        return !strcmp(told, "1") || !strcmp(told, "true");
    const long pid = find_launcher();
    return pid && asks_for_recovery(words, read_of(pid, "cmdline", words, sizeof words));
}

bool td_launcher_shows(int descriptor)
{
    char path[64];
    const long pid = find_launcher();
    (void)snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, descriptor);
    const int stream = pid ? open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC) : -1;
    const bool shows = stream >= 0 && isatty(stream);
    if (stream >= 0)
        close(stream);
    return shows;
}
