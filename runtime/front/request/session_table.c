#include "runtime/front/request/session_table.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define USUAL_SESSIONS 1024
#define USUAL_IDLE_NS  (60 * SY_NS_PER_S)
#define MODELS_A_SWEEP 64 /* looked up at the core each second: some 20 us */

struct sy_sessions {
    struct sy_front *front;
    struct sy_session_limits limits;
    struct sy_session *first;
    int n;
    bool is_closed;
    struct event *sweep;
    int next_checked; /* the model check goes round, MODELS_A_SWEEP at a time */
};

int sy_session_pairs(const struct sy_core_model_ref *model, struct sy_state_pair *pairs, int most)
{
    if (model->n_states == 0)
        return sy_state_pairs_find(model->package->graph, pairs, most);
    int n = SY_MIN(model->n_states, most);
    memcpy(pairs, model->states, (size_t)n * sizeof *pairs);
    return n;
}

static struct sy_slab *slab_of(const struct sy_sessions *sessions)
{
    return sessions->front->handlers->slab(sessions->front->core);
}

/* ---- ending ---------------------------------------------------------------------------------------------------- */

static void drop_tensors(struct sy_sessions *sessions, struct sy_session *session)
{
    for (int i = 0; session->is_stored && i < session->n_pairs; i++)
        sy_slab_release(slab_of(sessions), session->tensors[i].at);
    session->is_stored = false;
    session->bytes = 0;
}

static void remove_session(struct sy_sessions *sessions, struct sy_session *session)
{
    struct sy_session **at = &sessions->first;

    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    sessions->n--;
    drop_tensors(sessions, session);
    free(session);
}

/* K4: the version is there, with the content that the session began with. */
static bool has_model(const struct sy_sessions *sessions, const struct sy_session *session)
{
    struct sy_front *front = sessions->front;
    struct sy_core_model_ref *ref;
    int found = front->handlers->model_acquire(front->core, session->model, session->version, &ref);

    if (found != SY_OK)
        return found != SY_ENOTFOUND;
    bool same = ref->package->content_hash == session->content;
    front->handlers->model_release(front->core, ref);
    return same;
}

static const char *why_over(struct sy_sessions *sessions, const struct sy_session *session,
                            int place, sy_ns now)
{
    int from = sessions->next_checked;

    if (session->is_busy)
        return NULL;
    if (now - session->used_ns > session->idle_ns)
        return "idle";
    bool is_due = place >= from && place < from + MODELS_A_SWEEP;
    return is_due && !has_model(sessions, session) ? "model_gone" : NULL;
}

