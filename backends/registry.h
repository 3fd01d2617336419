/* Which backends there are: the built-in ones of backends.def, and shared objects found by path or by name.
 *
 *     char *backend = NULL, *options = NULL;
 *     TD_TRY(td_backend_split("emulated:memory=256MiB", &backend, &options));
 *     const td_backend_api *api = NULL;
 *     TD_TRY(td_backend_find(backend, &api));
 *     TD_TRY(api->device_open(td_backend_host(), options, &device));
 *
 * A name with a '/' in it is the path of a shared object. Any other name that is not built in is looked for as
 * lib<name>.so, then <name>.so, in the directories of TANDEM_PLUGIN_PATH (separated by ':'). A library is loaded once and
 * stays. A table that comes back is complete: slots that an older backend does not have are NULL, and all required ones
 * are there. All calls are thread-safe. */
#ifndef TANDEM_BACKENDS_REGISTRY_H
#define TANDEM_BACKENDS_REGISTRY_H

#include "tandem/backend.h"
#include "tandem/status.h"

/* The table of a backend, valid until td_backend_forget_plugins. Errors: TD_NOT_FOUND (no such name, file or symbol; the
 * message names the library), TD_UNSUPPORTED (another ABI, or a table that lacks a required slot). */
td_status *td_backend_find(const char *name, const td_backend_api **out_api) TD_MUST_USE;

/* "name:options" in two owned strings (td_free); options "" without a colon. */
td_status *td_backend_split(const char *spec, char **out_name, char **out_options) TD_MUST_USE;

/* What backends get from the engine. */
const td_host_services *td_backend_host(void);
/* Where reference kernels come from: backends do not see the graph, so the runtime says it once, before any device is
 * opened. NULL: none. */
typedef td_status *(*td_reference_kernel)(const td_kernel_call *call);
void td_backend_set_reference(td_reference_kernel (*find)(const char *op));

/* For `tandem devices`: everything known so far, and every library in the directories of TANDEM_PLUGIN_PATH, tried. */
typedef struct td_backend_listing {
    char *name;
    char *summary;
    char *library; /* its path; NULL: built in */
    char *problem; /* why it cannot be used; NULL: it can */
} td_backend_listing;
/* Ends the listing with a row whose name is NULL; td_backend_list_destroy it. */
td_status *td_backend_list(td_backend_listing **out_rows) TD_MUST_USE;
void td_backend_list_destroy(td_backend_listing *rows);

/* Closes all loaded libraries and frees what the registry holds. No device of theirs may be open. */
void td_backend_forget_plugins(void);

/* Checks a table as a backend gave it, and copies it into one of this engine's size. `library` is for messages. */
td_status *td_backend_adopt(const char *library, const td_backend_api *given, td_backend_api *out_api) TD_MUST_USE;

#endif
