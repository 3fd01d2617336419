/* What the files behind td_plan_explain share. */
#ifndef TANDEM_PARTITION_EXPLAIN_H
#define TANDEM_PARTITION_EXPLAIN_H

#include "base/string.h"
#include "partition/plan.h"

/* explain_listing.c: a list of names that ends after eight with how many more there are. Zeros but for `text` and `lead` to begin with. */
typedef struct td_listing {
    td_string *text;
    const char *lead; /* before the first */
    int32_t n;
} td_listing;
/* Whether the name is shown: then more about it may follow in the text. */
bool td_listing_add(td_listing *l, const char *name);
void td_listing_end(const td_listing *l);
/* Of a value's data, index and count, at capacity. */
int64_t td_explained_bytes(const td_plan *plan, int32_t value);

/* explain_subgraph.c: what a subgraph (or a bundle of copies) holds, takes and gives, and what it is cut from. *out_found: there is one
 * of that name. */
td_status *td_explain_subgraph(const td_plan *plan, const char *name, td_string *text, bool *out_found) TD_MUST_USE;
/* explain_value.c: where a parameter, its state or an input is, why, and which ops read and write it. */
void td_explain_value(const td_plan *plan, int32_t value, td_string *text);
/* The same of each parameter of a layer ("table.3": table.3.weight). False: no parameter's name begins so. */
bool td_explain_layer(const td_plan *plan, const char *layer, td_string *text);

#endif