static void on_sweep(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_sessions *sessions = ctx;
    struct sy_session *session = sessions->first, *next;
    sy_ns now = sy_clock_now();

    (void)fd, (void)what;
    for (int place = 0; session; session = next, place++) {
        const char *why = why_over(sessions, session, place, now);

        next = session->next;
        if (!why)
            continue;
        sy_log_info("sessions", "event=ended why=%s model=%s id=%s bytes=%llu", why, session->model,
                    session->id, (unsigned long long)session->bytes);
        remove_session(sessions, session);
    }
    sessions->next_checked += MODELS_A_SWEEP;
    if (sessions->next_checked >= sessions->n)
        sessions->next_checked = 0;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static int start_sweep(struct sy_sessions *sessions)
{
    struct timeval second = {1, 0};

    sessions->sweep = event_new(sessions->front->base, -1, EV_PERSIST, on_sweep, sessions);
    if (!sessions->sweep || event_add(sessions->sweep, &second))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the table of sessions");
    return SY_OK;
}

int sy_sessions_create(struct sy_front *front, const struct sy_session_limits *limits,
                       struct sy_sessions **out)
{
    struct sy_sessions *sessions = calloc(1, sizeof *sessions);

    SY_TRY_ALLOC(sessions, "no memory for the table of sessions");
    sessions->front = front;
    if (limits)
        sessions->limits = *limits;
    struct sy_session_limits *l = &sessions->limits;
    uint64_t slab = sy_slab_size(slab_of(sessions));
    l->max_sessions = l->max_sessions ? l->max_sessions : USUAL_SESSIONS;
    l->bytes = l->bytes ? l->bytes : slab / 4 * 3;
    l->tenant_bytes = l->tenant_bytes ? l->tenant_bytes : slab / 2;
    l->idle_ns = l->idle_ns ? l->idle_ns : USUAL_IDLE_NS;
    int status = start_sweep(sessions);
    if (status < 0) {
        sy_sessions_destroy(sessions);
        return status;
    }
    *out = sessions;
    return SY_OK;
}

void sy_sessions_close(struct sy_sessions *sessions)
{
    if (!sessions || sessions->is_closed)
        return;
    sessions->is_closed = true;
    if (sessions->sweep)
        event_free(sessions->sweep);
    for (struct sy_session *session = sessions->first; session; session = session->next)
        drop_tensors(sessions, session);
}

void sy_sessions_destroy(struct sy_sessions *sessions)
{
    sy_sessions_close(sessions);
    while (sessions && sessions->first)
        remove_session(sessions, sessions->first);
    free(sessions);
}

static struct sy_session *find(const struct sy_sessions *sessions, const char *model,
                               const char *tenant, const char *id)
{
    struct sy_session *session = sessions->first;

    while (session && (strcmp(session->id, id) != 0 || strcmp(session->model, model) != 0 ||
                       strcmp(session->tenant, tenant) != 0))
        session = session->next;
    return session;
}

/* ---- taking ---------------------------------------------------------------------------------------------------- */

/* Its tensors are inputs of the next run: their sizes must be known before it. */
static int check_pairs(const struct sy_core_model_ref *model, const struct sy_state_pair *pairs,
                       int n)
{
    const struct sy_graph *graph = model->package->graph;

    if (n == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "the request is part of a sequence, and model \"%s\" keeps nothing "
                            "between requests: no output \"present...\" belongs to an input "
                            "\"past...\"",
                            model->name);
    for (int i = 0; i < n; i++) {
        int output = graph->outputs[pairs[i].output];

        if (sy_graph_is_dynamic(graph, output))
            return sy_error_set(SY_EUNSUPPORTED,
                                "output \"%s\" of model \"%s\" has a size that only a run knows: a "
                                "session cannot keep it",
                                graph->tensors[output].name, model->name);
    }
    return SY_OK;
}

static int add_session(struct sy_sessions *sessions, const struct sy_core_model_ref *model,
                       const char *tenant, const char *id, struct sy_session **out)
{
    struct sy_state_pair pairs[SY_MAX_ENDS];
    int n_pairs = sy_session_pairs(model, pairs, SY_MAX_ENDS);

    SY_TRY(check_pairs(model, pairs, n_pairs));
    if (sessions->n >= sessions->limits.max_sessions)
        return sy_error_set(SY_EBUSY,
                            "%d sessions are open, as many as there may be; end one "
                            "(sequence_end), or try again later",
                            sessions->n);
    struct sy_session *session = calloc(1, sizeof *session);
    SY_TRY_ALLOC(session, "no memory for a session");
    memcpy(session->pairs, pairs, (size_t)n_pairs * sizeof *pairs);
    session->n_pairs = n_pairs;
    strcpy(session->id, id);
    strcpy(session->tenant, tenant);
    strncpy(session->model, model->name, sizeof session->model - 1);
    session->version = model->version;
    session->idle_ns = model->session_idle_ns ? model->session_idle_ns : sessions->limits.idle_ns;
    session->content = model->package->content_hash;
    session->next = sessions->first;
    sessions->first = session;
    sessions->n++;
    *out = session;
    return SY_OK;
}

static int check_version(const struct sy_session *session, const struct sy_core_model_ref *model)
{
    if (session->version != model->version)
        return sy_error_set(SY_EARG,
                            "session %s began with version %lld of model \"%s\", this request got "
                            "version %lld; name the version, or start anew",
                            session->id, (long long)session->version, model->name,
                            (long long)model->version);
    if (session->content != model->package->content_hash)
        return sy_error_set(SY_ENOTFOUND,
                            "version %lld of model \"%s\" was replaced since session %s began; "
                            "start anew (sequence_start)",
                            (long long)model->version, model->name, session->id);
    return SY_OK;
}

static int check_id(const char *id, const char *tenant)
{
    size_t n = strlen(id);

    if (n == 0 || n >= SY_SESSION_ID)
        return sy_error_set(SY_EARG, "a session's id of %zu bytes; 1 to %d are possible", n,
                            SY_SESSION_ID - 1);
    return strlen(tenant) < SY_CORE_TENANT_NAME
               ? SY_OK
               : sy_error_set(SY_EARG, "the tenant's name is too long");
}

static int missing(const struct sy_sessions *sessions, const struct sy_core_model_ref *model,
                   const char *id)
{
    struct sy_state_pair pairs[SY_MAX_ENDS];

    SY_TRY(check_pairs(model, pairs, sy_session_pairs(model, pairs, SY_MAX_ENDS)));
    return sy_error_set(
        SY_ENOTFOUND,
        "no session %s of model \"%s\": it was not started (sequence_start), "
        "has ended, or was idle for %g s",
        id, model->name,
        (double)(model->session_idle_ns ? model->session_idle_ns : sessions->limits.idle_ns) / 1e9);
}

int sy_sessions_take(struct sy_sessions *sessions, const struct sy_core_model_ref *model,
                     const char *tenant, const char *id, bool start, struct sy_session **out)
{
    SY_TRY(check_id(id, tenant));
    if (sessions->is_closed)
        return sy_error_set(SY_EBUSY, "the server stops");
    struct sy_session *session = find(sessions, model->name, tenant, id);

    if (session && session->is_busy)
        return sy_error_set(SY_EBUSY,
                            "session %s of model \"%s\" has a request under way: send the next one "
                            "after its answer",
                            id, model->name);
    if (session && start) {
        remove_session(sessions, session);
        session = NULL;
    }
    if (!session)
        SY_TRY(start ? add_session(sessions, model, tenant, id, &session)
                     : missing(sessions, model, id));
    SY_TRY(check_version(session, model));
    session->is_busy = true;
    *out = session;
    return SY_OK;
}

/* ---- storing --------------------------------------------------------------------------------------------------- */

int sy_sessions_check_room(const struct sy_sessions *sessions, struct sy_session *session,
                           uint64_t bytes)
{
    uint64_t all = 0, tenants = 0;

    for (const struct sy_session *s = sessions->first; s; s = s->next) {
        uint64_t has = s == session ? 0 : SY_MAX(s->bytes, s->wants);

        all += has;
        tenants += strcmp(s->tenant, session->tenant) == 0 ? has : 0;
    }
    bool is_tenants = tenants + bytes > sessions->limits.tenant_bytes;
    uint64_t limit = is_tenants ? sessions->limits.tenant_bytes : sessions->limits.bytes;
    if (!is_tenants && all + bytes <= limit) {
        session->wants = bytes;
        return SY_OK;
    }
    return sy_error_set(
        SY_EBUSY,
        "session %s wants %llu bytes; %s sessions hold %llu of %llu: end some, or "
        "make the slab larger (--slab-bytes)",
        session->id, (unsigned long long)bytes, is_tenants ? "this tenant's other" : "other",
        (unsigned long long)(is_tenants ? tenants : all), (unsigned long long)limit);
}

bool sy_sessions_store(struct sy_sessions *sessions, struct sy_session *session,
                       const struct sy_session_tensor *tensors)
{
    assert(session->is_busy);
    if (sessions->is_closed)
        return false;
    drop_tensors(sessions, session);
    memcpy(session->tensors, tensors, (size_t)session->n_pairs * sizeof *tensors);
    for (int i = 0; i < session->n_pairs; i++)
        session->bytes += tensors[i].bytes;
    session->is_stored = true;
    session->n_runs++;
    return true;
}

void sy_sessions_give(struct sy_sessions *sessions, struct sy_session *session, bool ends)
{
    session->is_busy = false;
    session->wants = 0;
    session->used_ns = sy_clock_now();
    if (ends || !session->is_stored)
        remove_session(sessions, session);
}

int sy_sessions_end(struct sy_sessions *sessions, const char *model, const char *tenant,
                    const char *id)
{
    struct sy_session *session = find(sessions, model, tenant, id);

    if (!session)
        return sy_error_set(SY_ENOTFOUND, "no session %.127s of model \"%.127s\"", id, model);
    if (session->is_busy)
        return sy_error_set(SY_EBUSY, "session %s has a request under way", session->id);
    remove_session(sessions, session);
    return SY_OK;
}

int sy_sessions_list(const struct sy_sessions *sessions, json_t **out)
{
    json_t *list = json_array();
    sy_ns now = sy_clock_now();

    for (const struct sy_session *s = sessions->first; list && s; s = s->next)
        json_array_append_new(list, json_pack("{s:s, s:I, s:s, s:s, s:I, s:I, s:f, s:b}", "model",
                                              s->model, "version", (json_int_t)s->version, "tenant",
                                              s->tenant, "id", s->id, "bytes", (json_int_t)s->bytes,
                                              "runs", (json_int_t)s->n_runs, "idle_s",
                                              s->is_busy ? 0.0 : (double)(now - s->used_ns) / 1e9,
                                              "busy", s->is_busy));
    *out = list;
    return list ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the list of sessions");
}
