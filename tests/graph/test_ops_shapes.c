/* The shape rules of the dense ops: what they infer, named extents included, and how they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "tests/base/check.h"

/* What the cases build from. */
typedef struct scene {
    td_graph *g;
    td_dim batch, other;                           /* B<=8 and C<=8: equal capacities, but not one extent */
    td_value x, y, row, ids, matrix, half, ragged; /* [B, 6], [B, 4], [6], i64 [B, 2], [4, 6], f16 [B, 6], bags */
} scene;

static scene scene_make(void)
{
    scene s = {0};
    assert_ok(td_graph_create(&s.g));
    s.batch = td_extent(s.g, "B", 8);
    s.other = td_extent(s.g, "C", 8);
    s.x = td_input(s.g, "x", TD_F32, TD_SHAPE(s.batch, 6));
    s.y = td_input(s.g, "y", TD_F32, TD_SHAPE(s.batch, 4));
    s.row = td_input(s.g, "row", TD_F32, TD_SHAPE(6));
    s.ids = td_input(s.g, "ids", TD_I64, TD_SHAPE(s.batch, 2));
    s.matrix = td_input(s.g, "matrix", TD_F32, TD_SHAPE(4, 6));
    s.half = td_input(s.g, "half", TD_F16, TD_SHAPE(s.batch, 6));
    s.ragged = td_input_ragged(s.g, "ragged", TD_I64, s.batch, td_extent(s.g, "N", 20));
    return s;
}

typedef td_value (*build_fn)(scene *s);

/* ---- what is inferred ------------------------------------------------------------------------------------------------------ */

static td_value linear(scene *s)
{
    return td_linear(s->x, 3, "fc");
}
static td_value linear_16(scene *s)
{
    return td_linear(s->half, 3, "fc");
}
static td_value product(scene *s)
{
    return td_matmul(s->x, s->matrix, false, true);
}
static td_value product_over_the_batch(scene *s)
{
    return td_matmul(s->x, s->y, true, false);
}
static td_value broadcast(scene *s)
{
    return td_add(s->row, s->x);
}
static td_value broadcast_ones(scene *s)
{
    return td_mul(td_input(s->g, "c", TD_F32, TD_SHAPE(s->batch, 1)), s->row);
}
static td_value concat_columns(scene *s)
{
    return td_concat(2, (td_value[]){s->x, s->y}, -1);
}
static td_value concat_rows(scene *s)
{
    return td_concat(3, (td_value[]){s->x, s->matrix, s->x}, 0);
}
static td_value slice(scene *s)
{
    return td_slice(s->x, 1, 2, 3);
}
static td_value slice_of_nothing(scene *s)
{
    return td_slice(s->x, 1, 6, 0);
}
static td_value split_rows(scene *s)
{
    td_value parts[2];
    td_split(td_concat(2, (td_value[]){s->x, s->x}, 0), 0, 2, parts);
    return parts[1];
}
static td_value reshape_open(scene *s)
{
    return td_reshape(s->x, TD_SHAPE(-1, 3));
}
static td_value reshape_batch(scene *s)
{
    return td_reshape(s->x, TD_SHAPE(2, 3, s->batch));
}
static td_value reshape_open_constant(scene *s)
{
    return td_reshape(s->x, TD_SHAPE(s->batch, -1, 2));
}
static td_value reshape_two_extents(scene *s)
{
    return td_reshape(td_input(s->g, "t", TD_F32, TD_SHAPE(s->batch, s->other, 4)), TD_SHAPE(2, s->other, s->batch, 2));
}
static td_value transpose(scene *s)
{
    return td_transpose(s->x, 2, (int32_t[]){1, 0});
}
static td_value sum(scene *s)
{
    return td_reduce_sum(s->x, 0, false);
}
static td_value mean_kept(scene *s)
{
    return td_reduce_mean(s->x, -1, true);
}
static td_value gather(scene *s)
{
    return td_gather(s->matrix, s->ids);
}
static td_value cast(scene *s)
{
    return td_cast(s->ids, TD_U8);
}
static td_value softmax(scene *s)
{
    return td_softmax(s->half);
}

