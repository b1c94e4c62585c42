/* Who may do what: tokens of a file, callers without one, and callers of the Unix socket.
 *
 *   token file, --page-token ─> SHA-256 of each ──┐
 *   "authorization: Bearer", method "auth" ───────┴─> grant {rights, tenant}     compared with all of them, each in constant time
 *   SO_PEERCRED of the Unix socket ────────────────> grant
 *   no token ──────────────────────────────────────> what --anonymous says
 *
 * A line of the token file: NAME TOKEN RIGHTS [tenant=TENANT]; '#' begins a comment. RIGHTS: infer, models, jobs, admin, joined by commas. A token is 16 to
 * 256 characters without a space. The file is read again when it changes, looked at once a second at most; one that cannot be read then leaves what was
 * there, and says so in the log.
 *
 * A1: a token is never kept, only its SHA-256, and never logged; its NAME is.
 * A2: each right includes reading (status, metadata, metrics); admin includes all, and alone paths outside the models' folder.
 * A3: a grant is looked up again after the file changed: a token that was taken out of it ends with the next request, also on open connections,
 *     with the next message of a stream or its next tick (a second), and with the next tick of the page's events.
 * A4: a token of one tenant acts on what is that tenant's: its requests, sessions and jobs. Models, policy and traces are shared by all, and need a token
 *     without tenant=. It may read all that others may read.
 *
 * One thread, the event loop's. */
#ifndef SY_FRONT_ACCESS_H
#define SY_FRONT_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/core/core_handlers.h"

#define SY_RIGHT_READ     1u  /* status, metadata, metrics */
#define SY_RIGHT_INFER    2u  /* requests, sessions, shared memory */
#define SY_RIGHT_MODELS   4u  /* load, unload, evict */
#define SY_RIGHT_JOBS     8u  /* submit, stop, pause, move */
#define SY_RIGHT_SETTINGS 16u /* policy, tenants, traces, logs, drain */
#define SY_RIGHT_PATHS    32u /* of files outside the models' folder */
#define SY_RIGHTS_ALL     63u
/* Rights on what all tenants share: a token of one tenant never has them, whatever its line says. */
#define SY_RIGHTS_SHARED (SY_RIGHT_MODELS | SY_RIGHT_SETTINGS)
/* In tables of methods and routes: allowed without a token. A row that states no right is denied to all. */
#define SY_RIGHT_ANYBODY 0x80000000u
/* On loopback without a token file: all but foreign paths. */
#define SY_RIGHTS_LOOPBACK (SY_RIGHTS_ALL & ~SY_RIGHT_PATHS)

#define SY_ACCESS_NAME 64

struct sy_access;

struct sy_access_config {
    const char *token_file; /* NULL: none */
    const char *page_token; /* one more token with all rights; NULL: none */
    /* rights of callers without a token, or "none"; NULL: as set by sy_access_create */
    const char *anonymous;
    const char *socket_rights; /* of other users on the Unix socket; NULL: infer,models,jobs */
};

/* The rights of one caller. A zeroed grant allows nothing. */
struct sy_grant {
    unsigned rights;
    char tenant[SY_CORE_TENANT_NAME]; /* the only one that it may name; "": any */
    char name
        [SY_ACCESS_NAME]; /* name of the token; "": none was given, or it is unknown to this server */
    bool is_unknown;      /* a token was given that this server has not, or no longer */
    uint64_t generation;
    unsigned char digest[32];
};

/* EARG: an option or a line of the file, named; ENOTFOUND, EIO: the file. Without a token file callers without a token have SY_RIGHTS_LOOPBACK, with one
 * none, unless config.anonymous says otherwise. */
int sy_access_create(const struct sy_access_config *config, struct sy_access **out);
void sy_access_destroy(struct sy_access *access); /* NULL is fine */

/* May this server listen on `address` (HOST:PORT)? Beyond this machine only where callers need tokens, or --anonymous was said. EDENIED in words. */
int sy_access_check_listen(const struct sy_access *access, const char *option, const char *address);

/* Each fills in *grant. access NULL: everything is allowed (tests of front ends alone). */
void sy_access_anonymous(struct sy_access *access, struct sy_grant *grant);
/* EDENIED: there is no such token. */
int sy_access_token(struct sy_access *access, const char *token, size_t n, struct sy_grant *grant);
/* The value of an HTTP authorization header: "Bearer TOKEN", or "Basic" with the token as password; NULL: anonymous. EDENIED. */
int sy_access_header(struct sy_access *access, const char *value, struct sy_grant *grant);
/* The grant of a connected Unix socket's peer: everything for this process's user and root. EDENIED: the kernel does not name the peer. */
int sy_access_peer(struct sy_access *access, int fd, struct sy_grant *grant);
/* A3: before each request of a persistent connection. */
void sy_access_refresh(struct sy_access *access, struct sy_grant *grant);

/* EDENIED, with the right that lacks and whose it is; SY_OK where `right` is SY_RIGHT_ANYBODY, or held. No grant holds 0. */
int sy_access_need(const struct sy_grant *grant, unsigned right);
/* The same of a protocol with headers: who sent no token is told how to send one. */
int sy_access_need_header(const struct sy_grant *grant, unsigned right);
/* The tenant that a request runs for: `asked` ("" or NULL: none), or the token's. EDENIED: another than the token's. */
int sy_access_tenant(const struct sy_grant *grant, const char *asked, const char **out);

/* A4: whether the caller may act on this job. EDENIED: it is another tenant's, or nobody's; ENOTFOUND. */
int sy_access_job(const struct sy_grant *grant, const struct sy_core_handlers *handlers, void *core,
                  uint64_t job);

/* "infer,jobs" -> bits; "none" -> 0. EARG. */
int sy_access_parse_rights(const char *text, unsigned *out);

#endif
