/* The registry of backends: built-in ones, and the loaded libraries. See registry.h; loading is in loader.c. */
#include "backends/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backends/loader.h"
#include "base/memory.h"

#define TD_BACKEND(name) extern const td_backend_api td_backend_##name;
#include "backends/backends.def"
#undef TD_BACKEND

static const td_backend_api *const built_in[] = {
#define TD_BACKEND(name) &td_backend_##name,
#include "backends/backends.def"
#undef TD_BACKEND
};
enum { N_BUILT_IN = sizeof built_in / sizeof built_in[0] };

/* Loaded libraries; a new one goes first. Nodes never move, so the tables they hold may be handed out. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static td_plugin *plugins;

/* ---- host services ----------------------------------------------------------------------------------------------------- */

static _Atomic(td_reference_kernel (*)(const char *op)) find_reference;

static td_status *host_fail(int code, const char *file, int line, const char *message)
{
    if (code <= TD_OK || code > TD_NOT_FINITE)
        code = TD_INTERNAL;
    return td_status_create((td_code)code, file ? file : "?", line, "%s", message ? message : "unknown error");
}

static td_status *(*host_reference_kernel(const char *op))(const td_kernel_call *call)
{
    td_reference_kernel (*find)(const char *) = atomic_load(&find_reference);
    return find ? find(op) : NULL;
}

static const td_host_services host = {
    .struct_size = sizeof host,
    .abi_major = TD_BACKEND_ABI_MAJOR,
    .abi_minor = TD_BACKEND_ABI_MINOR,
    .fail = host_fail,
    .allocate = td_calloc_aligned,
    .release = td_free,
    .reference_kernel = host_reference_kernel,
};

const td_host_services *td_backend_host(void)
{
    return &host;
}

void td_backend_set_reference(td_reference_kernel (*find)(const char *op))
{
    atomic_store(&find_reference, find);
}

/* ---- finding ----------------------------------------------------------------------------------------------------------- */

td_status *td_backend_split(const char *spec, char **out_name, char **out_options)
{
    *out_name = *out_options = NULL;
    size_t name_bytes = strcspn(spec, ":");
    if (name_bytes == 0)
        return TD_ERROR(TD_INVALID_ARGUMENT,
                        "device \"%s\": expected a backend's name, then perhaps \":key=value,...\"", spec);
    char *name = td_format("%.*s", (int)name_bytes, spec);
    char *options = td_strdup(spec[name_bytes] ? spec + name_bytes + 1 : "");
    if (!name || !options) {
        td_free(name);
        td_free(options);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: device \"%s\"", spec);
    }
    *out_name = name;
    *out_options = options;
    return NULL;
}

static td_plugin *find_plugin(const char *path)
{
    td_plugin *plugin = plugins;
    while (plugin && strcmp(plugin->path, path) != 0)
        plugin = plugin->next;
    return plugin;
}

/* With the lock held. */
static td_status *load_once(const char *path, const td_backend_api **out_api)
{
    td_plugin *plugin = find_plugin(path);
    if (!plugin) {
        TD_TRY(td_plugin_load(path, &plugin));
        plugin->next = plugins;
        plugins = plugin;
    }
    *out_api = &plugin->api;
    return NULL;
}

static td_status *unknown_name(const char *name)
{
    const char *directories = getenv("TANDEM_PLUGIN_PATH");
    td_status *status = TD_ERROR(TD_NOT_FOUND, "no backend \"%s\"", name);
    char known[256] = "";
    for (int32_t i = 0; i < N_BUILT_IN; i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, built_in[i]->name, sizeof known - strlen(known) - 1);
    }
    td_status_help(status, "built in: %s", known);
    if (directories && *directories)
        return td_status_help(status, "no lib%s.so or %s.so in TANDEM_PLUGIN_PATH=%s", name, name, directories);
    return td_status_help(status, "try: the path of a shared object, or TANDEM_PLUGIN_PATH=its directory");
}

