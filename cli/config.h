/* The configuration of a run: one YAML file, `--set key=value` on top, checked against one table (config.def).
 *
 *     td_config *config = NULL;
 *     TD_TRY(td_config_load("dlrm.yaml", &config));
 *     TD_TRY(td_config_set(config, "train.epochs=2"));
 *     TD_TRY(td_config_resolve(config));                       // every mistake is found here
 *     td_section root = td_config_root(config);
 *     int64_t epochs = td_section_int(root, "train.epochs");
 *
 * Errors name the place: "dlrm.yaml:9:3: ..." or "--set train.epochs: ...". After td_config_resolve each value has the
 * type and range that the table states and each default is filled in, so reading cannot fail. One thread at a time. */
#ifndef TANDEM_CLI_CONFIG_H
#define TANDEM_CLI_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tandem/status.h"

typedef enum td_config_type {
    TD_CONFIG_INT,
    TD_CONFIG_FLOAT,
    TD_CONFIG_BOOL, /* true false on off yes no */
    TD_CONFIG_STRING,
    TD_CONFIG_ENUM,
    TD_CONFIG_SIZE,    /* bytes: 256MiB, 1.5 GB, 4096 */
    TD_CONFIG_RATE,    /* bytes per second: 12GB/s */
    TD_CONFIG_SECONDS, /* 8us, 1.5 s */
    TD_CONFIG_INTS,    /* [64, 32] */
    TD_CONFIG_FLOATS,  /* [0.9, 0.999] */
    TD_CONFIG_STRINGS, /* [age, hours]; one string is a list of one */
    TD_CONFIG_LISTS,   /* [[education, occupation], [gender, occupation]] */
    TD_CONFIG_MAPS     /* [{match: "*", lr: 1e-3}]: its keys are rows of their own, "optimizer[].lr" */
} td_config_type;

/* One row of config.def. Zero fields mean "no such limit". */
typedef struct td_config_key {
    const char *name; /* "train.epochs", "devices[].memory" */
    td_config_type type;
    const char *fallback; /* as it would stand in YAML; NULL: none */
    const char *unit;
    double least, most;  /* inclusive; both 0: no range */
    const char *allowed; /* TD_CONFIG_ENUM: "a|b|c" */
    const char *item;    /* TD_CONFIG_MAPS: the key that a bare string stands for, "cpu" for {name: cpu} */
    const char *when;    /* the key that decides whether this one applies, and its values: "data.format=csv|ratings" */
    bool required;       /* of an item of a list, or wherever `when` holds */
    const char *help;    /* one line */
} td_config_key;

int32_t td_config_key_count(void);
const td_config_key *td_config_key_at(int32_t index);
/* By its name in the table; NULL when there is none. */
const td_config_key *td_config_key_find(const char *name);
const char *td_config_type_name(td_config_type type);

typedef struct td_config td_config;
typedef struct td_config_node td_config_node;

td_status *td_config_load(const char *path, td_config **out_config) TD_MUST_USE;
/* `origin` names the text in errors. */
td_status *td_config_parse(const char *text, size_t bytes, const char *origin, td_config **out_config) TD_MUST_USE;
/* "a.b=c", the value in YAML. Items of lists: "devices[1].memory" or, by their name or match, "devices.accel.memory". */
td_status *td_config_set(td_config *config, const char *assignment) TD_MUST_USE;
/* Checks all of it against the table and fills in defaults. */
td_status *td_config_resolve(td_config *config) TD_MUST_USE;
void td_config_destroy(td_config *config);
/* The file's path as given. */
const char *td_config_origin(const td_config *config);

/* The whole, or one item of a list of maps. */
typedef struct td_section {
    const td_config *config;
    const td_config_node *node;
    const char *key; /* "" or "devices[]" */
} td_section;

td_section td_config_root(const td_config *config);
/* How many items a list has; 0 when the key is absent. */
int32_t td_section_count(td_section section, const char *key);
td_section td_section_item(td_section section, const char *key, int32_t index);
/* True when there is a value: given, or a default. */
bool td_section_has(td_section section, const char *key);
/* True when the file or --set gives it. */
bool td_section_given(td_section section, const char *key);
/* Values; 0, false or NULL when the key has none. Strings live as long as the configuration. */
int64_t td_section_int(td_section section, const char *key);
double td_section_float(td_section section, const char *key);
bool td_section_bool(td_section section, const char *key);
const char *td_section_string(td_section section, const char *key); /* enums too */
int64_t td_section_size(td_section section, const char *key);
double td_section_rate(td_section section, const char *key);
double td_section_seconds(td_section section, const char *key);
int64_t td_section_int_at(td_section section, const char *key, int32_t index);
double td_section_float_at(td_section section, const char *key, int32_t index);
const char *td_section_string_at(td_section section, const char *key, int32_t index);
/* Element `inner` of list `index` of a list of lists; NULL beyond its end. */
const char *td_section_list_at(td_section section, const char *key, int32_t index, int32_t inner);
/* A path: relative to the file that gives it; as it is from --set or when absolute. *out_path is td_free'd by the caller; NULL
 * when the key has no value. */
td_status *td_section_path(td_section section, const char *key, char **out_path) TD_MUST_USE;
/* Where the key (the section itself for "") was written: "dlrm.yaml:14", "--set a.b" or "default"; into buffer. */
const char *td_section_place(td_section section, const char *key, char *buffer, size_t bytes);
/* An error about the value of a key: "dlrm.yaml:14:3: <message>". */
#define TD_SECTION_ERROR(section, key, ...) td_section_error(__FILE__, __LINE__, (section), (key), __VA_ARGS__)
td_status *td_section_error(const char *file, int line, td_section section, const char *key, const char *format, ...)
    TD_PRINTF(5, 6) TD_MUST_USE;

/* The resolved configuration as YAML, each value with where it came from. It loads again to the same values. */
void td_config_print(const td_config *config, FILE *stream);
/* Help from the table: NULL: sections; a section: its keys; a key: all about it. Unknown: an error with the nearest. */
td_status *td_config_explain(const char *key, FILE *stream) TD_MUST_USE;

#endif
