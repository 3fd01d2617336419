/* See absent.h. Linux' /proc; the launchers' own words are PMIx' and Open MPI's. */
#include "ps/absent.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "ps/comm.h"

enum { MOST_WORDS = 1 << 17, NAME = 32 };

typedef struct process {
    long pid; /* 0: there is none */
    bool has_come;
    char name[NAME];
} process;

static size_t read_file(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(text, 1, size - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    return n;
}

/* Of words that end with a zero each, as an environment has them; NULL: it is not among them. */
static const char *value_in(const char *words, size_t bytes, const char *name)
{
    const size_t length = strlen(name);
    for (const char *word = words; word < words + bytes; word += strlen(word) + 1)
        if (!strncmp(word, name, length) && word[length] == '=')
            return word + length + 1;
    return NULL;
}

static bool has_thread(long pid)
{
    char path[320], name[NAME];
    bool found = false;
    (void)snprintf(path, sizeof path, "/proc/%ld/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && !found && (entry = readdir(threads)) != NULL;) {
        (void)snprintf(path, sizeof path, "/proc/%ld/task/%s/comm", pid, entry->d_name);
        found = read_file(path, name, sizeof name) > 0 && !strncmp(name, TD_COMM_THREAD "\n", sizeof TD_COMM_THREAD);
    }
    if (threads)
        closedir(threads);
    return found;
}

/* A rank may have several processes, a shell and what it has started: the last one that is looked at, or the one that has come. */
static void look_at(long pid, const char *job, int32_t size, process *ranks, char *words)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    const size_t bytes = read_file(path, words, MOST_WORDS);
    const char *of = value_in(words, bytes, "PMIX_NAMESPACE"), *rank = value_in(words, bytes, "PMIX_RANK");
    const long r = of && rank && !strcmp(of, job) ? strtol(rank, NULL, 10) : -1;
    if (r < 0 || r >= size || ranks[r].has_come)
        return;
    ranks[r] = (process){.pid = pid, .has_come = has_thread(pid)};
    (void)snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    (void)read_file(path, ranks[r].name, NAME);
    ranks[r].name[strcspn(ranks[r].name, "\n")] = 0;
    td_text_plain(ranks[r].name);
}

static void look_at_all(const char *job, int32_t size, process *ranks)
{
    char *words = td_calloc(MOST_WORDS, 1);
    DIR *processes = words ? opendir("/proc") : NULL;
    for (struct dirent *entry; processes && (entry = readdir(processes)) != NULL;) {
        const long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0)
            look_at(pid, job, size, ranks, words);
    }
    if (processes)
        closedir(processes);
    td_free(words);
}

char *td_absent_ranks(void)
{
    const char *job = getenv("PMIX_NAMESPACE"), *number = getenv("OMPI_COMM_WORLD_SIZE");
    const long size = number ? strtol(number, NULL, 10) : 0;
    process ranks[TD_COMM_RANKS] = {{0}};
    td_string text = {0};
    char *said = NULL;
    if (!job || size < 1 || size > TD_COMM_RANKS)
        return NULL;
    look_at_all(job, (int32_t)size, ranks);
    long elsewhere = 0;
    for (long r = 0; r < size; r++) {
        elsewhere += !ranks[r].pid;
        if (ranks[r].pid && !ranks[r].has_come)
            td_string_format(&text, "%srank %ld (process %ld, %s) has not come", text.length ? ", " : "", r,
                             ranks[r].pid, ranks[r].name);
    }
    if (!text.length && elsewhere)
        td_string_format(&text, "all of this host have come; %ld of %ld ranks have no process here", elsewhere, size);
    if (!text.length)
        return NULL;
    td_status_destroy(td_string_finish(&text, &said));
    return said;
}
