/* See hot_keys.h. */
#include "runtime/hot_keys.h"

static void count(td_hot_keys *hot, int64_t key)
{
    int64_t rarest = 0;
    for (int64_t i = 0; i < hot->n; i++) {
        if (hot->keys[i] == key) {
            hot->counts[i]++;
            return;
        }
        rarest = hot->counts[i] < hot->counts[rarest] ? i : rarest;
    }
    if (hot->n < TD_HOT_KEYS) {
        hot->keys[hot->n] = key;
        hot->counts[hot->n++] = 1;
        return;
    }
    hot->keys[rarest] = key;
    hot->counts[rarest]++;
}

/* Spread over the batch, and at other places in the next: places that are evenly apart would hit the same field of every sample. */
void td_hot_keys_add(td_hot_keys *hot, const int64_t *keys, int64_t n, int64_t distinct)
{
    int64_t samples = n < TD_HOT_KEYS_SAMPLE ? n : TD_HOT_KEYS_SAMPLE;
    uint64_t at = (uint64_t)hot->batches * UINT64_C(0xD1B54A32D192ED03);
    for (int64_t i = 0; i < samples; i++) {
        at += UINT64_C(0x9E3779B97F4A7C15); /* the golden ratio's fraction: well apart however many */
        count(hot, keys[n <= TD_HOT_KEYS_SAMPLE ? i : (int64_t)((at >> 32) * (uint64_t)n >> 32)]);
    }
    hot->seen += samples;
    hot->batches++;
    hot->ids += n;
    hot->distinct += distinct;
}

void td_hot_keys_sort(td_hot_keys *hot)
{
    for (int64_t i = 1; i < hot->n; i++) {
        int64_t key = hot->keys[i], n = hot->counts[i], k = i;
        for (; k > 0 && hot->counts[k - 1] < n; k--) {
            hot->keys[k] = hot->keys[k - 1];
            hot->counts[k] = hot->counts[k - 1];
        }
        hot->keys[k] = key;
        hot->counts[k] = n;
    }
}
