/* Finding, loading and checking a shared object that holds a backend: see loader.h. */
#include "backends/loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/registry.h"
#include "base/memory.h"

/* ---- checking ---------------------------------------------------------------------------------------------------------- */

/* A table may be shorter than ours by the optional slots, never by these. */
#define REQUIRED_BYTES (offsetof(td_backend_api, kernel_run) + sizeof(((td_backend_api *)0)->kernel_run))

static const char *missing_slot(const td_backend_api *api)
{
#define CHECK_SLOT(slot)                                                                                               \
    if (!api->slot)                                                                                                    \
    return #slot
    CHECK_SLOT(name);
    CHECK_SLOT(device_open);
    CHECK_SLOT(device_close);
    CHECK_SLOT(device_properties);
    CHECK_SLOT(supports);
    CHECK_SLOT(allocate);
    CHECK_SLOT(release);
    CHECK_SLOT(queue_open);
    CHECK_SLOT(queue_close);
    CHECK_SLOT(copy_to_device);
    CHECK_SLOT(copy_to_host);
    CHECK_SLOT(event_create);
    CHECK_SLOT(event_destroy);
    CHECK_SLOT(event_record);
    CHECK_SLOT(event_wait);
    CHECK_SLOT(queue_wait);
    CHECK_SLOT(kernel_prepare);
    CHECK_SLOT(kernel_release);
    CHECK_SLOT(kernel_run);
#undef CHECK_SLOT
    return NULL;
}

td_status *td_backend_adopt(const char *library, const td_backend_api *given, td_backend_api *out_api)
{
    *out_api = (td_backend_api){0};
    if (!given)
        return TD_ERROR(TD_UNSUPPORTED, "%s: %s returned no table", library, TD_BACKEND_ENTRY_SYMBOL);
    if (given->abi_major != TD_BACKEND_ABI_MAJOR)
        return td_status_help(TD_ERROR(TD_UNSUPPORTED, "%s: made for backend ABI %d.%d, this engine speaks %d.%d",
                                       library, given->abi_major, given->abi_minor, TD_BACKEND_ABI_MAJOR,
                                       TD_BACKEND_ABI_MINOR),
                              "rebuild it against this engine's tandem/backend.h");
    if (given->struct_size < REQUIRED_BYTES)
        return TD_ERROR(TD_UNSUPPORTED, "%s: its table has %zu bytes, the required slots alone take %zu", library,
                        given->struct_size, REQUIRED_BYTES);
    memcpy(out_api, given, given->struct_size < sizeof *out_api ? given->struct_size : sizeof *out_api);
    const char *missing = missing_slot(out_api);
    if (missing)
        return TD_ERROR(TD_UNSUPPORTED, "%s: the required slot \"%s\" of its table is empty", library, missing);
    return NULL;
}

/* ---- loading ----------------------------------------------------------------------------------------------------------- */

/* The loader's message, which names the symbol that is missing, with the library in front unless it is there already. */
static td_status *loader_error(const char *path)
{
    const char *message = dlerror();
    if (!message)
        message = "cannot be loaded";
    size_t path_bytes = strlen(path);
    if (strncmp(message, path, path_bytes) == 0)
        return TD_ERROR(TD_NOT_FOUND, "%s", message);
    return TD_ERROR(TD_NOT_FOUND, "%s: %s", path, message);
}

td_status *td_plugin_load(const char *path, td_plugin **out_plugin)
{
    *out_plugin = NULL;
    td_plugin *plugin = NULL;
    td_status *status = NULL;
    td_backend_entry_fn entry = NULL;
    TD_TRY(TD_NEW(plugin, 1));
    plugin->path = td_strdup(path);
    if (!plugin->path) {
        status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %s", path);
        goto failed;
    }
    plugin->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin->handle) {
        status = loader_error(path);
        goto failed;
    }
    void *symbol = dlsym(plugin->handle, TD_BACKEND_ENTRY_SYMBOL);
    if (!symbol) {
        status = td_status_help(loader_error(path), "a backend exports: const td_backend_api *%s(void)",
                                TD_BACKEND_ENTRY_SYMBOL);
        goto failed;
    }
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function pointer */
    TD_TRY_OR(status, failed, td_backend_adopt(path, entry(), &plugin->api));
    *out_plugin = plugin;
    return NULL;
failed:
    td_plugin_unload(plugin);
    return status;
}

void td_plugin_unload(td_plugin *plugin)
{
    if (!plugin)
        return;
    if (plugin->handle)
        (void)dlclose(plugin->handle);
    td_free(plugin->path);
    td_free(plugin);
}

/* ---- TANDEM_PLUGIN_PATH ------------------------------------------------------------------------------------------------ */

/* The next directory of a ':' separated list, empty ones skipped; owned, NULL at the end or when there is no memory (then
 * *out_status says so). */
static char *next_directory(const char **list, td_status **out_status)
{
    *out_status = NULL;
    while (**list == ':')
        ++*list;
    size_t bytes = strcspn(*list, ":");
    if (bytes == 0)
        return NULL;
    char *directory = td_format("%.*s", (int)bytes, *list);
    if (!directory)
        *out_status = TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: TANDEM_PLUGIN_PATH");
    *list += bytes;
    return directory;
}

static td_status *search_directory(const char *directory, const char *name, char **out_path)
{
    for (int32_t form = 0; form < 2; form++) {
        char *path = form == 0 ? td_format("%s/lib%s.so", directory, name) : td_format("%s/%s.so", directory, name);
        if (!path)
            return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: TANDEM_PLUGIN_PATH");
        if (access(path, F_OK) == 0) {
            *out_path = path;
            return NULL;
        }
        td_free(path);
    }
    return NULL;
}

td_status *td_plugin_search(const char *name, char **out_path)
{
    *out_path = NULL;
    const char *list = getenv("TANDEM_PLUGIN_PATH");
    td_status *status = NULL;
    char *directory = NULL;
    while (list && !*out_path && !status && (directory = next_directory(&list, &status)) != NULL) {
        status = search_directory(directory, name, out_path);
        td_free(directory);
    }
    return status;
}

static int is_library(const struct dirent *entry)
{
    size_t bytes = strlen(entry->d_name);
    return bytes > 3 && strcmp(entry->d_name + bytes - 3, ".so") == 0;
}

static td_status *each_in(const char *directory, td_status *(*visit)(void *context, const char *path), void *context)
{
    struct dirent **entries = NULL;
    int count = scandir(directory, &entries, is_library, alphasort);
    td_status *status = NULL;
    for (int i = 0; i < count; i++) {
        char *path = status ? NULL : td_format("%s/%s", directory, entries[i]->d_name);
        if (!status)
            status = path ? visit(context, path) : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory: %s", directory);
        td_free(path);
        free(entries[i]); /* scandir's own */
    }
    free(entries);
    return status;
}

td_status *td_plugin_each(td_status *(*visit)(void *context, const char *path), void *context)
{
    const char *list = getenv("TANDEM_PLUGIN_PATH");
    td_status *status = NULL;
    char *directory = NULL;
    while (list && !status && (directory = next_directory(&list, &status)) != NULL) {
        status = each_in(directory, visit, context);
        td_free(directory);
    }
    return status;
}
