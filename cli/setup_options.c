/* The sections devices, placement, offload, train, optimizer and cpu: to training options. */
#include <string.h>

#include "base/memory.h"
#include "cli/setup.h"

/* ---- devices ----------------------------------------------------------------------------------------------------------- */

/* "backend:key=value,..." being written; longer than anything a configuration needs, checked all the same. */
typedef struct device_text {
    char text[1024];
    bool any;
    bool overflow;
} device_text;

static void put(device_text *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(device_text *d, const char *format, ...)
{
    size_t at = strlen(d->text);
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(d->text + at, sizeof d->text - at, format, arguments);
    va_end(arguments);
    d->overflow |= n < 0 || (size_t)n >= sizeof d->text - at;
}

static const char *separator(device_text *d)
{
    const char *text = d->any ? "," : ":";
    d->any = true;
    return text;
}

static bool is_host(const char *name)
{
    return !strcasecmp(name, "cpu");
}

static bool computes_with_our_kernels(const char *backend)
{
    return is_host(backend) || !strcasecmp(backend, "emulated");
}

static void describe(td_section root, td_section device, const char *backend, bool lift_memory, device_text *d)
{
    put(d, "%s", backend);
    if (td_section_has(device, "memory") && !lift_memory)
        put(d, "%smemory=%lldB", separator(d), (long long)td_section_size(device, "memory"));
    if (lift_memory) /* an emulated device has a limit of its own unless told otherwise */
        put(d, "%smemory=%dTiB", separator(d), 1024);
    if (td_section_has(device, "cores"))
        put(d, "%scores=%lld", separator(d), (long long)td_section_int(device, "cores"));
    if (td_section_has(device, "link"))
        put(d, "%slink=%.0fB/s", separator(d), td_section_rate(device, "link"));
    if (td_section_has(device, "latency"))
        put(d, "%slatency=%.9fs", separator(d), td_section_seconds(device, "latency"));
    if (computes_with_our_kernels(backend))
        put(d, "%sgemm=%s", separator(d), td_section_string(root, "cpu.gemm"));
    if (td_section_has(device, "options"))
        put(d, "%s%s", separator(d), td_section_string(device, "options"));
}

static void describe_host(td_section root, bool cores_given, device_text *d)
{
    if (!d->text[0]) {
        put(d, "cpu");
        put(d, "%sgemm=%s", separator(d), td_section_string(root, "cpu.gemm"));
    }
    if (td_section_int(root, "cpu.threads") > 0 && !cores_given)
        put(d, "%scores=%lld", separator(d), (long long)td_section_int(root, "cpu.threads"));
    if (td_section_int(root, "cpu.lanes") > 0)
        put(d, "%slanes=%lld", separator(d), (long long)td_section_int(root, "cpu.lanes"));
}

static const char *backend_of(td_section device)
{
    const char *backend = td_section_string(device, "backend");
    return backend ? backend : td_section_string(device, "name");
}

static td_status *check_names(td_section root)
{
    int32_t n = td_section_count(root, "devices");
    for (int32_t i = 0; i < n; i++) {
        td_section device = td_section_item(root, "devices", i);
        const char *name = td_section_string(device, "name");
        if (!strcasecmp(name, "device"))
            return TD_SECTION_ERROR(device, "name",
                                    "DEVICE always means the default accelerator; call the device otherwise");
        if (!name[0])
            return TD_SECTION_ERROR(device, "name", "a device needs a name: placement and reports call it so");
        if (is_host(name) && !is_host(backend_of(device)))
            return TD_SECTION_ERROR(device, "name", "%s always means the host; call the %s device otherwise", name,
                                    backend_of(device));
        for (int32_t j = 0; j < i; j++)
            if (!strcasecmp(name, td_section_string(td_section_item(root, "devices", j), "name")))
                return TD_SECTION_ERROR(device, "name", "two devices are called \"%s\"", name);
    }
    return NULL;
}

/* `only`: NULL for all, else the one accelerator (or the host) that counts; `lift`: without its memory limit. */
static td_status *add_devices(td_section root, const char *only, bool lift, td_train_options *options)
{
    TD_TRY(check_names(root));
    bool host_seen = false;
    for (int32_t i = 0; i < td_section_count(root, "devices"); i++) {
        td_section device = td_section_item(root, "devices", i);
        const char *name = td_section_string(device, "name");
        device_text d = {0};
        bool counts = is_host(name) || !only || !strcasecmp(only, name);
        if (!counts)
            continue;
        describe(root, device, backend_of(device), lift && !is_host(name), &d);
        if (is_host(name))
            describe_host(root, td_section_has(device, "cores"), &d);
        host_seen |= is_host(name);
        if (d.overflow)
            return TD_SECTION_ERROR(device, "", "the description of device \"%s\" is longer than 1,000 characters",
                                    name);
        td_add_device(options, name, d.text);
    }
    if (!host_seen) {
        device_text d = {0};
        describe_host(root, false, &d);
        td_add_device(options, "cpu", d.text);
    }
    return NULL;
}

/* ---- placement ----------------------------------------------------------------------------------------------------------- */

static void add_rules(td_section root, td_train_options *options)
{
    for (int32_t i = 0; i < td_section_count(root, "placement.rules"); i++) {
        td_section rule = td_section_item(root, "placement.rules", i);
        char place[128], cause[320];
        const char *match = td_section_string(rule, "match");
        snprintf(cause, sizeof cause, "rule \"%.100s\" (%s)", match, td_section_place(rule, "", place, sizeof place));
        td_place_because(options, match, td_section_string(rule, "target"), cause);
    }
    if (strcasecmp(td_section_string(root, "placement.default"), "device"))
        td_default_device(options, td_section_string(root, "placement.default"));
}

/* ---- tables --------------------------------------------------------------------------------------------------------------- */

static void add_hashes(td_section root, td_train_options *options)
{
    for (int32_t i = 0; i < td_section_count(root, "tables.hash"); i++) {
        td_section hash = td_section_item(root, "tables.hash", i);
        const bool often = !strcmp(td_section_string(hash, "evict"), "lfu");
        td_hash(options, (td_hash_options){.match = td_section_string(hash, "match"),
                                           .admit_count = td_section_int(hash, "admit_count"),
                                           .admit_probability = td_section_float(hash, "admit_probability"),
                                           .capacity = td_section_int(hash, "capacity"),
                                           .live = td_section_int(hash, "live"),
                                           .evict = often ? TD_EVICT_LEAST_OFTEN : TD_EVICT_LEAST_RECENT});
    }
}

static td_status *add_tables(td_section root, td_train_options *options)
{
    const char *storage = td_section_string(root, "tables.storage");
    char *path = NULL;
    TD_TRY(td_section_path(root, "tables.path", &path));
    td_table_options tables = {.storage = !strcmp(storage, "file")     ? TD_TABLE_FILE
                                          : !strcmp(storage, "sparse") ? TD_TABLE_SPARSE
                                                                       : TD_TABLE_MEMORY,
                               .match = td_section_string(root, "tables.match"),
                               .path = path,
                               .least_bytes = td_section_size(root, "tables.least")};
    if (td_section_has(root, "tables.resident"))
        tables.resident_bytes = td_section_size(root, "tables.resident");
    td_tables(options, tables);
    add_hashes(root, options);
    td_free(path);
    return NULL;
}

/* ---- optimizers ---------------------------------------------------------------------------------------------------------- */

/* 0 in td_optimizer means "not given"; a zero that was given must say so. */
static double given(td_section group, const char *key)
{
    if (!td_section_has(group, key))
        return 0;
    double value = td_section_float(group, key);
    return value == 0 ? TD_ZERO : value;
}

static td_status *schedule(td_section group, int64_t steps, td_schedule *out)
{
    static const struct {
        const char *name;
        td_schedule_kind kind;
    } kinds[] = {{"constant", TD_SCHEDULE_CONSTANT},
                 {"cosine", TD_SCHEDULE_COSINE},
                 {"linear", TD_SCHEDULE_LINEAR},
                 {"step", TD_SCHEDULE_STEP}};
    const char *kind = td_section_string(group, "schedule.kind");
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind, kinds[i].name))
            out->kind = kinds[i].kind;
    out->warmup_steps = td_section_int(group, "schedule.warmup_steps");
    out->total_steps = td_section_int(group, "schedule.total_steps");
    out->every = td_section_int(group, "schedule.every");
    out->factor = td_section_float(group, "schedule.factor");
    out->final_factor = td_section_float(group, "schedule.final_factor");
    bool ends = out->kind == TD_SCHEDULE_COSINE || out->kind == TD_SCHEDULE_LINEAR;
    if (ends && !out->total_steps)
        out->total_steps = steps;
    if (ends && !out->total_steps)
        return TD_SECTION_ERROR(group, "schedule.kind",
                                "a %s schedule needs total_steps: how long the run is, is not known", kind);
    if (out->kind == TD_SCHEDULE_STEP && (!out->every || !td_section_has(group, "schedule.factor")))
        return TD_SECTION_ERROR(group, "schedule.kind",
                                "a step schedule needs every and factor: {kind: step, every: 1000, factor: 0.5}");
    return NULL;
}

