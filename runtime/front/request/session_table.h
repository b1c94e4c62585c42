/* Sessions: state that models keep between requests. Each is a sequence of requests for one version of a model by one tenant, under an id that the client chooses.
 *
 *   start ─> take ─(run)─> store ─> give ─> take ─(run)─> store ─> give(ends)
 *                 └ failed: give; what is stored stays as it was
 *
 * Its tensors lie in the tensor slab, where every worker reads them: any worker may compute the next token, and one that dies takes nothing along.
 *
 * K1: at most one request of a session is under way; a second one is refused (EBUSY).
 * K2: what is stored changes with the end of a run that succeeded, all tensors at once.
 * K3: bounded: max_sessions; bytes of all and of one tenant's; a session that nothing used for idle_ns ends.
 * K4: a session ends with its model: when the version is gone, or replaced by other content.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_REQUEST_SESSION_TABLE_H
#define SY_RUNTIME_FRONT_REQUEST_SESSION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/state_pairs.h"
#include "runtime/base/clock.h"
#include "runtime/front/request/front.h"

#define SY_SESSION_ID 128 /* bytes of an id, with its end */

struct sy_session_limits {
    int max_sessions; /* 0: 1024 */
    uint64_t bytes;   /* of all sessions; 0: three quarters of the slab */
    /* of one tenant's sessions (those without a tenant count as one); 0: half of the slab */
    uint64_t tenant_bytes;
    sy_ns idle_ns; /* 0: 60 s */
};

struct sy_session_tensor {
    uint64_t at, bytes; /* in the slab, the session's */
    int64_t dims[SY_MAX_RANK];
};

struct sy_session {
    struct sy_session *next;
    char id[SY_SESSION_ID], model[SY_CORE_MODEL_NAME], tenant[SY_CORE_TENANT_NAME];
    int64_t version;
    uint64_t content; /* the package's content_hash */
    bool is_busy, is_stored;
    sy_ns used_ns;
    sy_ns idle_ns; /* it ends after so long */
    uint64_t bytes, n_runs;
    uint64_t wants; /* bytes that the current request will leave */
    int n_pairs;
    struct sy_state_pair pairs[SY_MAX_ENDS];
    struct sy_session_tensor tensors[SY_MAX_ENDS]; /* one a pair, once is_stored */
};

struct sy_sessions;

/* State pairs of the model, at most `most`, by its configuration or else by names. Returns their number. */
int sy_session_pairs(const struct sy_core_model_ref *model, struct sy_state_pair *pairs, int most);

/* limits: NULL for the usual ones. ENOMEM_HOST. `front` has base, core and handlers set and outlives the table. */
int sy_sessions_create(struct sy_front *front, const struct sy_session_limits *limits,
                       struct sy_sessions **out);
/* Gives all memory back to the slab, before the core goes: nothing is taken or stored from then on. NULL is fine. */
void sy_sessions_close(struct sy_sessions *sessions);
/* After the last request has ended. Closes first, if it was not. NULL is fine. */
void sy_sessions_destroy(struct sy_sessions *sessions);

/* The session, busy until it is given. start: a new one; what an idle one of this id had stored is dropped. EARG: an id that is too long;
 * ENOTFOUND: there is none, or it ended; EBUSY: a request of it is under way, or there are too many; EUNSUPPORTED: the model keeps no state. */
int sy_sessions_take(struct sy_sessions *sessions, const struct sy_core_model_ref *model,
                     const char *tenant, const char *id, bool start, struct sy_session **out);
/* Whether it may store so many bytes. EBUSY: with what others have, and the limit. */
int sy_sessions_check_room(const struct sy_sessions *sessions, struct sy_session *session,
                           uint64_t bytes);
/* The run's results, n_pairs of them, are the session's now, with their slab memory; what it had is released. False: the table is closed, nothing was taken. */
bool sy_sessions_store(struct sy_sessions *sessions, struct sy_session *session,
                       const struct sy_session_tensor *tensors);
/* The request is over. One that stored nothing, or ends, is no more. */
void sy_sessions_give(struct sy_sessions *sessions, struct sy_session *session, bool ends);

/* Ends an idle session without a request. ENOTFOUND; EBUSY. tenant: "" for none. */
int sy_sessions_end(struct sy_sessions *sessions, const char *model, const char *tenant,
                    const char *id);
/* [{"model", "version", "tenant", "id", "bytes", "runs", "idle_s", "busy"}], the caller's. ENOMEM_HOST. */
int sy_sessions_list(const struct sy_sessions *sessions, json_t **out);

#endif
