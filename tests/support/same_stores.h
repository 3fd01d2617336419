/* Whether two stores are the same, bit for bit. */
#ifndef TANDEM_TESTS_SUPPORT_SAME_STORES_H
#define TANDEM_TESTS_SUPPORT_SAME_STORES_H

#include "tandem/session.h"

/* Every parameter and state, gradients that wait included, wherever each is kept; and their checksums. Fails the running cmocka test,
 * naming the first that differs. */
void check_same_stores(const td_store *a, const td_store *b);

#endif
