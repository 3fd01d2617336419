/* A model from a .tdg file. Its loss is the value called "loss"; its logit the one called "logit" or, without one, what the
 * loss takes as a logit. */
#include <errno.h>
#include <string.h>

#include "base/file_error.h"
#include "base/memory.h"
#include "cli/model.h"
#include "graph/op.h"

static td_status *read_file(const char *path, char **out_text, size_t *out_bytes)
{
    enum { LARGEST = 256 << 20 };
    FILE *file = fopen(path, "rb");
    if (!file)
        return td_file_error(path, "open", errno);
    char *text = NULL;
    size_t capacity = 1 << 16, bytes = 0;
    td_status *status = NULL;
    for (bool more = true; more && !status; capacity *= 2) {
        char *larger = td_realloc(text, capacity, 1);
        if (!larger) {
            status = TD_ERROR(TD_OUT_OF_MEMORY, "%s: no memory for a file of more than %zu bytes", path, bytes);
            break;
        }
        text = larger;
        bytes += fread(text + bytes, 1, capacity - bytes, file);
        more = bytes == capacity;
        if (more && capacity > LARGEST)
            status = TD_ERROR(TD_INVALID_ARGUMENT, "%s: larger than 256 MiB; is it a graph?", path);
    }
    if (!status && ferror(file))
        status = td_file_error(path, "read", errno);
    fclose(file);
    *out_text = text;
    *out_bytes = bytes;
    return status;
}

static td_value logit_of(td_graph *graph, td_value loss)
{
    td_value named = td_graph_find(graph, "logit");
    int32_t producer = graph->values[loss.id].producer;
    if (named.id >= 0 || producer < 0 || strcmp(graph->nodes[producer].op->name, "bce_with_logits"))
        return named;
    return (td_value){graph, graph->nodes[producer].inputs[0]};
}

td_status *td_model_from_file(const char *path, td_graph **out_graph, td_model *out_model)
{
    char *text = NULL;
    size_t bytes = 0;
    td_status *status = read_file(path, &text, &bytes);
    if (!status)
        status = td_graph_parse(text, bytes, path, out_graph);
    td_free(text);
    if (td_status_code(status) == TD_DATA_ERROR) /* a model that is written wrong, not data that is */
        status = td_status_recode(status, TD_INVALID_ARGUMENT);
    TD_TRY(status);
    td_value loss = td_graph_find(*out_graph, "loss");
    if (loss.id >= 0) {
        *out_model =
            (td_model){.loss = loss, .logit = logit_of(*out_graph, loss), .scores = TD_NO_VALUE, .next = TD_NO_VALUE};
        return NULL;
    }
    td_graph_destroy(*out_graph);
    *out_graph = NULL;
    return TD_ERROR(TD_INVALID_ARGUMENT, "%s: no value is called \"loss\"; name the one to train on so", path);
}
