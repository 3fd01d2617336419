/* Distinct byte strings and their numbers, in order of appearance from 0. An open-addressing hash table over an arena
 * of bytes; strings are never removed. */
#ifndef TANDEM_DATA_VOCABULARY_H
#define TANDEM_DATA_VOCABULARY_H

#include "data/text.h"

typedef struct td_word {
    uint64_t hash;
    int64_t offset, length;
} td_word;

typedef struct td_vocabulary {
    td_word *words;
    int64_t count, words_capacity;
    int64_t *slots; /* word number + 1; 0: empty */
    int64_t n_slots;
    char *bytes;
    int64_t bytes_used, bytes_capacity;
} td_vocabulary;

/* The number of `span`, which becomes a new word if it is none yet. A zeroed td_vocabulary is an empty one. */
td_status *td_vocabulary_add(td_vocabulary *vocabulary, td_span span, int64_t *out_number) TD_MUST_USE;
td_span td_vocabulary_word(const td_vocabulary *vocabulary, int64_t number);
/* Numbers the words afresh: those with counts[number] >= least get 1, 2, ... in byte order, the others 0. */
td_status *td_vocabulary_rank(const td_vocabulary *vocabulary, const int64_t *counts, int64_t least, int64_t *out_ranks,
                              int64_t *out_kept) TD_MUST_USE;
void td_vocabulary_deinit(td_vocabulary *vocabulary);

#endif
