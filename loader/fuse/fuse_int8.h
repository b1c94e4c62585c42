/* Shared by the passes of 8-bit numbers (fuse_int8.c, fuse_int8_sums.c). */
#ifndef SY_LOADER_FUSE_FUSE_INT8_H
#define SY_LOADER_FUSE_FUSE_INT8_H

#include "loader/fuse/fuse.h"

/* Deepest sum of products of 8 bits, zero points taken off: 255 * 255 * 32768 fits 32 bits. */
#define SY_INT8_DEEPEST 32768

/* value = (number - zero) * scale */
struct sy_quantization {
    float scale;
    int64_t zero;
};

/* For a QuantizeLinear or DequantizeLinear whose 8-bit side is `narrow`: true if scale and zero point are one constant each. */
bool sy_quantization_read(const struct sy_fuse *f, const struct sy_node *node, int narrow,
                          struct sy_quantization *out);
/* The zero point alone: constant, the same for all. */
bool sy_quantization_zero(const struct sy_fuse *f, const struct sy_node *node, int narrow,
                          int64_t *out);

/* A pass, and each tensor's reader (one of them; -1: none). */
struct sy_fuse_int8 {
    struct sy_fuse *f;
    int *reader;
};
/* The only node that reads `tensor`; NULL where there are none or more. */
struct sy_node *sy_fuse_int8_reader(const struct sy_fuse_int8 *s, int tensor);
int sy_fuse_int8_run(struct sy_fuse *f, int (*pass)(struct sy_fuse_int8 *s));

#endif
