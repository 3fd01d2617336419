/* Distinct byte strings: see data/vocabulary.h. */
#include "data/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

static td_status *out_of_memory(const td_vocabulary *vocabulary)
{
    return TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a vocabulary of %lld values", (long long)vocabulary->count);
}

/* Twice the slots, so that at most half of them are ever in use. */
static td_status *widen(td_vocabulary *vocabulary)
{
    int64_t n = vocabulary->n_slots ? vocabulary->n_slots * 2 : 64;
    int64_t *slots = td_calloc((size_t)n, sizeof *slots);
    if (!slots)
        return out_of_memory(vocabulary);
    for (int64_t i = 0; i < vocabulary->count; i++) {
        int64_t at = (int64_t)(vocabulary->words[i].hash & (uint64_t)(n - 1));
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = i + 1;
    }
    td_free(vocabulary->slots);
    vocabulary->slots = slots;
    vocabulary->n_slots = n;
    return NULL;
}

static td_status *store_bytes(td_vocabulary *vocabulary, td_span span)
{
    int64_t needed = vocabulary->bytes_used + span.length;
    if (needed > vocabulary->bytes_capacity) {
        int64_t larger = needed * 2 + 256;
        char *bytes = td_realloc(vocabulary->bytes, (size_t)larger, 1);
        if (!bytes)
            return out_of_memory(vocabulary);
        vocabulary->bytes = bytes;
        vocabulary->bytes_capacity = larger;
    }
    if (span.length)
        memcpy(vocabulary->bytes + vocabulary->bytes_used, span.data, (size_t)span.length);
    vocabulary->bytes_used = needed;
    return NULL;
}

td_span td_vocabulary_word(const td_vocabulary *vocabulary, int64_t number)
{
    const td_word *word = &vocabulary->words[number];
    return (td_span){vocabulary->bytes + word->offset, word->length};
}

static bool same(const td_vocabulary *vocabulary, int64_t number, uint64_t hash, td_span span)
{
    const td_word *word = &vocabulary->words[number];
    return word->hash == hash && word->length == span.length &&
           (span.length == 0 || memcmp(vocabulary->bytes + word->offset, span.data, (size_t)span.length) == 0);
}

td_status *td_vocabulary_add(td_vocabulary *vocabulary, td_span span, int64_t *out_number)
{
    if (vocabulary->count * 2 >= vocabulary->n_slots)
        TD_TRY(widen(vocabulary));
    uint64_t hash = td_hash_bytes(span.data, (size_t)span.length, 0);
    int64_t mask = vocabulary->n_slots - 1, at = (int64_t)(hash & (uint64_t)mask);
    for (; vocabulary->slots[at]; at = (at + 1) & mask) {
        *out_number = vocabulary->slots[at] - 1;
        if (same(vocabulary, *out_number, hash, span))
            return NULL;
    }
    int64_t offset = vocabulary->bytes_used;
    TD_TRY(td_grow(&vocabulary->words, &vocabulary->words_capacity, vocabulary->count, sizeof *vocabulary->words));
    TD_TRY(store_bytes(vocabulary, span));
    vocabulary->words[vocabulary->count] = (td_word){hash, offset, span.length};
    *out_number = vocabulary->count++;
    vocabulary->slots[at] = vocabulary->count;
    return NULL;
}

static int by_bytes(const void *a, const void *b, void *self)
{
    const td_vocabulary *vocabulary = self;
    td_span x = td_vocabulary_word(vocabulary, *(const int64_t *)a);
    td_span y = td_vocabulary_word(vocabulary, *(const int64_t *)b);
    int64_t shorter = x.length < y.length ? x.length : y.length;
    int order = shorter ? memcmp(x.data, y.data, (size_t)shorter) : 0;
    return order ? order : (x.length > y.length) - (x.length < y.length);
}

td_status *td_vocabulary_rank(const td_vocabulary *vocabulary, const int64_t *counts, int64_t least, int64_t *out_ranks,
                              int64_t *out_kept)
{
    int64_t *sorted = NULL, kept = 0;
    TD_TRY(TD_NEW(sorted, vocabulary->count));
    for (int64_t i = 0; i < vocabulary->count; i++) {
        out_ranks[i] = 0;
        if (counts[i] >= least)
            sorted[kept++] = i;
    }
    qsort_r(sorted, (size_t)kept, sizeof *sorted, by_bytes, (void *)vocabulary);
    for (int64_t i = 0; i < kept; i++)
        out_ranks[sorted[i]] = i + 1;
    td_free(sorted);
    *out_kept = kept;
    return NULL;
}

void td_vocabulary_deinit(td_vocabulary *vocabulary)
{
    td_free(vocabulary->words);
    td_free(vocabulary->slots);
    td_free(vocabulary->bytes);
    *vocabulary = (td_vocabulary){0};
}
