/* Loss over two directions in the space of all weights, through one point of it, by forward passes only.
 *
 * Along a training: the directions are the two principal ones of the weights at some of its steps, about the last of them (Li, Xu,
 * Taylor, Studer, Goldstein, "Visualizing the loss landscape of neural nets", 2018, section 7); so the path is seen as large as any
 * plane can show it, and `explained` says how much of it that is. Around one point: two random directions whose rows (filters) are
 * as long as the point's own ("filter-normalised", section 4); parameters of one dimension stay as they are.
 *
 * All sums are of doubles, in a fixed order; random numbers depend on (seed, name of the parameter) alone. */
#ifndef TANDEM_CLI_LANDSCAPE_H
#define TANDEM_CLI_LANDSCAPE_H

#include <jansson.h>

#include "base/safetensors.h"
#include "cli/loss_probe.h"

/* A point, two directions and, of a training, its path. */
typedef struct td_plane {
    float *centre, *first, *second; /* [the probe's elements] each */
    double *x, *y;                  /* [n] of the path, in units of the directions */
    int32_t n;
    double explained[2]; /* the share of the path's squared distances that each direction has */
    bool random[2];      /* drawn by chance, for there was no path to follow */
} td_plane;

/* Of weights in n files, in order; about the last one. TD_DATA_ERROR where one has not the model's parameters. */
td_status *td_plane_of_path(const td_loss_probe *probe, td_safetensors *const *files, int32_t n, uint64_t seed,
                            td_plane *out_plane) TD_MUST_USE;
/* Around the weights in one file. */
td_status *td_plane_around(const td_loss_probe *probe, td_safetensors *file, uint64_t seed,
                           td_plane *out_plane) TD_MUST_USE;
void td_plane_deinit(td_plane *plane);

/* size x size losses over the plane: rows of y, from the least; "x", "y", "loss" (null where it is not finite). The grid holds the
 * path with three tenths of its width around it; without a path, from -1 to 1. */
td_status *td_landscape_draw(td_loss_probe *probe, const td_plane *plane, int32_t size, json_t **out_json) TD_MUST_USE;

/* Eigenvalues, from the largest, and eigenvectors (rows) of a symmetric n x n matrix, which is lost: Jacobi's rotations. */
void td_symmetric_eigen(double *matrix, int32_t n, double *out_values, double *out_vectors);

#endif
