/* Shared objects that hold a backend: finding, loading and checking one. The registry keeps them. */
#ifndef TANDEM_BACKENDS_LOADER_H
#define TANDEM_BACKENDS_LOADER_H

#include "tandem/backend.h"
#include "tandem/status.h"

typedef struct td_plugin {
    struct td_plugin *next;
    char *path;
    void *handle;
    td_backend_api api; /* as td_backend_adopt made it */
} td_plugin;

/* Loads with all symbols bound at once and none made global. Errors name the library, and the symbol that is missing. */
td_status *td_plugin_load(const char *path, td_plugin **out_plugin) TD_MUST_USE;
void td_plugin_unload(td_plugin *plugin);
/* The path of lib<name>.so or <name>.so in a directory of TANDEM_PLUGIN_PATH, owned; NULL when there is none. */
td_status *td_plugin_search(const char *name, char **out_path) TD_MUST_USE;
/* Calls visit for the path of each *.so in the directories of TANDEM_PLUGIN_PATH, in their order, then by name. */
td_status *td_plugin_each(td_status *(*visit)(void *context, const char *path), void *context) TD_MUST_USE;

#endif