td_status *td_backend_find(const char *name, const td_backend_api **out_api)
{
    *out_api = NULL;
    for (int32_t i = 0; i < N_BUILT_IN; i++) {
        if (strcmp(built_in[i]->name, name) == 0) {
            *out_api = built_in[i];
            return NULL;
        }
    }
    char *path = NULL;
    if (strchr(name, '/'))
        path = td_strdup(name);
    else
        TD_TRY(td_plugin_search(name, &path));
    if (!path)
        return strchr(name, '/') ? TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %s", name) : unknown_name(name);
    pthread_mutex_lock(&lock);
    td_status *status = load_once(path, out_api);
    pthread_mutex_unlock(&lock);
    td_free(path);
    return status;
}

void td_backend_forget_plugins(void)
{
    pthread_mutex_lock(&lock);
    td_plugin *plugin = plugins;
    plugins = NULL;
    pthread_mutex_unlock(&lock);
    while (plugin) {
        td_plugin *next = plugin->next;
        td_plugin_unload(plugin);
        plugin = next;
    }
}

/* ---- listing ------------------------------------------------------------------------------------------------------------- */

static td_status *append_row(td_backend_listing **rows, int64_t *n_rows, int64_t *capacity, const td_backend_api *api,
                             const char *library, const char *problem)
{
    /* One more than asked for, so that the row that ends the list is there and empty at all times. */
    TD_TRY(td_grow(rows, capacity, *n_rows + 1, sizeof **rows));
    (*rows)[*n_rows] = (td_backend_listing){0};
    td_backend_listing row = {0};
    const char *name = api ? api->name : strrchr(library, '/') ? strrchr(library, '/') + 1 : library;
    row.name = td_strdup(name);
    row.summary = td_strdup(api && api->summary ? api->summary : "");
    row.library = library ? td_strdup(library) : NULL;
    row.problem = problem ? td_strdup(problem) : NULL;
    if (!row.name || !row.summary || (library && !row.library) || (problem && !row.problem)) {
        td_free(row.name);
        td_free(row.summary);
        td_free(row.library);
        td_free(row.problem);
        return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: a list of backends");
    }
    (*rows)[*n_rows] = row;
    (*rows)[++*n_rows] = (td_backend_listing){0};
    return NULL;
}

typedef struct listing_context {
    td_backend_listing *rows;
    int64_t n_rows, capacity;
} listing_context;

static td_status *list_library(void *context, const char *path)
{
    listing_context *listing = context;
    const td_backend_api *api = NULL;
    pthread_mutex_lock(&lock);
    td_status *problem = load_once(path, &api);
    pthread_mutex_unlock(&lock);
    td_status *status = append_row(&listing->rows, &listing->n_rows, &listing->capacity, api, path,
                                   problem ? td_status_message(problem) : NULL);
    td_status_destroy(problem);
    return status;
}

static bool is_listed(const listing_context *listing, const char *path)
{
    for (int64_t i = 0; i < listing->n_rows; i++)
        if (listing->rows[i].library && strcmp(listing->rows[i].library, path) == 0)
            return true;
    return false;
}

td_status *td_backend_list(td_backend_listing **out_rows)
{
    *out_rows = NULL;
    listing_context listing = {0};
    td_status *status = NULL;
    for (int32_t i = 0; i < N_BUILT_IN; i++)
        TD_TRY_OR(status, failed,
                  append_row(&listing.rows, &listing.n_rows, &listing.capacity, built_in[i], NULL, NULL));
    TD_TRY_OR(status, failed, td_plugin_each(list_library, &listing));
    pthread_mutex_lock(&lock);
    for (const td_plugin *plugin = plugins; plugin && !status; plugin = plugin->next)
        if (!is_listed(&listing, plugin->path))
            status = append_row(&listing.rows, &listing.n_rows, &listing.capacity, &plugin->api, plugin->path, NULL);
    pthread_mutex_unlock(&lock);
    if (status)
        goto failed;
    *out_rows = listing.rows;
    return NULL;
failed:
    td_backend_list_destroy(listing.rows);
    return status;
}

void td_backend_list_destroy(td_backend_listing *rows)
{
    for (td_backend_listing *row = rows; row && row->name; row++) {
        td_free(row->name);
        td_free(row->summary);
        td_free(row->library);
        td_free(row->problem);
    }
    td_free(rows);
}
