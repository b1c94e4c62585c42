/* What lies where in a host image: one record a group of layers, in shared memory, so that it outlives the runtime that wrote it.
 *
 *   | head (4096 B): magic, version, image_bytes, measured link | record | record | ...
 *
 * IB1: a record is dropped before the first byte that it covers is overwritten, and noted after the last was verified. A runtime that is killed in
 *      between leaves a book that says too little, never too much.
 * IB2: a record names its bytes by the package's content hash, which covers the hash of each layer: a changed package has other records. Whoever
 *      takes bytes over verifies them (sy_package_verify), so what a record says wrongly costs a read and no more.
 *
 * Pure over the memory that it is given. One thread. */
#ifndef SY_RUNTIME_KEEPER_IMAGE_BOOK_H
#define SY_RUNTIME_KEEPER_IMAGE_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#define SY_IMAGE_BOOK_RECORDS 16384
#define SY_IMAGE_BOOK_DEVICE  200 /* bytes of a device's description, with its end */

struct sy_image_book_head;
struct sy_image_record;

struct sy_image_book {
    struct sy_image_book_head *head;
    struct sy_image_record *records;
    int n_used; /* records behind these are free */
};

struct sy_image_group {
    uint64_t content_hash;  /* hash of its package */
    uint64_t offset, bytes; /* in the image */
    uint32_t first_layer, n_layers;
};

/* The measured link (loader/plan/plan.h). */
struct sy_image_link {
    double values[4];
};

uint64_t sy_image_book_bytes(void);
/* An empty book in zeroed, page-aligned memory of sy_image_book_bytes. The memory stays the caller's. */
void sy_image_book_start(struct sy_image_book *book, void *memory, uint64_t image_bytes);
/* Takes over a book that another process wrote. Records that are torn or lie outside of the image are dropped. ECORRUPT: it is no book of this version,
 * or of an image of another size; the memory is as before. */
int sy_image_book_take(struct sy_image_book *book, void *memory, uint64_t image_bytes);
/* Drops each record that covers any of these bytes. */
void sy_image_book_drop(struct sy_image_book *book, uint64_t offset, uint64_t bytes);
/* The group's bytes lie there, verified. A full book forgets it: it will be read again. */
void sy_image_book_note(struct sy_image_book *book, const struct sy_image_group *group);
bool sy_image_book_has(const struct sy_image_book *book, const struct sy_image_group *group);
/* The place of the group with this hash, layers and bytes; false: the image does not hold it. */
bool sy_image_book_find(const struct sy_image_book *book, const struct sy_image_group *group,
                        uint64_t *out_offset);
/* Drops all records that is_known refuses, and shows each. Returns how many. */
int sy_image_book_filter(struct sy_image_book *book,
                         bool (*is_known)(void *ctx, const struct sy_image_group *group),
                         void (*dropped)(void *ctx, uint64_t offset, uint64_t bytes), void *ctx);
int sy_image_book_n(const struct sy_image_book *book);

/* A measured link stays right as long as this machine runs; `device` is its description. False: not known. */
void sy_image_book_set_link(struct sy_image_book *book, const char *device,
                            const struct sy_image_link *link);
bool sy_image_book_link(const struct sy_image_book *book, const char *device,
                        struct sy_image_link *out);

#endif
