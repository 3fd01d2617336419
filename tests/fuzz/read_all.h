/* What every data set that opens must keep to: all its rows can be read, and every id lies in its table. */
#ifndef TANDEM_TESTS_FUZZ_READ_ALL_H
#define TANDEM_TESTS_FUZZ_READ_ALL_H

#include <math.h>

#include "tandem/data.h"
#include "tests/fuzz/fuzz.h"

static inline void fuzz_check_field(const td_field *field, const td_schema *schema)
{
    const td_schema_field *about = td_schema_find(schema, field->name);
    int64_t n = field->tensor.dims[0] * about->width;
    for (int64_t i = 0; i < n; i++) {
        if (about->role == TD_FIELD_IDS) {
            int64_t id = ((const int64_t *)field->tensor.data)[i];
            FUZZ_CHECK(id >= 0 && id < about->table_rows);
        } else if (about->dtype == TD_F32) {
            FUZZ_CHECK(isfinite(((const float *)field->tensor.data)[i]));
        }
    }
}

static inline void fuzz_read_part(const td_dataset *dataset, td_part part)
{
    const td_schema *schema = td_dataset_schema(dataset);
    int64_t rows = part == TD_PART_TRAIN ? schema->train_rows : schema->test_rows, seen = 0;
    td_loader_options options = td_loader_defaults();
    td_loader *loader = NULL;
    options.part = part;
    options.batch = 7;
    if (rows == 0)
        return;
    fuzz_ok(td_loader_create(dataset, &options, &loader));
    td_source source = td_loader_source(loader);
    for (;;) {
        td_batch batch;
        bool end;
        fuzz_ok(source.next(source.self, &batch, &end));
        if (end)
            break;
        seen += batch.samples;
        for (int32_t f = 0; f < batch.n_fields; f++)
            fuzz_check_field(&batch.fields[f], schema);
        source.release(source.self, &batch);
    }
    FUZZ_CHECK(seen == rows);
    td_loader_destroy(loader);
}

/* Takes the status of opening. */
static inline void fuzz_read_all(td_status *status, td_dataset *dataset)
{
    FUZZ_CHECK(!status == !!dataset);
    if (status) {
        td_code code = fuzz_take(status);
        FUZZ_CHECK(code == TD_DATA_ERROR || code == TD_INVALID_ARGUMENT);
        return;
    }
    fuzz_read_part(dataset, TD_PART_TRAIN);
    fuzz_read_part(dataset, TD_PART_TEST);
    td_dataset_destroy(dataset);
}

#endif
