/* A keyed permutation: see data/order.h.
 *
 * A Feistel network permutes all numbers of 2 * half_bits bits whatever its round function is; positions that land
 * outside [0, n) walk on along their cycle until they are inside (Black and Rogaway, Ciphers with arbitrary finite
 * domains, 2002), which keeps it a permutation. The domain is below 4 n, so fewer than four steps are walked on
 * average. The round function is td_mix of the half and a key; the keys come from Philox under "shuffle", at (round,
 * epoch). */
#include "data/order.h"

#include "base/philox.h"
#include "data/mix.h"

void td_order_init(td_order *order, int64_t n, uint64_t seed, int64_t epoch)
{
    order->n = n;
    order->half_bits = 1;
    while (order->half_bits < 31 && (int64_t)1 << (2 * order->half_bits) < n)
        order->half_bits++;
    td_philox_key key = td_philox_key_of(seed, "shuffle", "");
    for (int32_t round = 0; round < TD_ORDER_ROUNDS; round++) {
        uint32_t bits[4];
        td_philox_block(key, (uint64_t)round, (uint64_t)epoch, bits);
        order->keys[round] = (uint64_t)bits[0] << 32 | bits[1];
    }
}

int64_t td_order_at(const td_order *order, int64_t position)
{
    uint64_t mask = ((uint64_t)1 << order->half_bits) - 1;
    uint64_t x = (uint64_t)position;
    do {
        uint64_t left = x >> order->half_bits, right = x & mask;
        for (int32_t round = 0; round < TD_ORDER_ROUNDS; round++) {
            uint64_t next = left ^ (td_mix(right ^ order->keys[round]) & mask);
            left = right;
            right = next;
        }
        x = left << order->half_bits | right;
    } while (x >= (uint64_t)order->n);
    return (int64_t)x;
}
