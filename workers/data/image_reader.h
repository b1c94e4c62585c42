/* JPEG and PNG files as 8-bit grey or RGB, and resizing. */
#ifndef SY_WORKERS_DATA_IMAGE_READER_H
#define SY_WORKERS_DATA_IMAGE_READER_H

#include <stdbool.h>
#include <stdint.h>

#define SY_IMAGE_MAX_SIDE   32767u
#define SY_IMAGE_MAX_PIXELS (1u << 28)

struct sy_image {
    uint32_t width, height;
    uint32_t channels; /* 1: grey; 3: RGB */
    uint8_t *pixels;   /* [height, width, channels], owned */
};

/* Whether the name ends like a file that is read here: .jpg, .jpeg, .png, in any case. */
bool sy_image_has_name(const char *name);
/* Decodes the whole file; what it is is told by its first bytes. Alpha is laid over black, 16 bits become 8, four inks are mixed. Blocks. Any thread.
 * ENOTFOUND, EIO, ECORRUPT (also a file that ends early), EUNSUPPORTED (neither JPEG nor PNG), ETOOBIG, ENOMEM_HOST name the path. */
int sy_image_read(const char *path, uint32_t channels, struct sy_image *out);
/* Reads the header alone: width and height, no pixels. Errors as sy_image_read. */
int sy_image_read_header(const char *path, struct sy_image *out);
void sy_image_finish(struct sy_image *image); /* NULL is fine */

/* Bilinear, pixel centres at half; when it shrinks, the triangle is as wide as the step, so that nothing is skipped. to: [channels, height,
 * width], planes. ENOMEM_HOST. */
int sy_image_resize(const struct sy_image *image, uint32_t width, uint32_t height, uint8_t *to);

#endif
