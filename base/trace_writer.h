/* Writing a trace file, chunk by chunk: see trace_format.h. What was written before an error, or before the process ended, can be
 * read; that is why it stands under its final name from the beginning. One thread at a time. */
#ifndef TANDEM_BASE_TRACE_WRITER_H
#define TANDEM_BASE_TRACE_WRITER_H

#include "base/trace_format.h"
#include "tandem/status.h"

typedef struct td_trace_writer td_trace_writer;

/* A new file; an error where there is one already. */
td_status *td_trace_writer_open(const char *path, td_trace_writer **out_writer) TD_MUST_USE;
td_status *td_trace_write(td_trace_writer *writer, trace_chunk_type type, const void *payload,
                          uint64_t bytes) TD_MUST_USE;
/* Records of one thread; a THREAD chunk comes before its first ones. */
td_status *td_trace_write_records(td_trace_writer *writer, uint32_t thread, const char *name, const td_record *records,
                                  uint32_t n, uint64_t dropped) TD_MUST_USE;
td_status *td_trace_write_clock(td_trace_writer *writer) TD_MUST_USE;
/* Hands what is buffered to the operating system. */
td_status *td_trace_writer_flush(td_trace_writer *writer) TD_MUST_USE;
/* Writes END and closes; takes the writer, also when it fails. */
td_status *td_trace_writer_close(td_trace_writer *writer, uint64_t homeless) TD_MUST_USE;
/* Closes without END. NULL is fine. */
void td_trace_writer_abandon(td_trace_writer *writer);

#endif
