/* Trace files: any bytes are a trace or an error, and every trace can be analysed, or is an error. The first byte says whether the
 * checksums of chunks are put right, the rest is the file. */
#include "tests/fuzz/fuzz.h"

#include "base/hash.h"
#include "base/memory.h"
#include "profiler/report.h"
#include "tests/profiler/made_trace.h"

enum { ROOM = 1 << 16 };
const char *const fuzz_words[] = {TRACE_MAGIC, "\"first_id\":", "\"subgraph\":", "\"after\":[", "-1", "99999", "[]",
                                  NULL};

static void put_checksums_right(uint8_t *bytes, size_t size)
{
    trace_chunk chunk;
    for (size_t at = sizeof(trace_header); at + sizeof chunk <= size;) {
        memcpy(&chunk, bytes + at, sizeof chunk);
        if (chunk.bytes > size - at - sizeof chunk)
            return;
        chunk.checksum = td_hash_bytes(bytes + at + sizeof chunk, (size_t)chunk.bytes, chunk.type);
        memcpy(bytes + at, &chunk, sizeof chunk);
        at += sizeof chunk + (((size_t)chunk.bytes + 7) & ~(size_t)7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[ROOM];
    td_trace *trace = NULL;
    td_analysis *analysis = NULL;
    json_t *json = NULL;
    if (size < 1 || size > ROOM)
        return 0;
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1)
        put_checksums_right(bytes, size - 1);
    td_status *status = td_trace_parse(bytes, size - 1, "fuzz.tdt", &trace);
    FUZZ_CHECK((status == NULL) == (trace != NULL));
    if (!status)
        status = td_analysis_create(trace, -1, &analysis);
    if (!status)
        status = td_report_json(analysis, &json);
    json_decref(json);
    json = NULL;
    if (!status)
        status = td_report_curves_json(analysis, 0, INT64_MAX, &json);
    json_decref(json);
    json = NULL;
    if (!status)
        status = td_report_step_json(analysis, analysis->steps->steps[0].step, &json);
    (void)fuzz_take(status);
    json_decref(json);
    td_analysis_destroy(analysis);
    td_trace_destroy(trace);
    return 0;
}

size_t fuzz_seed(int index, uint8_t *buffer, size_t room)
{
    if (index > 1)
        return 0;
    char path[256];
    (void)snprintf(path, sizeof path, "%s", fuzz_path("seed.tdt"));
    made m = made_defaults();
    m.steps = 2;
    made_file(path, &m);
    buffer[0] = (uint8_t)!index;
    return 1 + fuzz_read(path, buffer + 1, room - 1);
}
