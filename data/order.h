/* The order of rows in an epoch: a permutation of [0, n) that takes no memory and gives any position at once, so that
 * workers may make any batch and a resumed run starts in the middle. */
#ifndef TANDEM_DATA_ORDER_H
#define TANDEM_DATA_ORDER_H

#include <stdint.h>

enum { TD_ORDER_ROUNDS = 8 };

typedef struct td_order {
    int64_t n;
    int32_t half_bits;
    uint64_t keys[TD_ORDER_ROUNDS];
} td_order;

/* The permutation of (seed, epoch). n >= 1. */
void td_order_init(td_order *order, int64_t n, uint64_t seed, int64_t epoch);
/* Which row comes at `position`, 0 <= position < n. */
int64_t td_order_at(const td_order *order, int64_t position);

#endif
