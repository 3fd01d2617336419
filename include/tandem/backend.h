/* The plug-in ABI: what a device must offer so that Tandem can train on it. This header stands alone.
 *
 * A backend is one table of functions. The engine opens a device, asks what it supports, allocates in its memory space,
 * opens queues (one for kernels, one per copy direction), prepares kernels once per plan and then, per step, only submits
 * them. A backend in a shared object exports one symbol:
 *
 *     static const td_backend_api api = {.struct_size = sizeof api, .abi_major = TD_BACKEND_ABI_MAJOR,
 *                                        .abi_minor = TD_BACKEND_ABI_MINOR, .name = "mine", ...};
 *     const td_backend_api *td_backend_entry(void) { return &api; }
 *
 * Compatibility: equal major; slots are only appended, and read up to the smaller of both struct sizes. Required slots
 * come first; optional ones may be NULL. Handles are opaque to the engine. Status comes from `td_host_services.fail`; NULL
 * is success. Unless a slot says otherwise the engine calls it from one thread at a time per handle, but for different
 * handles of one device at the same time. Walk through samples/plugin for a whole, small backend. */
#ifndef TANDEM_BACKEND_H
#define TANDEM_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TD_BACKEND_ABI_MAJOR 1
#define TD_BACKEND_ABI_MINOR 1
#define TD_MAX_RANK 6

typedef struct td_status td_status;

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

typedef enum td_dtype { TD_F32 = 0, TD_F16, TD_BF16, TD_I32, TD_I64, TD_U8, TD_BOOL, TD_F64, TD_DTYPE_COUNT } td_dtype;

typedef enum td_kind {
    TD_NONE = 0,   /* an optional argument that is absent */
    TD_DENSE,      /* data: row-major elements */
    TD_RAGGED,     /* data: `entries` ids; index: int64 offsets [dims[0] + 1], first 0, last `entries` */
    TD_ROW_SPARSE, /* a gradient of a [rows, ...] table: index: int64 row ids, ascending, distinct; data: one row each;
                     count: int64[1], how many are in use, at most `entries` */
    TD_SCALAR      /* a short vector of host numbers, passed by value at launch: data is host memory on every device and
                     valid only during kernel_run */
} td_kind;

/* One argument at its actual extents. Addresses are of the device that runs the kernel (TD_SCALAR excepted). A tensor
 * with zero elements may have data == NULL. `dims` of a row-sparse tensor are those of the table. */
typedef struct td_tensor {
    td_kind kind;
    td_dtype dtype;
    int32_t rank;
    int32_t reserved;
    int64_t dims[TD_MAX_RANK];
    int64_t entries; /* ragged: ids; row-sparse: room for rows; else 0 */
    void *data;
    void *index;
    void *count;
} td_tensor;

typedef enum td_attr_type { TD_ATTR_INT = 0, TD_ATTR_FLOAT, TD_ATTR_BOOL, TD_ATTR_STRING, TD_ATTR_INTS } td_attr_type;

/* A typed attribute, found by key. */
typedef struct td_attr {
    const char *key;
    td_attr_type type;
    int32_t n_ints;
    int64_t i; /* TD_ATTR_INT, TD_ATTR_BOOL */
    double f;
    const char *s;
    const int64_t *ints;
} td_attr;

/* An op with its arguments. For `supports` and `kernel_prepare`: dims at capacity, data NULL. For `kernel_run`: actual
 * extents and addresses. State that an op updates (a parameter, its moments) is an input that the kernel writes. */
typedef struct td_kernel_call {
    size_t struct_size;
    const char *op;   /* as in `tandem ops` */
    const char *name; /* the node's name, for messages */
    const td_attr *attrs;
    const td_tensor *inputs;
    const td_tensor *outputs;
    int32_t n_attrs, n_inputs, n_outputs, reserved;
    void *scratch; /* at least what kernel_prepare asked for, 64-byte aligned, of the device's memory */
    size_t scratch_bytes;
} td_kernel_call;

/* ---- what the engine offers a backend ------------------------------------------------------------------------------- */

typedef struct td_host_services {
    size_t struct_size;
    uint16_t abi_major, abi_minor;
    uint32_t reserved;
    /* An error with a message; `code` is a td_code of tandem/status.h. Return its result. */
    td_status *(*fail)(int code, const char *file, int line, const char *message);
    /* Host memory, 64-byte aligned, counted; NULL when there is none. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
    /* The engine's plain reference kernel of an op, for host memory and any extents; NULL when it has none. It uses one
     * thread and no scratch. */
    td_status *(*(*reference_kernel)(const char *op))(const td_kernel_call *call);
} td_host_services;

/* ---- what a backend offers ------------------------------------------------------------------------------------------- */

typedef struct td_device td_device;
typedef struct td_queue td_queue;
typedef struct td_event td_event;
typedef struct td_kernel td_kernel;

enum td_device_flags {
    TD_DEVICE_HOST_MEMORY = 1 /* its memory is the host's: no copies are planned between it and the host */
};

typedef struct td_device_properties {
    size_t struct_size;
    uint64_t memory_bytes; /* hard capacity for `allocate`; 0: the host's own limit */
    uint64_t flags;
    double link_bytes_per_s; /* each direction; 0 where there is no link */
    double link_latency_s;
    double flops_per_s, memory_bytes_per_s; /* estimates for planning; 0 unknown */
    int32_t cores;                          /* host cores that its kernels use; 0: none */
    int32_t lanes;                          /* compute queues to open, so that subgraphs run side by side; 0: one */
    char description[96];                   /* "oneDNN 2.6.3, AVX2" */
} td_device_properties;

