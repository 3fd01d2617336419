/* Reading IDX files: see data/idx.h. The header is two zero bytes, a type, a rank, and a big-endian size for each dimension;
 * only type 8, unsigned bytes, is taken. A file must hold what its header says, no less and no more. */
#include "data/idx.h"

#include <errno.h>
#include <limits.h>
#include <zlib.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "base/units.h"

enum { UNSIGNED_BYTES = 8, PIECE = 1 << 20 };

static td_status *read_error(gzFile file, const char *path)
{
    int code = Z_OK;
    const char *message = gzerror(file, &code);
    if (code == Z_ERRNO)
        return td_file_error(path, "read", errno);
    return TD_ERROR(TD_DATA_ERROR, "%s: damaged or cut off: %s", path, message);
}

/* Exactly so many bytes. */
static td_status *read_bytes(gzFile file, const char *path, uint8_t *to, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        const unsigned wanted = (unsigned)(bytes - done < PIECE ? bytes - done : PIECE);
        const int got = gzread(file, to + done, wanted);
        int code = Z_OK;
        (void)gzerror(file, &code);
        if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
            return read_error(file, path);
        if (got == 0)
            return TD_ERROR(TD_DATA_ERROR, "%s: it ends %s before its header says", path,
                            TD_COUNTED(bytes - done, "byte"));
        done += got;
    }
    return NULL;
}

static td_status *read_dims(gzFile file, const char *path, int64_t most, td_idx *out, bool *out_whole)
{
    uint8_t size[4];
    out->item_bytes = 1;
    for (int32_t i = 0; i < out->rank; i++) {
        TD_TRY(read_bytes(file, path, size, 4));
        out->dims[i] = (int64_t)size[0] << 24 | (int64_t)size[1] << 16 | (int64_t)size[2] << 8 | size[3];
        if (i > 0 && (out->dims[i] == 0 || out->dims[i] > INT_MAX / out->item_bytes))
            return TD_ERROR(TD_DATA_ERROR, "%s: dimension %d is %lld; an item must have from 1 to %d bytes", path, i,
                            (long long)out->dims[i], INT_MAX);
        out->item_bytes *= i > 0 ? out->dims[i] : 1;
    }
    *out_whole = most == 0 || out->dims[0] <= most;
    out->dims[0] = *out_whole ? out->dims[0] : most;
    return NULL;
}

static td_status *read_header(gzFile file, const char *path, int32_t least_rank, int32_t most_rank, td_idx *out)
{
    uint8_t magic[4];
    int code = Z_OK;
    const int got = gzread(file, magic, 1);
    (void)gzerror(file, &code);
    if (got == 0 && code == Z_OK && gzoffset(file) == 0) /* nothing was there, not even of a compressed file */
        return td_status_help(TD_ERROR(TD_DATA_ERROR, "%s: it is empty: no IDX header and no rows", path),
                              "data.train and data.test: name files that have some");
    TD_TRY(read_bytes(file, path, magic + (got == 1), got == 1 ? 3 : 4));
    if (magic[0] || magic[1])
        return TD_ERROR(TD_DATA_ERROR, "%s: this is no IDX file: it begins with %d, %d instead of two zeros", path,
                        magic[0], magic[1]);
    if (magic[2] != UNSIGNED_BYTES)
        return TD_ERROR(TD_DATA_ERROR, "%s: its elements are of type %d; only unsigned bytes (%d) are read", path,
                        magic[2], UNSIGNED_BYTES);
    if (magic[3] < least_rank || magic[3] > most_rank)
        return TD_ERROR(TD_DATA_ERROR, "%s: it has %s; %d to %d are wanted here", path,
                        TD_COUNTED(magic[3], "dimension"), least_rank, most_rank);
    out->rank = magic[3];
    return NULL;
}

static td_status *read_file(gzFile file, const char *path, int32_t least_rank, int32_t most_rank, int64_t most,
                            td_idx *out)
{
    bool whole = false;
    uint8_t beyond;
    TD_TRY(read_header(file, path, least_rank, most_rank, out));
    TD_TRY(read_dims(file, path, most, out, &whole));
    const int64_t bytes = out->dims[0] * out->item_bytes;
    out->data = td_calloc_aligned((size_t)bytes + 1);
    if (!out->data)
        return TD_ERROR(TD_OUT_OF_MEMORY, "%s: out of memory for %lld bytes", path, (long long)bytes);
    TD_TRY(read_bytes(file, path, out->data, bytes));
    if (whole && gzread(file, &beyond, 1) > 0)
        return TD_ERROR(TD_DATA_ERROR, "%s: it goes on after the %s that its header says", path,
                        TD_COUNTED(bytes, "byte"));
    return NULL;
}

td_status *td_idx_read(const char *path, int32_t least_rank, int32_t most_rank, int64_t most, td_idx *out)
{
    *out = (td_idx){0};
    gzFile file = gzopen(path, "rbe");
    if (!file)
        return td_file_error(path, "open", errno);
    td_status *status = read_file(file, path, least_rank, most_rank, most, out);
    (void)gzclose(file); /* only read: nothing is lost here */
    return status;
}

void td_idx_deinit(td_idx *idx)
{
    td_free(idx->data);
    *idx = (td_idx){0};
}
