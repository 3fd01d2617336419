/* Finding keys in the table, and near misses. Internal to cli/. */
#ifndef TANDEM_CLI_CONFIG_KEYS_H
#define TANDEM_CLI_CONFIG_KEYS_H

#include <stdbool.h>

/* True when keys begin with "name.". */
bool td_config_is_section(const char *name);
/* The key that was probably meant, or NULL. */
const char *td_config_key_nearest(const char *name);
/* True when b is near enough to be what a meant and nearer than *in_out_best, which becomes its distance. */
bool td_config_close(const char *a, const char *b, int *in_out_best);

#endif