enum td_queue_flags {
    TD_QUEUE_SHARES_CORES = 1,   /* other queues have some of the same cores: threads that wait must sleep, not spin */
    TD_QUEUE_SUBMITTER_WAITS = 2 /* right after it submitted: the device may do the work in the submitting thread, the
                                    lane's own; a step whose loss is not finite is looked at again from another */
};

typedef enum td_queue_kind { TD_QUEUE_COMPUTE = 0, TD_QUEUE_TO_DEVICE, TD_QUEUE_TO_HOST } td_queue_kind;

/* `cores`: host processing units (operating-system indices) that this queue's threads may use; n_cores 0: no preference.
 * `threads`: how many threads compute (0: one per core). Copy queues ignore both. */
typedef struct td_queue_options {
    size_t struct_size;
    td_queue_kind kind;
    int32_t threads;
    const int32_t *cores;
    int32_t n_cores;
    uint32_t flags; /* td_queue_flags */
} td_queue_options;

/* One of several copies in a queue's direction: one address is of the host, the other of the device. */
typedef struct td_copy_range {
    void *to;
    const void *from;
    size_t bytes;
} td_copy_range;

typedef struct td_backend_api {
    size_t struct_size;
    uint16_t abi_major, abi_minor;
    uint32_t reserved;
    const char *name;
    const char *summary;

    /* Required. Options: "key=value,key=value" ("memory=256MiB,cores=1,link=12GB/s"); an unknown key is an error. */
    td_status *(*device_open)(const td_host_services *host, const char *options, td_device **out_device);
    void (*device_close)(td_device *device); /* never NULL */
    void (*device_properties)(td_device *device, td_device_properties *out_properties);
    /* Whether the device can run this op at these dtypes and shapes; if not, a reason. Must not depend on extents below
     * capacity. Thread-safe. */
    bool (*supports)(td_device *device, const td_kernel_call *call, char *reason, size_t reason_bytes);

    /* Memory of the device, 64-byte aligned, zeroed. Fails with TD_OUT_OF_MEMORY beyond capacity. */
    td_status *(*allocate)(td_device *device, size_t bytes, void **out_memory);
    void (*release)(td_device *device, void *memory);

    td_status *(*queue_open)(td_device *device, const td_queue_options *options, td_queue **out_queue);
    void (*queue_close)(td_queue *queue); /* drains first */
    /* All submissions run in order within a queue; they may return before the work is done. */
    td_status *(*copy_to_device)(td_queue *queue, void *device_memory, const void *host_memory, size_t bytes);
    td_status *(*copy_to_host)(td_queue *queue, void *host_memory, const void *device_memory, size_t bytes);

    /* An event starts signalled. Record: unsignalled until all that was submitted to the queue before has ended. */
    td_status *(*event_create)(td_device *device, td_event **out_event);
    void (*event_destroy)(td_event *event);
    td_status *(*event_record)(td_event *event, td_queue *queue);
    /* Blocks the calling host thread without spinning; returns the first error of the work before it. Any thread. */
    td_status *(*event_wait)(td_event *event);
    /* Later submissions to `queue` wait for the event (of any queue of this device). */
    td_status *(*queue_wait)(td_queue *queue, td_event *event);

    /* A kernel for this op at these capacities. `out_scratch_bytes`: what kernel_run needs, at most, at any extents up to
     * capacity. What depends on actual extents is made at first use and cached in the kernel. */
    td_status *(*kernel_prepare)(td_device *device, const td_kernel_call *call, td_kernel **out_kernel,
                                 size_t *out_scratch_bytes);
    void (*kernel_release)(td_device *device, td_kernel *kernel);
    /* Submits. `call` and what it points to (scalars too) need not outlive this call. */
    td_status *(*kernel_run)(td_queue *queue, td_kernel *kernel, const td_kernel_call *call);

    /* Optional. Takes a whole subgraph over (a delegate): `calls` in a valid order; values are matched by the data fields of
     * their tensors, which here hold value numbers + 1. NULL kernel: it declines, and ops run one by one. kernel_run then gets
     * one call with op "subgraph", no attributes, and the inputs of all calls followed by the outputs of all calls; memory of
     * values may overlap as if the calls ran in the given order. `calls` and its tensors need not outlive this call; the
     * attributes live as long as the kernel. */
    td_status *(*compile_subgraph)(td_device *device, const td_kernel_call *calls, int32_t n_calls,
                                   td_kernel **out_kernel, size_t *out_scratch_bytes);
    /* Optional. Seconds that this call would take. */
    double (*estimate_seconds)(td_device *device, const td_kernel_call *call);
    /* Optional. Bytes of device memory in use now and at most so far, libraries' own scratch included. */
    void (*memory_in_use)(td_device *device, uint64_t *out_now, uint64_t *out_peak);
    /* Optional, since 1.1. n >= 1 copies in the queue's direction as one list, for a device that works lists off by itself: the
     * link's latency is paid once for all of them. `ranges` need not outlive this call. */
    td_status *(*copy_ranges)(td_queue *queue, const td_copy_range *ranges, int32_t n);
} td_backend_api;

typedef const td_backend_api *(*td_backend_entry_fn)(void);
#define TD_BACKEND_ENTRY_SYMBOL "td_backend_entry"

#ifdef __cplusplus
}
#endif
#endif
