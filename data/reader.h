/* What a data format is: a few functions that turn options into an open data set. One file data/reader_<name>.c defines
 * a reader; data/readers.def lists it; data/_template.c is one to copy.
 *
 * Opening goes: `check` the options; fill the data set's rows and column counts, by `read` or from the cache;
 * `describe` them as fields. A format that stores no rows (synthetic) leaves `read` NULL and sets `fill` in
 * `describe`. */
#ifndef TANDEM_DATA_READER_H
#define TANDEM_DATA_READER_H

#include "data/dataset.h"

struct td_reader {
    const char *name, *summary;
    const char *before_rows; /* what a file may begin with that is no row, for messages; NULL: nothing */
    /* The format's own defaults, on top of the common ones. */
    void (*defaults)(td_dataset_options *options);
    /* Refuses options that make no sense, before any file is touched. */
    td_status *(*check)(const td_dataset_options *options);
    /* Parses the files into dataset->rows, ->columns, ->counts and ->schema.train_rows, ->schema.test_rows. */
    td_status *(*read)(const td_dataset_options *options, td_dataset *dataset);
    /* Adds the fields (td_dataset_add_field), knowing rows and columns. */
    td_status *(*describe)(const td_dataset_options *options, td_dataset *dataset);
};

#endif