static const struct {
    const char *name;
    build_fn build;
    const char *type;
} good[] = {
    {"linear", linear, "f32 [B<=8, 3]"},
    {"linear_16", linear_16, "f16 [B<=8, 3]"},
    {"product", product, "f32 [B<=8, 4]"},
    {"product_over_the_batch", product_over_the_batch, "f32 [6, 4]"},
    {"broadcast", broadcast, "f32 [B<=8, 6]"},
    {"broadcast_ones", broadcast_ones, "f32 [B<=8, 6]"},
    {"concat_columns", concat_columns, "f32 [B<=8, 10]"},
    {"concat_rows", concat_rows, "f32 [2*B+4<=20, 6]"},
    {"slice", slice, "f32 [B<=8, 3]"},
    {"slice_of_nothing", slice_of_nothing, "f32 [B<=8, 0]"},
    {"split_rows", split_rows, "f32 [B<=8, 6]"},
    {"reshape_open", reshape_open, "f32 [2*B<=16, 3]"},
    {"reshape_batch", reshape_batch, "f32 [2, 3, B<=8]"},
    {"reshape_open_constant", reshape_open_constant, "f32 [B<=8, 3, 2]"},
    {"reshape_two_extents", reshape_two_extents, "f32 [2, C<=8, B<=8, 2]"},
    {"transpose", transpose, "f32 [6, B<=8]"},
    {"sum", sum, "f32 [6]"},
    {"mean_kept", mean_kept, "f32 [B<=8, 1]"},
    {"gather", gather, "f32 [B<=8, 2, 6]"},
    {"cast", cast, "u8 [B<=8, 2]"},
    {"softmax", softmax, "f16 [B<=8, 6]"},
};

