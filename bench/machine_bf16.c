/* The rate of bf16 products, by oneDNN with weights in the layout that it likes best: see bench/machine.h. Versions 2 and 3 differ
 * in how descriptors are made. */
#include "bench/machine.h"

#ifdef TANDEM_HAVE_ONEDNN

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "base/clock.h"

enum { N = 2048, REPEATS = 5 };
enum { SOURCE, WEIGHTS, RESULT, OPERANDS };
static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
static const dnnl_dims_t dims = {N, N};

/* Of C = A B in bf16. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t make_product(dnnl_engine_t engine, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t plain = NULL, any = NULL;
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&plain, 2, dims, dnnl_bf16, dnnl_ab);
    if (status == dnnl_success)
        status = dnnl_memory_desc_create_with_tag(&any, 2, dims, dnnl_bf16, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl_matmul_primitive_desc_create(out, engine, plain, any, NULL, plain, NULL);
    (void)dnnl_memory_desc_destroy(plain);
    (void)dnnl_memory_desc_destroy(any);
    return status;
}
#else
static dnnl_status_t make_product(dnnl_engine_t engine, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t plain, any;
    dnnl_matmul_desc_t product;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&plain, 2, dims, dnnl_bf16, dnnl_ab);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&any, 2, dims, dnnl_bf16, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&product, &plain, &any, NULL, &plain);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &product, NULL, engine, NULL) : status;
}
#endif

typedef struct product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[OPERANDS];
} product;

/* In memory of oneDNN's own, full of ones. */
static dnnl_status_t make_operand(product *p, int which, dnnl_query_t query)
{
    void *data = NULL;
    dnnl_status_t status = dnnl_memory_create(
        &p->memories[which], dnnl_primitive_desc_query_md(p->description, query, 0), p->engine, DNNL_MEMORY_ALLOCATE);
    if (status == dnnl_success)
        status = dnnl_memory_get_data_handle(p->memories[which], &data);
    for (int64_t i = 0; status == dnnl_success && i < (int64_t)N * N; i++)
        memcpy((char *)data + 2 * i, &(uint16_t){0x3f80}, 2);
    return status;
}

static dnnl_status_t make(product *p)
{
    dnnl_status_t status = dnnl_engine_create(&p->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = make_product(p->engine, &p->description);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&p->primitive, p->description);
    if (status == dnnl_success)
        status = make_operand(p, SOURCE, dnnl_query_src_md);
    if (status == dnnl_success)
        status = make_operand(p, WEIGHTS, dnnl_query_weights_md);
    return status == dnnl_success ? make_operand(p, RESULT, dnnl_query_dst_md) : status;
}

static void forget(product *p)
{
    for (int i = 0; i < OPERANDS; i++)
        (void)dnnl_memory_destroy(p->memories[i]);
    (void)dnnl_primitive_destroy(p->primitive);
    (void)dnnl_primitive_desc_destroy(p->description);
    if (p->stream)
        (void)dnnl_stream_destroy(p->stream);
    if (p->engine)
        (void)dnnl_engine_destroy(p->engine);
}

double td_machine_bf16_rate(void)
{
    product p = {0};
    double best = 0;
    dnnl_status_t status = make(&p); /* refused where oneDNN has no bf16 for the processor */
    for (int32_t i = 0; status == dnnl_success && i < REPEATS; i++) {
        dnnl_exec_arg_t arguments[OPERANDS];
        for (int k = 0; k < OPERANDS; k++)
            arguments[k] = (dnnl_exec_arg_t){names[k], p.memories[k]};
        const int64_t begin = td_clock_ns();
        status = dnnl_primitive_execute(p.primitive, p.stream, OPERANDS, arguments);
        if (status == dnnl_success)
            status = dnnl_stream_wait(p.stream);
        const double rate = 2.0 * N * N * N / (1e-9 * (double)(td_clock_ns() - begin));
        best = status == dnnl_success && rate > best ? rate : best;
    }
    forget(&p);
    return best;
}

#else

double td_machine_bf16_rate(void)
{
    return 0;
}

#endif
