/* State of all front ends: the core behind a table of functions, and what is kept between requests.
 *
 *   rpc/  http/  grpc/            bytes of a protocol
 *      \   |    /
 *   front_infer.h                 one inference request: checked against its model, its tensors in the slab or a region
 *          |
 *   struct sy_core_handlers      runtime/core/core.h, or a fake in tests
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/core/core_handlers.h"
#include "runtime/metrics/refusal.h"

#define SY_FRONT_ROOMS 16 /* models whose learned output sizes are kept */

struct event_base;
struct sy_repository;
struct sy_arrivals;
struct sy_front_stats;
struct sy_offload;
struct sy_shared_regions;
struct sy_otlp;
struct sy_trace_settings;
struct sy_sessions;
struct sy_access;
struct sy_tls;

/* The caller's memory, zeroed but for what the caller sets; outlives the front ends. */
struct sy_front {
    struct event_base *base;
    const struct sy_core_handlers *handlers;
    void *core;
    struct sy_repository *repository;         /* NULL: models are what the core has */
    struct sy_arrivals *arrivals;             /* NULL: no package is fetched */
    struct sy_front_stats *stats;             /* NULL: not counted */
    struct sy_otlp *otlp;                     /* NULL: no traces are sent */
    struct sy_trace_settings *trace_settings; /* NULL: all requests are traced */
    struct sy_refusals refused;               /* of requests that never reached the core */
    struct sy_offload *offload; /* threads for what takes longer than a millisecond (http, grpc) */
    /* one thread, in order, for files of jobs that move; NULL: on the loop */
    struct sy_offload *moves;
    struct sy_shared_regions *regions; /* system shared memory of clients; NULL: not served */
    struct sy_sessions *sessions; /* state that models keep between requests; NULL: none is kept */
    /* minimum rate of a body or an answer; 0: SY_LEAST_BYTES_PER_S (least_rate.h) */
    uint64_t least_bytes_per_s;
    int64_t string_bytes;     /* most of one request's strings; 0: SY_FRONT_STRING_BYTES */
    struct sy_access *access; /* access control; NULL: everybody may do everything */
    struct sy_tls *tls;       /* of what listens on TCP; NULL: plain */
    /* where paths of callers without the right to others lie; NULL: nowhere */
    const char *models_folder;
    /* the core's state folder; NULL: none, and jobs from other servers are rejected */
    const char *state_folder;
    /* Calls `change` for each path of a job's JSON, its object and key; NULL: jobs of such callers are refused. */
    void (*job_paths)(json_t *job, void (*change)(json_t *object, const char *name, void *ctx),
                      void *ctx);
    bool is_ready; /* the startup models are loaded, and the server is not draining */
    struct sy_front_room {
        uint64_t content; /* the package's content_hash; 0: none */
        int64_t times;
    } rooms
        [SY_FRONT_ROOMS]; /* output sizes learned from earlier runs; requests of these models begin with them */
    int next_room;
};

#endif