static void test_rules_infer_types_with_named_extents(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        scene s = scene_make();
        td_value value = good[i].build(&s);
        char shape[100], type[120];
        td_status *status = td_graph_check(s.g);
        if (status)
            fail_msg("%s: %s", good[i].name, td_status_message(status));
        td_shape inferred = td_value_shape(value);
        (void)snprintf(type, sizeof type, "%s %s", td_dtype_name(td_value_dtype(value)),
                       td_shape_text(s.g, &inferred, shape, sizeof shape));
        if (strcmp(type, good[i].type) != 0)
            fail_msg("%s is %s, not %s", good[i].name, type, good[i].type);
        td_graph_destroy(s.g);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------------------- */

static td_value bad_weight(scene *s)
{
    return td_linear_with(s->y, s->matrix, TD_NO_VALUE, "fc");
}
static td_value bad_bias(scene *s)
{
    return td_linear_with(s->x, s->matrix, s->row, "fc");
}
static td_value bad_width(scene *s)
{
    return td_linear(td_transpose(s->x, 2, (int32_t[]){1, 0}), 3, "fc");
}
static td_value bad_dtype(scene *s)
{
    return td_linear_with(s->half, s->matrix, TD_NO_VALUE, "fc");
}
static td_value bad_inner(scene *s)
{
    return td_matmul(s->x, s->matrix, false, false);
}
static td_value bad_leading(scene *s)
{
    return td_matmul(td_input(s->g, "a", TD_F32, TD_SHAPE(2, 3, 4)), td_input(s->g, "b", TD_F32, TD_SHAPE(3, 4, 5)),
                     false, false);
}
static td_value bad_broadcast(scene *s)
{
    return td_add(s->x, s->y);
}
static td_value bad_extents(scene *s)
{
    return td_add(s->x, td_input(s->g, "z", TD_F32, TD_SHAPE(s->other, 6)));
}
static td_value bad_operands(scene *s)
{
    return td_add(s->x, s->half);
}
static td_value bad_kind(scene *s)
{
    return td_relu(s->ragged);
}
static td_value bad_integers(scene *s)
{
    return td_relu(s->ids);
}
static td_value bad_concat(scene *s)
{
    return td_concat(2, (td_value[]){s->x, s->y}, 0);
}
static td_value bad_concat_extents(scene *s)
{
    return td_concat(2, (td_value[]){s->x, td_input(s->g, "z", TD_F32, TD_SHAPE(s->other, 6))}, 0);
}
static td_value bad_axis(scene *s)
{
    return td_reduce_sum(s->x, 2, false);
}
static td_value bad_slice(scene *s)
{
    return td_slice(s->x, 1, 4, 3);
}
static td_value bad_slice_of_the_batch(scene *s)
{
    return td_slice(s->x, 0, 0, 1);
}
static td_value bad_split(scene *s)
{
    td_value parts[4];
    td_split(s->x, 1, 4, parts);
    return parts[0];
}
static td_value bad_reshape(scene *s)
{
    return td_reshape(s->x, TD_SHAPE(s->batch, 5));
}
static td_value bad_reshape_open(scene *s)
{
    return td_reshape(s->x, TD_SHAPE(-1, 4));
}
static td_value bad_permutation(scene *s)
{
    return td_transpose(s->x, 2, (int32_t[]){1, 1});
}
static td_value bad_indices(scene *s)
{
    return td_gather(s->matrix, s->x);
}
static td_value bad_scalar(scene *s)
{
    return td_scale_by(s->x, td_scalar(s->g, "s", TD_F32, 2, (double[]){1, 2}));
}
static td_value bad_sum(scene *s)
{
    return td_graph_add1(s->g, "add_n", "sum", (td_value[]){s->x, s->y}, 2, NULL, 0);
}

static const struct {
    const char *name;
    build_fn build;
    const char *message;
} bad[] = {
    {"bad_weight", bad_weight, "linear fc/linear: x is [B<=8, 4] and weight is [4, 6]; weight must be [out, in]"},
    {"bad_bias", bad_bias, "linear fc/linear: bias is [6] and weight is [4, 6]; bias must be [out]"},
    {"bad_width", bad_width, "linear fc: the last dimension of x (\"x/transpose\") must be a constant"},
    {"bad_dtype", bad_dtype,
     "linear fc/linear: input 0 is f16 and input 1 is f32; they must agree: td_cast one of them"},
    {"bad_inner", bad_inner, "matmul x/matmul: a is [B<=8, 6] and b is [4, 6]; the inner dimensions must be equal"},
    {"bad_leading", bad_leading, "matmul a/matmul: a is [2, 3, 4] and b is [3, 4, 5]; both need two dimensions"},
    {"bad_broadcast", bad_broadcast, "add x/add: shapes [B<=8, 6] and [B<=8, 4] do not broadcast"},
    {"bad_extents", bad_extents, "add x/add: shapes [B<=8, 6] and [C<=8, 6] do not broadcast"},
    {"bad_operands", bad_operands, "add x/add: input 0 is f32 and input 1 is f16"},
    {"bad_kind", bad_kind, "relu ragged/relu: input 0 (x) is ragged; it must be dense"},
    {"bad_integers", bad_integers, "relu ids/relu: input 0 (x) is i64; it must be one of f32, f16, bf16: td_cast it"},
    {"bad_concat", bad_concat,
     "concat x/concat: input 0 is [B<=8, 6] and input 1 is [B<=8, 4]; all dimensions but axis 0"},
    {"bad_concat_extents", bad_concat_extents, "concat x/concat: axis 0 would be a sum of two different extents"},
    {"bad_axis", bad_axis, "reduce_sum x/reduce_sum: axis 2 is outside the 2 dimensions of input 0 (x)"},
    {"bad_slice", bad_slice, "slice x/slice: x is [B<=8, 6]; elements [4, 4 + 3) are outside axis 1"},
    {"bad_slice_of_the_batch", bad_slice_of_the_batch,
     "slice x/slice: x is [B<=8, 6]; axis 0 differs from batch to batch"},
    {"bad_split", bad_split, "split x/split: x is [B<=8, 6]; axis 1 does not divide into 4 equal parts"},
    {"bad_reshape", bad_reshape,
     "reshape x/reshape: x is [B<=8, 6] and the shape is [B<=8, 5]; both must hold as many"},
    {"bad_reshape_open", bad_reshape_open, "reshape x/reshape: the attribute \"shape\" has a negative dimension"},
    {"bad_permutation", bad_permutation,
     "transpose x/transpose: x is [B<=8, 6]; the permutation must name each of its 2 axes"},
    {"bad_indices", bad_indices, "gather matrix/gather: input 1 (indices) is f32; it must be one of i32, i64"},
    {"bad_scalar", bad_scalar, "scale_by x/scale_by: the scalar must be one number"},
    {"bad_sum", bad_sum, "add_n sum: input 0 is [B<=8, 6] and input 1 is [B<=8, 4]; the shapes must be equal"},
};

static void test_rules_refuse_with_one_clear_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scene s = scene_make();
        (void)bad[i].build(&s);
        td_status *status = td_graph_check(s.g);
        if (!status || !strstr(td_status_message(status), bad[i].message) || strchr(td_status_message(status), '\n'))
            fail_msg("%s: \"%s\" is not one line that says \"%s\"", bad[i].name, td_status_message(status),
                     bad[i].message);
        assert_int_equal(td_status_code(status), TD_INVALID_ARGUMENT);
        td_status_destroy(status);
        td_graph_destroy(s.g);
    }
}

/* ---- tables -------------------------------------------------------------------------------------------------------------------- */

static void test_every_op_says_what_it_is(void **state)
{
    (void)state;
    for (int32_t i = 0; i < td_op_count(); i++) {
        const td_op *op = td_op_at(i);
        if (!op->summary || !op->infer)
            fail_msg("%s lacks a summary or a shape rule", op->name);
        if (!op->gradient == !op->no_gradient)
            fail_msg("%s needs either a gradient or the reason for none", op->name);
        if (!op->reference && strcmp(op->name, "host_call") != 0 && !(op->flags & TD_OP_REMOTE))
            fail_msg("%s has no reference kernel", op->name);
        assert_ptr_equal(td_op_find(op->name), op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_infer_types_with_named_extents),
        cmocka_unit_test(test_rules_refuse_with_one_clear_line),
        cmocka_unit_test(test_every_op_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
