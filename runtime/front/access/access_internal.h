/* Internals of access. */
#ifndef SY_FRONT_ACCESS_INTERNAL_H
#define SY_FRONT_ACCESS_INTERNAL_H

#include "runtime/base/clock.h"
#include "runtime/front/access/access.h"

#define SY_TOKEN_LEAST      16
#define SY_TOKEN_MOST       256
#define SY_TOKENS_MOST      1024
#define SY_TOKEN_FILE_BYTES (1u << 20)

struct sy_token {
    unsigned char digest[32];
    unsigned rights;
    char name[SY_ACCESS_NAME], tenant[SY_CORE_TENANT_NAME];
};

struct sy_token_list {
    struct sy_token *tokens; /* malloc'd */
    int n;
};

/* ---- access_rights.c ---- */
/* The word of the least right that holds this one. */
const char *sy_access_right_name(unsigned right);

/* ---- token_list.c: pure but for sy_token_file_read ---- */
/* One more of a secret. ENOMEM_HOST, EARG (its length, too many, one that is there). */
int sy_token_list_add(struct sy_token_list *list, const char *name, const char *secret, size_t n,
                      unsigned rights, const char *tenant);
/* All lines of a token file's text. EARG names the line, never the token. */
int sy_token_list_parse(struct sy_token_list *list, const char *text, size_t n);
/* Constant time in which token it is: all are compared. NULL: none. */
const struct sy_token *sy_token_list_find(const struct sy_token_list *list,
                                          const unsigned char digest[32]);
void sy_token_list_finish(struct sy_token_list *list);
void sy_token_digest(const char *secret, size_t n, unsigned char out[32]);
/* EARG, ENOTFOUND, EIO, ETOOBIG. */
int sy_token_file_read(const char *path, struct sy_token_list *list);

#endif
