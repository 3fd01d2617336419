/* The pictures that tandem landscape has drawn of a run. */
#include "base/memory.h"
#include "board/board.h"

TD_BOARD_HANDLER(get_landscape)
{
    enum { MOST_BYTES = 64 << 20 };
    td_board_run *run = NULL;
    char *data = NULL;
    size_t bytes = 0;
    TD_TRY(td_board_run_of(board, request, &run));
    char *path = td_format("%s/landscape/landscape.json", run->path);
    td_status *status = path ? td_board_read_file(board->folder, path, MOST_BYTES, 0, &data, &bytes)
                             : TD_ERROR(TD_OUT_OF_MEMORY, "out of memory for a path");
    td_free(path);
    if (td_status_code(status) == TD_NOT_FOUND)
        status = td_status_help(status, "train with landscape.intervals, then: tandem landscape RUN");
    TD_TRY(status);
    json_error_t error = {0};
    json_t *json = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
    td_free(data);
    if (!json_is_array(json_object_get(json, "landscapes")))
        status = TD_ERROR(TD_DATA_ERROR, "landscape.json:%d: %s", error.line,
                          error.text[0] ? error.text : "there are no landscapes in it");
    if (!status)
        return td_board_put_json(out, json);
    json_decref(json);
    return status;
}
