/* CSV: the first byte says how it is read, the rest is the file. */
#include "tests/fuzz/read_all.h"

const char *const fuzz_words[] = {",",   "\"", "\"\"",    "\n", "\r\n",         ";",    "1e39", "nan",
                                  "inf", "-",  "a,b,c,d", "x",  "\xef\xbb\xbf", "\xff", "",     NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const numeric[] = {"a"}, *const categorical[] = {"b", "c"};
    static const td_cross crosses[] = {{"b", "c", 10}};
    static const int64_t table_rows[] = {7};
    static const td_transform transforms[] = {TD_TRANSFORM_NONE, TD_TRANSFORM_LOG1P, TD_TRANSFORM_STANDARDISE,
                                              TD_TRANSFORM_LOG1P_STANDARDISE};
    if (size < 1)
        return 0;
    td_dataset_options options = td_dataset_defaults("csv");
    td_dataset *dataset = NULL;
    const char *path = fuzz_path("rows.csv");
    fuzz_write(path, data + 1, size - 1);
    options.train = path;
    options.numeric = numeric;
    options.n_numeric = 1;
    options.categorical = categorical;
    options.n_categorical = 2;
    options.crosses = crosses;
    options.n_crosses = data[0] & 1;
    options.label = "d";
    options.positive = "1";
    options.bad_rows = data[0] & 2 ? 1 : 0;
    options.table_rows = table_rows;
    options.n_table_rows = data[0] & 4 ? 1 : 0;
    options.transforms = &transforms[data[0] >> 3 & 3];
    options.n_transforms = 1;
    options.min_count = data[0] & 32 ? 2 : 1;
    options.delimiter = data[0] & 64 ? ';' : ',';
    td_status *status = td_dataset_open(&options, &dataset);
    fuzz_read_all(status, dataset);
    return 0;
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    static const char text[] = "\xef\xbb\xbf"
                               "a,b,c,d\r\n1,x,y,1\r\n2.5e1,\"x,\"\"z\"\"\",\"y\ny\",0\r\n,,,1\r\n"
                               "-3,x,z,0\r\n1,x,y,1\r\n2,\"x\",y,0\r\n,q,,1\r\n-3,x,z,0\r\n4,\"\n\",w,1\r\n5,x,x,0\r\n";
    static const uint8_t ways[] = {1 | 2, 1 | 2 | 4, 2 | 8, 2 | 16 | 32, 24, 3 | 64};
    if (index >= (int)sizeof ways || room < sizeof text)
        return 0;
    buffer[0] = ways[index];
    memcpy(buffer + 1, text, sizeof text - 1);
    for (size_t i = 1; ways[index] & 64 && i < sizeof text; i++)
        buffer[i] = buffer[i] == ',' ? ';' : buffer[i];
    return sizeof text;
}