static td_status *betas(td_section group, td_optimizer *optimizer)
{
    int32_t n = td_section_count(group, "betas");
    if (n != 0 && n != 2)
        return TD_SECTION_ERROR(group, "betas", "betas are two numbers, [0.9, 0.999]");
    double *to[] = {&optimizer->beta1, &optimizer->beta2};
    for (int32_t i = 0; i < n; i++) {
        double value = td_section_float_at(group, "betas", i);
        *to[i] = value == 0 ? TD_ZERO : value;
    }
    return NULL;
}

static td_status *read_group(td_section group, int64_t steps, td_optimizer *out)
{
    *out = (td_optimizer){0};
    if (td_section_bool(group, "frozen"))
        return NULL;
    out->name = td_section_string(group, "name");
    if (!out->name)
        return TD_SECTION_ERROR(group, "", "this optimizer group has no name: a rule of `tandem ops`, or frozen: true");
    if (!td_section_has(group, "lr"))
        return TD_SECTION_ERROR(group, "", "this optimizer group has no lr, its learning rate");
    out->lr = td_section_float(group, "lr");
    if (!(out->lr > 0))
        return td_status_help(TD_SECTION_ERROR(group, "lr", "a learning rate of 0 trains nothing"),
                              "to leave these parameters as they are: frozen: true");
    out->momentum = given(group, "momentum");
    out->epsilon = given(group, "eps");
    out->weight_decay = given(group, "weight_decay");
    out->alpha = given(group, "alpha");
    out->l1 = given(group, "l1");
    out->l2 = given(group, "l2");
    out->lr_power = given(group, "lr_power");
    out->initial_accumulator = given(group, "initial_accumulator");
    out->nesterov = td_section_bool(group, "nesterov");
    TD_TRY(betas(group, out));
    return schedule(group, steps, &out->schedule);
}

