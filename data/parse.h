/* The walk through the files of a text format: opening, record after record, the limit of rows, bad rows, the split,
 * and the columns' end. A reader says what one record means. */
#ifndef TANDEM_DATA_PARSE_H
#define TANDEM_DATA_PARSE_H

#include "data/dataset.h"
#include "data/text.h"

typedef struct td_parse td_parse;
struct td_parse {
    const td_dataset_options *options;
    td_dataset *dataset;
    char csv; /* the delimiter of CSV records; 0: records are lines */
    /* At a file's start, where it has a header line; NULL: it has none. */
    td_status *(*begin)(td_parse *parse);
    /* One record: check it as a whole, then store and count it. *out_good (false before): it was stored. A row that is
     * refused by td_parse_refuse is not an error by itself. */
    td_status *(*row)(td_parse *parse, td_span record, bool *out_good);
    void *self; /* the reader's */
    td_columns columns;
    td_bad_rows bad;
    td_text text; /* the file at hand */
};

/* The record at hand is malformed: counted, and an error once it is one too many. `column` from 1; 0: the row as a whole. */
#define td_parse_refuse(parse, column, ...)                                                                            \
    td_bad_rows_add(&(parse)->bad, (parse)->text.path, (parse)->text.line, column, __VA_ARGS__)

/* One file, at most options->most_rows rows of it. */
td_status *td_parse_file(td_parse *parse, const char *path) TD_MUST_USE;
/* All files, with rows in file order and columns in parse->columns (initialised before): rows, columns, counts, notes
 * and split of the data set are complete afterwards. */
td_status *td_parse_files(td_parse *parse) TD_MUST_USE;
void td_parse_deinit(td_parse *parse);

#endif
