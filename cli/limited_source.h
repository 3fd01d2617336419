/* A source that ends after so many batches of another, so that a session pulls none that it will not train on. */
#ifndef TANDEM_CLI_LIMITED_SOURCE_H
#define TANDEM_CLI_LIMITED_SOURCE_H

#include "tandem/data.h"

typedef struct td_limited_source {
    td_source inner;
    int64_t left;
} td_limited_source;

/* A source over `limited`, which must outlive it. */
td_source td_limited_source_of(td_limited_source *limited);

#endif
