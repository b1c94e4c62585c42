/* A request of the front end, and its memory in the slab (front_infer.h, I2 and I4). */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_INFER_INTERNAL_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_INFER_INTERNAL_H

#include "runtime/front/request/front_infer.h"
#include "runtime/front/request/front_trace.h"
#include "runtime/front/request/session_table.h"

enum sy_front_phase {
    SY_FRONT_ADDING,
    SY_FRONT_SOLVED,
    SY_FRONT_PREPARED,
    SY_FRONT_RUNNING,
    SY_FRONT_DONE
};

/* A tensor of the request: in the slab, taken by it, or in a region. */
struct sy_front_piece {
    bool is_given; /* inputs: it was added */
    bool in_slab;  /* and is to be given back */
    bool is_lent;  /* an input that lies in the slab as the session's */
    bool is_state; /* an input that the server makes: the state before a session's first request */
    bool is_kept;  /* an output that goes to the session */
    uint64_t region, at, bytes; /* of strings: as announced */
    int64_t n;                  /* inputs: elements */
};

struct sy_front_infer {
    struct sy_front *front;
    struct sy_core_model_ref *model;
    const struct sy_graph *graph;
    enum sy_front_phase phase;
    int64_t batch;
    struct sy_sizes sizes; /* sizes of the model's open dimensions */
    int64_t string_base;   /* the heap for the strings that were sent; 0: none */
    struct sy_core_infer_options options;
    char tenant[SY_CORE_TENANT_NAME];
    bool has_tenant;                /* the request's; else it is the model's */
    char session_id[SY_SESSION_ID]; /* "": none */
    bool session_starts, session_ends;
    bool is_stateless;          /* belongs to a sequence, but its model keeps no state */
    struct sy_session *session; /* taken, from solve to the end of the run */
    uint64_t id;                /* at the core */
    sy_front_infer_done done;
    void *ctx;
    struct event *empty_event; /* answers a batch of 0 */
    bool is_canceled, has_report;
    struct sy_front_move *move; /* of strings, before the request runs again; NULL: none */
    struct sy_request_report report;
    struct sy_front_trace trace;
    int64_t (*dims)[SY_MAX_RANK]; /* of inputs, n_inputs */
    struct sy_front_piece *inputs, *outputs;
};

/* ---- front_infer_session.c: nothing where the request names no session ---- */
/* EARG, ENOTFOUND, EBUSY, EUNSUPPORTED: as sy_sessions_take. */
int sy_front_infer_open_session(struct sy_front_infer *infer);
/* The inputs that the session has, or the state before its first request. EARG: one of them was sent. */
int sy_front_infer_add_state(struct sy_front_infer *infer);
/* After their memory was taken. */
void sy_front_infer_zero_state(struct sy_front_infer *infer);
/* EBUSY: the session may not keep as much. */
int sy_front_infer_check_state_room(const struct sy_front_infer *infer);
/* The run is over, or there was none: what it left is the session's if it succeeded. */
int sy_front_infer_close_session(struct sy_front_infer *infer, bool succeeded);

/* ---- front_infer_slab.c ---- */
/* Takes all that the request needs of the slab. ENOMEM_HOST: it can never fit; EBUSY: not now. What was taken before a failure goes with the request. */
int sy_front_infer_take_slab(struct sy_front_infer *infer);
/* Allocates one output for the present sizes; or checks that its place in a region is large enough. */
int sy_front_infer_take_output(struct sy_front_infer *infer, int output);
int sy_front_infer_take_input(struct sy_front_infer *infer, int input);
void sy_front_infer_give_back(struct sy_front_infer *infer, struct sy_front_piece *pieces, int n);
/* NULL: it lies in a region. */
void *sy_front_infer_pointer(const struct sy_front_infer *infer,
                             const struct sy_front_piece *piece);
/* With this request's sizes. */
int sy_front_infer_output_shape(const struct sy_front_infer *infer, int output,
                                struct sy_shape *shape);
/* A request begins with the output sizes that its model needed before: else each would run twice. */
void sy_front_infer_recall_room(struct sy_front_infer *infer);
/* After a run: sets the sizes that its results need; *more: these are larger than before. ENOMEM_HOST: the model has no size that could grow. */
int sy_front_infer_grow_room(struct sy_front_infer *infer, bool *more);
/* The heads of the blocks that its input strings lie in. */
void sy_front_infer_write_heads(struct sy_front_infer *infer);

/* ---- front_infer_strings.c ---- */
/* The size of the run's string heap, if the model has one. */
void sy_front_infer_size_strings(struct sy_front_infer *infer);
/* After a run that was answered: the model's next requests begin with as much more than their own strings take as this one needed. */
void sy_front_infer_remember_strings(struct sy_front_infer *infer);
uint64_t sy_front_infer_string_heap(const struct sy_front_infer *infer); /* bytes, as it is now */
/* Limit of a run's heap in bytes. */
int64_t sy_front_infer_most_heap(const struct sy_front_infer *infer);

/* ---- front_infer_move.c ---- */
/* After a run that failed with ETOOBIG: larger memory for its inputs; *more: there is a larger heap, and move_strings is to follow. */
int sy_front_infer_grow_strings(struct sy_front_infer *infer, bool *more);
/* Its inputs go there. *later: on a thread; `moved` is called on the loop, and calls end_move. */
int sy_front_infer_move_strings(struct sy_front_infer *infer, void (*moved)(void *infer),
                                bool *later);
int sy_front_infer_end_move(struct sy_front_infer *infer);   /* EBUSY: nothing was moved */
void sy_front_infer_drop_move(struct sy_front_infer *infer); /* none is fine */

#endif