static td_status *add_groups(td_section root, int64_t steps, td_train_options *options)
{
    for (int32_t i = 0; i < td_section_count(root, "optimizer"); i++) {
        td_section group = td_section_item(root, "optimizer", i);
        td_optimizer optimizer;
        TD_TRY(read_group(group, steps, &optimizer));
        td_group(options, td_section_string(group, "match"), optimizer);
    }
    return NULL;
}

/* ---- together -------------------------------------------------------------------------------------------------------------- */

static void add_precision(td_section root, td_train_options *options)
{
    const char *precision = td_section_string(root, "train.precision");
    options->precision = !strcmp(precision, "bf16")   ? TD_MIXED_BF16
                         : !strcmp(precision, "fp16") ? TD_MIXED_FP16
                                                      : TD_FP32;
    if (options->precision == TD_FP32)
        return;
    options->no_master = !strcmp(td_section_string(root, "offload.master"), "none");
    if (options->precision != TD_MIXED_FP16)
        return;
    options->loss_scale =
        (td_loss_scale_options){.initial = td_section_float(root, "train.loss_scale.initial"),
                                .growth_interval = td_section_int(root, "train.loss_scale.growth_interval"),
                                .hysteresis = td_section_int(root, "train.loss_scale.hysteresis"),
                                .minimum = td_section_float(root, "train.loss_scale.minimum")};
}

