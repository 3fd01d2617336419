/* The name map: see names.h. FNV-1a, linear probing, at most 70 % full. */
#include "graph/names.h"

#include <string.h>

#include "base/memory.h"

static uint64_t hash_of(const char *key)
{
    uint64_t hash = 14695981039346656037u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 1099511628211u;
    return hash;
}

/* The entry of this key, or the empty one where it would go. */
static td_name_entry *probe(const td_name_map *map, const char *key)
{
    uint64_t mask = (uint64_t)map->capacity - 1;
    for (uint64_t i = hash_of(key) & mask;; i = (i + 1) & mask) {
        td_name_entry *entry = &map->entries[i];
        if (!entry->key || strcmp(entry->key, key) == 0)
            return entry;
    }
}

static td_status *enlarge(td_name_map *map)
{
    td_name_map larger = {.capacity = map->capacity ? map->capacity * 2 : 64};
    TD_TRY(TD_NEW(larger.entries, larger.capacity));
    for (int64_t i = 0; i < map->capacity; i++) {
        const td_name_entry *entry = &map->entries[i];
        if (entry->key && entry->id >= 0) {
            *probe(&larger, entry->key) = *entry;
            larger.used++;
        }
    }
    td_free(map->entries);
    *map = larger;
    return NULL;
}

void td_name_map_deinit(td_name_map *map)
{
    td_free(map->entries);
    *map = (td_name_map){0};
}

int32_t td_name_map_get(const td_name_map *map, const char *key)
{
    if (!map->capacity)
        return -1;
    const td_name_entry *entry = probe(map, key);
    return entry->key ? entry->id : -1;
}

td_status *td_name_map_put(td_name_map *map, const char *key, int32_t id)
{
    if ((map->used + 1) * 10 > map->capacity * 7)
        TD_TRY(enlarge(map));
    td_name_entry *entry = probe(map, key);
    if (!entry->key)
        map->used++;
    *entry = (td_name_entry){key, id};
    return NULL;
}

void td_name_map_remove(td_name_map *map, const char *key)
{
    if (!map->capacity)
        return;
    td_name_entry *entry = probe(map, key);
    if (entry->key) {
        entry->key = "\x01removed"; /* keeps the probe chain; no name starts with a control character */
        entry->id = -1;
    }
}
