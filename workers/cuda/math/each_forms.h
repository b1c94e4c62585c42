/* Fills in what a formula needs beside its arrays (struct sy_math_each's `as`, items) from a node's attributes and shapes: a function for
 * each form, split as the kernels are: each_elements.c, each_lines.c, each_windows.c (samples between places too), each_run.c, each_signal.c. */
#ifndef SY_WORKERS_CUDA_MATH_EACH_FORMS_H
#define SY_WORKERS_CUDA_MATH_EACH_FORMS_H

#include "workers/cuda/math/each.h"

/* Types and shapes are checked already, strides are the arrays' own, `items` the first result's elements. EUNSUPPORTED: names the node. */
typedef int sy_each_fill_fn(const struct sy_node *node, struct sy_math_each *e);

sy_each_fill_fn sy_each_fill_one, sy_each_fill_pair, sy_each_fill_where, sy_each_fill_fill,
    sy_each_fill_triangle, sy_each_fill_reverse, sy_each_fill_random, sy_each_fill_pad,
    sy_each_fill_running_sum, sy_each_fill_top, sy_each_fill_gather_tuples,
    sy_each_fill_scatter_along, sy_each_fill_scatter_tuples, sy_each_fill_line, sy_each_fill_fold,
    sy_each_fill_batch, sy_each_fill_norm, sy_each_fill_neighbours, sy_each_fill_loss,
    sy_each_fill_dynamic, sy_each_fill_resize, sy_each_fill_einsum, sy_each_fill_matmul,
    sy_each_fill_quantize, sy_each_fill_window, sy_each_fill_sample, sy_each_fill_region,
    sy_each_fill_pixel_region, sy_each_fill_unpool, sy_each_fill_view, sy_each_fill_expand,
    sy_each_fill_tile, sy_each_fill_slice, sy_each_fill_split, sy_each_fill_run_pad,
    sy_each_fill_non_zero, sy_each_fill_compress, sy_each_fill_unique, sy_each_fill_suppress,
    sy_each_fill_taper, sy_each_fill_dft, sy_each_fill_det;

int sy_each_refuse(const struct sy_node *node, const char *what);
int64_t sy_each_attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise);
/* Which of the texts (NULL ends them) the attribute is; the first without it. EUNSUPPORTED names the text. */
int sy_each_choose(const struct sy_node *node, const char *name, const char *const *texts,
                   int *which);
/* n numbers of 8 bytes for the kernel itself. */
void sy_each_take_room(struct sy_math_each *e, int64_t n);
/* The product of dims [first, end). */
int64_t sy_each_extent(const struct sy_each_array *a, int first, int end);
/* NULL: left out. */
const struct sy_each_array *sy_each_input(const struct sy_math_each *e, int i);
/* The first n inputs seen with the result's dims, by numpy's rule. */
int sy_each_spread(const struct sy_node *node, struct sy_math_each *e, int n);

#endif
