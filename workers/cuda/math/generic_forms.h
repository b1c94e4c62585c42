/* Fills in what a formula needs beside its arrays (struct sy_math_generic's `as`, items) from a node's attributes and shapes: a function for
 * each form, split as the kernels are: generic_elements.c, generic_lines.c, generic_windows.c (samples between places too), generic_run.c, generic_signal.c. */
#ifndef SY_WORKERS_CUDA_MATH_GENERIC_FORMS_H
#define SY_WORKERS_CUDA_MATH_GENERIC_FORMS_H

#include "workers/cuda/math/generic.h"

/* Types and shapes are checked already, strides are the arrays' own, `items` the first result's elements. EUNSUPPORTED: names the node. */
typedef int sy_generic_fill_fn(const struct sy_node *node, struct sy_math_generic *e);

sy_generic_fill_fn sy_generic_fill_one, sy_generic_fill_pair, sy_generic_fill_where,
    sy_generic_fill_fill, sy_generic_fill_triangle, sy_generic_fill_reverse, sy_generic_fill_random,
    sy_generic_fill_pad, sy_generic_fill_running_sum, sy_generic_fill_top,
    sy_generic_fill_gather_tuples, sy_generic_fill_scatter_along, sy_generic_fill_scatter_tuples,
    sy_generic_fill_line, sy_generic_fill_reduction, sy_generic_fill_batch, sy_generic_fill_norm,
    sy_generic_fill_neighbours, sy_generic_fill_loss, sy_generic_fill_dynamic,
    sy_generic_fill_resize, sy_generic_fill_einsum, sy_generic_fill_matmul,
    sy_generic_fill_quantize, sy_generic_fill_window, sy_generic_fill_sample,
    sy_generic_fill_region, sy_generic_fill_pixel_region, sy_generic_fill_unpool,
    sy_generic_fill_view, sy_generic_fill_expand, sy_generic_fill_tile, sy_generic_fill_slice,
    sy_generic_fill_split, sy_generic_fill_run_pad, sy_generic_fill_non_zero,
    sy_generic_fill_compress, sy_generic_fill_unique, sy_generic_fill_suppress,
    sy_generic_fill_taper, sy_generic_fill_dft, sy_generic_fill_det;

int sy_generic_refuse(const struct sy_node *node, const char *what);
/* Which of the texts (NULL ends them) the attribute is; the first without it. EUNSUPPORTED names the text. */
int sy_generic_choose(const struct sy_node *node, const char *name, const char *const *texts,
                      int *which);
/* n numbers of 8 bytes for the kernel itself. */
void sy_generic_take_room(struct sy_math_generic *e, int64_t n);
/* The product of dims [first, end). */
int64_t sy_generic_extent(const struct sy_generic_array *a, int first, int end);
/* NULL: left out. */
const struct sy_generic_array *sy_generic_input(const struct sy_math_generic *e, int i);
/* The first n inputs seen with the result's dims, by numpy's rule. */
int sy_generic_spread(const struct sy_node *node, struct sy_math_generic *e, int n);

#endif
