/* Keys of a job file: one table a section, from which come checks, messages, defaults and storage. Private to job*.c. */
#ifndef SY_WORKERS_JOB_JOB_KEYS_H
#define SY_WORKERS_JOB_JOB_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum key_kind {
    KIND_TEXT,   /* char * */
    KIND_PATH,   /* char *, absolute after sy_job_load */
    KIND_TEXTS,  /* char **, ends with NULL; an empty list is refused */
    KIND_COUNT,  /* uint64_t */
    KIND_NUMBER, /* double */
    KIND_FLAG,   /* bool */
    KIND_OBJECT, /* a section of its own */
    KIND_OWN     /* checked and taken elsewhere */
};

#define KEY_NEEDED      1u
#define KEY_OF(variant) (2u << (variant))

struct key {
    const char *section; /* "" at the top */
    const char *name;
    enum key_kind kind;
    uint32_t
        flags; /* KEY_NEEDED; KEY_OF(variant)...: only these variants of the section have the key, none: all */
    size_t offset; /* in the struct that the table fills; SIZE_MAX: checked, not stored */
    double low, high;
    double otherwise;
};

/* Whether the section's variant has the key. */
bool sy_job_keys_has(const struct key *key, int variant);
/* Nothing but keys of this section and variant in the object; EARG names what is not, and the nearest key that is. */
int sy_job_keys_check(const struct key *keys, size_t n, const char *section, int variant,
                      const json_t *object);
/* One key's value, or NULL: its default; EARG if it is needed, of another type or out of range. */
int sy_job_keys_take(const struct key *key, const json_t *value, void *to);
/* Frees texts and paths of a struct that these tables filled (or zeroes). */
void sy_job_keys_free(const struct key *keys, size_t n, void *from);
/* A word of `words` (ends with NULL); a missing value is the first. */
int sy_job_keys_choose(const char *section, const char *name, const json_t *value,
                       const char *const *words, int *out);

#endif
