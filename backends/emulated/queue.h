/* A queue of the emulated device: a ring of submissions and the thread that carries them out in order. */
#ifndef TANDEM_BACKENDS_EMULATED_QUEUE_H
#define TANDEM_BACKENDS_EMULATED_QUEUE_H

#include "backends/emulated/device.h"

td_status *td_emulated_queue_open(td_device *device, const td_queue_options *options, td_queue **out_queue) TD_MUST_USE;
void td_emulated_queue_close(td_queue *queue);
td_status *td_emulated_copy_to_device(td_queue *queue, void *device_memory, const void *host_memory,
                                      size_t bytes) TD_MUST_USE;
td_status *td_emulated_copy_to_host(td_queue *queue, void *host_memory, const void *device_memory,
                                    size_t bytes) TD_MUST_USE;
td_status *td_emulated_copy_ranges(td_queue *queue, const td_copy_range *ranges, int32_t n) TD_MUST_USE;
td_status *td_emulated_record(td_event *event, td_queue *queue) TD_MUST_USE;
td_status *td_emulated_queue_wait(td_queue *queue, td_event *event) TD_MUST_USE;
td_status *td_emulated_kernel_run(td_queue *queue, td_kernel *kernel, const td_kernel_call *call) TD_MUST_USE;

#endif
