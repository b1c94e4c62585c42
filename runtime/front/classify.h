/* Triton's classification extension: the best K classes of each row of a result, as texts "value:index", or "value:index:label". Pure. */
#ifndef SY_RUNTIME_FRONT_CLASSIFY_H
#define SY_RUNTIME_FRONT_CLASSIFY_H

#include "runtime/front/request/front_infer.h"

#define SY_CLASSIFY_TEXT 192 /* bytes of one, with its end; a longer label is cut */

#define SY_CLASSIFY_MOST 65536 /* of all rows */

struct sy_class_labels;

struct sy_classes {
    int64_t rows, k; /* shape [rows, k], or [k] if !has_rows */
    bool has_rows;
    char (*texts)[SY_CLASSIFY_TEXT]; /* rows * k, malloc'd */
};

/* As a tensor of BYTES: each text behind its length in 4 bytes, little-endian. */
uint64_t sy_classes_packed_bytes(const struct sy_classes *classes);
void sy_classes_pack(const struct sy_classes *classes, unsigned char *to);

/* sy_classify for output `output` of a finished request, with its model's labels, and rows if its first dimension is open. */
int sy_classify_output(const struct sy_front_infer *infer, int output,
                       const struct sy_front_tensor *tensor, int64_t k, struct sy_classes *out);

/* Classes of output `output` of a model with these labels (NULL: none); its first dimension counts rows if has_rows. k is at most the number of classes. EARG: k < 1, a dtype that has no order; ENOMEM_HOST. The
 * caller frees out->texts. */
int sy_classify(const struct sy_front_tensor *tensor, int output,
                const struct sy_class_labels *labels, bool has_rows, int64_t k,
                struct sy_classes *out);

#endif
