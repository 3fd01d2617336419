/* The files that a checkpoint's manifest lists, each checked against what it says of them before anything is read of it. */
#ifndef TANDEM_RUNTIME_CHECKPOINT_FILES_H
#define TANDEM_RUNTIME_CHECKPOINT_FILES_H

#include "runtime/checkpoint.h"

typedef struct td_checkpoint_files {
    td_safetensors **items;
    size_t n;
} td_checkpoint_files;

/* Puts "checkpoint DIRECTORY" before a message; the folder is not named again where the message begins with a file of it. */
td_status *td_checkpoint_prefix(td_status *status, const char *directory);
/* TD_DATA_ERROR: a file that is cut off, damaged, or of another checkpoint. */
td_status *td_checkpoint_files_open(const char *directory, const json_t *manifest,
                                    td_checkpoint_files *out_files) TD_MUST_USE;
void td_checkpoint_files_close(td_checkpoint_files *files);
/* The first tensor of that name, and its file; NULL: there is none. */
const td_safetensors_tensor *td_checkpoint_files_find(const td_checkpoint_files *files, const char *name,
                                                      const td_safetensors **out_file);

#endif
