/* Compares a trained case with what it expects, and runs with each other. See train.h. */
#include <math.h>
#include <string.h>

#include "tests/tools/golden_check/train.h"

enum { MOST_FIRST = 8 };

/* |found - expected| <= tolerance, which NaN does not fulfil. */
static bool within(double found, double expected, double tolerance)
{
    return fabs(found - expected) <= tolerance;
}

/* ---- a number per step -------------------------------------------------------------------------------------------------------- */

static td_status *compare_losses(const golden_case *c, const golden_trained *trained, golden_deviations *deviations,
                                 golden_compared *compared)
{
    double rtol = 0;
    json_t *expected;
    TD_TRY(golden_json_number(c->expected, "rtol", &rtol));
    TD_TRY(golden_json_get(c->expected, "losses", JSON_ARRAY, &expected));
    if ((size_t)trained->n != json_array_size(expected))
        golden_deviate(deviations, "%d steps were trained, %zu losses are expected", trained->n,
                       json_array_size(expected));
    for (int32_t s = 0; s < trained->n; s++) {
        double found = (double)trained->losses[s], wanted = json_number_value(json_array_get(expected, (size_t)s));
        if (!within(found, wanted, rtol * fabs(wanted)))
            golden_deviate(deviations, "step %d: loss is %.9g, expected %.9g within %.3g of it", s, found, wanted,
                           rtol);
        compared->losses++;
    }
    return NULL;
}

static td_status *compare_norms(const golden_case *c, const golden_trained *trained, golden_deviations *deviations,
                                golden_compared *compared)
{
    double rtol = 0;
    json_t *expected;
    TD_TRY(golden_json_number(c->expected, "grad_norm_rtol", &rtol));
    TD_TRY(golden_json_get(c->expected, "grad_norms", JSON_ARRAY, &expected));
    for (int32_t s = 0; s < trained->n; s++) {
        double found = trained->gradient_norms[s], wanted = json_number_value(json_array_get(expected, (size_t)s));
        if (!within(found, wanted, rtol * fabs(wanted)))
            golden_deviate(deviations, "step %d: the gradients' norm is %.9g, expected %.9g within %.3g of it", s,
                           found, wanted, rtol);
        compared->gradient_norms++;
    }
    return NULL;
}

/* ---- tensors -------------------------------------------------------------------------------------------------------------------- */

typedef struct summary {
    double sum, abs_sum, l2;
} summary;

static summary summarize(const golden_tensor *t)
{
    summary s = {0};
    for (int64_t i = 0; i < t->elements; i++) {
        double x = (double)t->data[i];
        s.sum += x;
        s.abs_sum += fabs(x);
        s.l2 += x * x;
    }
    s.l2 = sqrt(s.l2);
    return s;
}

static td_status *compare_field(const char *name, const char *field, double found, const json_t *expected,
                                double tolerance, golden_deviations *deviations)
{
    double wanted = 0;
    TD_TRY(golden_json_number(expected, field, &wanted));
    if (!within(found, wanted, tolerance))
        golden_deviate(deviations, "%s: %s is %.9g, expected %.9g within %.3g", name, field, found, wanted, tolerance);
    return NULL;
}

static td_status *compare_tensor(const char *name, const golden_tensor *t, const json_t *expected,
                                 golden_deviations *deviations)
{
    json_t *tolerance, *first;
    double sum = 0, l2 = 0, element = 0;
    TD_TRY(golden_json_get(expected, "tolerance", JSON_OBJECT, &tolerance));
    TD_TRY(golden_json_number(tolerance, "sum", &sum));
    TD_TRY(golden_json_number(tolerance, "l2", &l2));
    TD_TRY(golden_json_number(tolerance, "first", &element));
    summary s = summarize(t);
    TD_TRY(compare_field(name, "sum", s.sum, expected, sum, deviations));
    TD_TRY(compare_field(name, "abs_sum", s.abs_sum, expected, sum, deviations));
    TD_TRY(compare_field(name, "l2", s.l2, expected, l2, deviations));
    TD_TRY(golden_json_get(expected, "first", JSON_ARRAY, &first));
    size_t n = t->elements < MOST_FIRST ? (size_t)t->elements : MOST_FIRST;
    if (json_array_size(first) != n)
        golden_deviate(deviations, "%s has %lld elements, but first %zu values are expected", name,
                       (long long)t->elements, json_array_size(first));
    for (size_t i = 0; i < n && i < json_array_size(first); i++) {
        double found = (double)t->data[i], wanted = json_number_value(json_array_get(first, i));
        if (!within(found, wanted, element))
            golden_deviate(deviations, "%s: element %zu is %.9g, expected %.9g within %.3g", name, i, found, wanted,
                           element);
    }
    return NULL;
}

/* All tensors of "final" (named as parameters) or "optimizer_state" ("<parameter>.<slot>"). */
static td_status *compare_tensors(const golden_case *c, const char *key, const golden_snapshot *final,
                                  golden_deviations *deviations, golden_compared *compared)
{
    json_t *all, *expected;
    const char *name;
    TD_TRY(golden_json_get(c->expected, key, JSON_OBJECT, &all));
    json_object_foreach(all, name, expected)
    {
        char parameter[256];
        const char *dot = strrchr(name, '.');
        bool is_state = strcmp(key, "optimizer_state") == 0;
        size_t length = is_state && dot ? (size_t)(dot - name) : strlen(name);
        if (length >= sizeof parameter)
            return TD_ERROR(TD_DATA_ERROR, "expected.json: a tensor's name has %zu characters", length);
        memcpy(parameter, name, length);
        parameter[length] = 0;
        const golden_tensor *t = golden_snapshot_find(final, parameter, is_state && dot ? dot + 1 : NULL);
        if (t)
            TD_TRY(compare_tensor(name, t, expected, deviations));
        else
            golden_deviate(deviations, "%s: %s is expected; the store has none of that name", key, name);
        compared->tensors++;
    }
    return NULL;
}

/* ---- a run ------------------------------------------------------------------------------------------------------------------------ */

td_status *golden_compare(const golden_case *c, const golden_trained *trained, golden_deviations *deviations,
                          golden_compared *out_compared)
{
    TD_TRY(compare_losses(c, trained, deviations, out_compared));
    if (trained->gradient_norms)
        TD_TRY(compare_norms(c, trained, deviations, out_compared));
    TD_TRY(compare_tensors(c, "final", &trained->final, deviations, out_compared));
    return compare_tensors(c, "optimizer_state", &trained->final, deviations, out_compared);
}

void golden_compare_bits(const golden_trained *a, const golden_trained *b, const char *which,
                         golden_deviations *deviations)
{
    const char *first;
    for (int32_t s = 0; s < a->n && s < b->n; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof *a->losses) != 0)
            golden_deviate(deviations, "step %d: loss is %.9g, and %.9g %s: the bits must be equal", s,
                           (double)a->losses[s], (double)b->losses[s], which);
    if (a->n != b->n)
        golden_deviate(deviations, "%d steps were trained, and %d %s", a->n, b->n, which);
    if (!golden_snapshot_equal(&a->final, &b->final, &first))
        golden_deviate(deviations, "%s differs from the one %s: the bits must be equal", first, which);
}