static td_status *add_training(td_section root, int64_t steps, td_train_options *options)
{
    options->seed = (uint64_t)td_section_int(root, "train.seed");
    options->clip_norm = td_section_float(root, "train.clip_norm");
    options->no_pipeline = !td_section_bool(root, "train.pipeline");
    add_precision(root, options);
    for (int32_t i = 0; i < td_section_count(root, "summary.gradients"); i++)
        td_report_gradients(options, td_section_string_at(root, "summary.gradients", i));
    for (int32_t i = 0; i < td_section_count(root, "train.keep_fp32"); i++)
        td_keep_fp32(options, td_section_string_at(root, "train.keep_fp32", i));
    for (int32_t i = 0; i < td_section_count(root, "train.recompute"); i++)
        td_recompute(options, td_section_string_at(root, "train.recompute", i));
    options->stochastic_rounding = !strcmp(td_section_string(root, "train.table_rounding"), "stochastic");
    const char *early = td_section_string(root, "train.early_lookup");
    options->early_lookup = !strcmp(early, "on") ? TD_ON : !strcmp(early, "off") ? TD_OFF : TD_AUTO;
    options->on_nan = !strcmp(td_section_string(root, "train.on_nan"), "skip") ? TD_NAN_SKIP : TD_NAN_STOP;
    options->most_skipped = td_section_int(root, "train.most_skipped");
    options->jit_level = (td_jit_level)(td_section_string(root, "compile.jit_level")[1] - '0');
    TD_TRY(td_setup_windows(root, options));
    return add_groups(root, steps, options);
}

td_status *td_setup_options(td_section root, int64_t steps, td_train_options *out_options)
{
    *out_options = td_train_defaults();
    td_status *status = add_devices(root, NULL, false, out_options);
    if (!status)
        status = add_training(root, steps, out_options);
    if (!status)
        status = add_tables(root, out_options);
    if (status) {
        td_train_options_deinit(out_options);
        return status;
    }
    add_rules(root, out_options);
    const char *optimizer = td_section_string(root, "offload.optimizer");
    out_options->offload_optimizer = !strcmp(optimizer, "cpu")    ? TD_OFFLOAD_CPU
                                     : !strcmp(optimizer, "auto") ? TD_OFFLOAD_AUTO
                                                                  : TD_OFFLOAD_NONE;
    if (out_options->offload_optimizer == TD_OFFLOAD_CPU)
        out_options->offload_ratio = td_section_float(root, "offload.ratio");
    out_options->offload_delayed = td_section_bool(root, "offload.delayed");
    out_options->no_speculation = !td_section_bool(root, "offload.speculate");
    out_options->offload_embedding = !strcmp(td_section_string(root, "offload.embedding"), "cpu");
    return NULL;
}

/* The name that DEVICE, CPU or a device's name stands for; NULL: there is none. */
static const char *device_called(td_section root, const char *name)
{
    for (int32_t i = 0; i < td_section_count(root, "devices"); i++) {
        const char *device = td_section_string(td_section_item(root, "devices", i), "name");
        if (!strcasecmp(device, name) || (!strcasecmp(name, "device") && !is_host(device)))
            return device;
    }
    return is_host(name) || !strcasecmp(name, "device") ? "cpu" : NULL;
}

static bool has_limit(td_section root, const char *name)
{
    for (int32_t i = 0; i < td_section_count(root, "devices"); i++) {
        td_section device = td_section_item(root, "devices", i);
        if (!strcmp(td_section_string(device, "name"), name))
            return !strcasecmp(backend_of(device), "emulated");
    }
    return false;
}

td_status *td_setup_single(td_section root, int64_t steps, const char *device, td_train_options *out_options,
                           char **out_device, bool *out_lifted)
{
    *out_options = td_train_defaults();
    const char *wanted = device ? device : td_section_string(root, "placement.default");
    const char *name = device_called(root, wanted);
    *out_device = NULL;
    if (!name)
        return td_status_help(TD_ERROR(TD_INVALID_ARGUMENT, "there is no device \"%s\" in the configuration", wanted),
                              "name one of devices[], or CPU, DEVICE or single");
    *out_lifted = has_limit(root, name);
    *out_device = td_strdup(name);
    td_status *status = *out_device ? NULL : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a name");
    if (!status)
        status = add_devices(root, name, *out_lifted, out_options);
    if (!status)
        status = add_training(root, steps, out_options);
    if (!status) {
        td_default_device(out_options, name);
        return NULL;
    }
    td_train_options_deinit(out_options);
    td_free(*out_device);
    *out_device = NULL;
    return status;
}
