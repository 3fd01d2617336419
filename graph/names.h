/* A map from names to ids: open addressing, keys borrowed from the entries' owner (they must outlive their entry). */
#ifndef TANDEM_GRAPH_NAMES_H
#define TANDEM_GRAPH_NAMES_H

#include <stdint.h>

#include "tandem/status.h"

typedef struct td_name_entry {
    const char *key; /* NULL: empty */
    int32_t id;      /* -1: removed */
} td_name_entry;

typedef struct td_name_map {
    td_name_entry *entries;
    int64_t capacity, used; /* used counts removed entries too */
} td_name_map;

void td_name_map_deinit(td_name_map *map);
/* -1 when absent. */
int32_t td_name_map_get(const td_name_map *map, const char *key);
/* Adds, or replaces the id (and the key's address) of an entry. */
td_status *td_name_map_put(td_name_map *map, const char *key, int32_t id) TD_MUST_USE;
void td_name_map_remove(td_name_map *map, const char *key);

#endif
