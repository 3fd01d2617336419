/* See same_stores.h. */
#include "tests/support/same_stores.h"

#include "graph/op.h"
#include "tests/base/check.h"

void check_same_stores(const td_store *a, const td_store *b)
{
    uint64_t sums[2];
    assert_int_equal(td_store_count(a), td_store_count(b));
    for (int32_t i = 0; i < td_store_count(a); i++) {
        td_tensor tensor;
        bool is_parameter;
        const char *name = td_store_name(a, i), *device;
        assert_ok(td_store_describe(a, i, &tensor, &is_parameter, &device));
        const int64_t n = td_tensor_elements(&tensor);
        const size_t bytes = (size_t)n * td_dtype_bytes(tensor.dtype);
        void *numbers[2] = {td_calloc(1, bytes), td_calloc(1, bytes)};
        assert_true(numbers[0] && numbers[1]);
        assert_ok(td_store_read(a, i, 0, n, numbers[0]));
        assert_ok(td_store_read(b, td_store_find(b, name), 0, n, numbers[1]));
        if (memcmp(numbers[0], numbers[1], bytes) != 0)
            fail_msg("\"%s\" differs", name);
        td_free(numbers[0]);
        td_free(numbers[1]);
    }
    assert_ok(td_store_checksum(a, &sums[0]));
    assert_ok(td_store_checksum(b, &sums[1]));
    assert_true(sums[0] == sums[1]);
}
