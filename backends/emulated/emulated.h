/* What the emulated device tells beyond the backend ABI. */
#ifndef TANDEM_BACKENDS_EMULATED_EMULATED_H
#define TANDEM_BACKENDS_EMULATED_EMULATED_H

#include "tandem/backend.h"

extern const td_backend_api td_backend_emulated;

/* Bytes copied so far in each direction by an emulated device. Thread-safe. */
void td_emulated_copied(td_device *device, uint64_t *out_to_device, uint64_t *out_to_host);

#endif
