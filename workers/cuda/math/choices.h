/* Which algorithm computes which description, as measured on one kind of device: a table that travels as text in a package's profile.
 * No CUDA here. One thread. */
#ifndef SY_WORKERS_CUDA_MATH_CHOICES_H
#define SY_WORKERS_CUDA_MATH_CHOICES_H

#include <stddef.h>
#include <stdint.h>

#define SY_CHOICE_DATA  64 /* cublasLtMatmulAlgo_t */
#define SY_CHOICE_WORDS 40 /* of a description with a batch size, at most */

struct sy_choice {
    uint64_t key; /* of the description: sy_choices_key */
    int32_t way, algo, math_type;
    unsigned char data[SY_CHOICE_DATA];
};

struct sy_choices;

/* label: one line that names device and library versions; what was measured under another is of no use. */
int sy_choices_create(const char *label, struct sy_choices **out);
void sy_choices_destroy(struct sy_choices *choices); /* NULL is fine */
uint64_t sy_choices_key(const int64_t *words, size_t n);
/* Valid until the next put or read; NULL: none. */
const struct sy_choice *sy_choices_find(const struct sy_choices *choices, uint64_t key);
/* Replaces the one with this key. */
int sy_choices_put(struct sy_choices *choices, const struct sy_choice *choice);
/* For a description whose word `batch_word` is or holds the batch size. find: the choice for this batch size, else for another. put: stores it for both
 * (`choice` needs no key). */
const struct sy_choice *sy_choices_find_any(const struct sy_choices *choices, const int64_t *words,
                                            size_t n, size_t batch_word);
int sy_choices_put_any(struct sy_choices *choices, const int64_t *words, size_t n,
                       size_t batch_word, struct sy_choice *choice);
/* First line the label, then a line a choice. malloc'd, the caller's. */
int sy_choices_write(const struct sy_choices *choices, char **out);
/* Adds what the text holds; what is there already stays. EUNSUPPORTED: measured under another label, which is named; ECORRUPT names the
 * line. Then nothing is added. */
int sy_choices_read(struct sy_choices *choices, const char *text);

#endif
