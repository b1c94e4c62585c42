/* One inference request, whatever protocol it came by: checked against its model, its tensors placed, run, answered from where they lie.
 *
 *   create (acquire) ─> add_input, place_input, place_output, options ─> solve ─> prepare ─> write the inputs at input_data ─> start ─> done ─> output ─> destroy
 *                                                                                                            └ cancel ┘
 *
 * I1: the model's version is held from create to destroy: what is loaded or unloaded meanwhile does not touch the request.
 * I2: slab memory belongs to the request until destroy, also when its client is gone: workers may still write.
 * I3: done is called exactly once after a start that returned SY_OK, never inside start or cancel; destroy comes after it, or without a start.
 * I4: a result larger than its buffer makes the request run again with a larger one; if the slab cannot hold that, the request fails with both sizes.
 * I5: a batch of 0 rows is answered with results of 0 rows, without a run.
 *
 * Errors set the thread's error text, with names and numbers. One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_INFER_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_INFER_H

#include "loader/graph/graph_bind.h"
#include "runtime/front/request/front.h"

struct sy_front_infer;

/* For this version of a model; the reference is the request's from now on, and is released if create fails: ENOMEM_HOST, EUNSUPPORTED (more than SY_MAX_ENDS tensors).
 * The model's defaults (class, tenant, deadline) are set. By name: front_acquire.h. */
int sy_front_infer_create(struct sy_front *front, struct sy_core_model_ref *model,
                          struct sy_front_infer **out);
void sy_front_infer_destroy(struct sy_front_infer *infer); /* NULL is fine */
const struct sy_core_model_ref *sy_front_infer_model(const struct sy_front_infer *infer);

/* An input as the client declares it; *out_input: its index in the graph's order. EARG: no such input, given twice, another dtype or rank, a negative dimension.
 * dims are copied. */
int sy_front_infer_add_input(struct sy_front_infer *infer, const char *name, const char *dtype,
                             int rank, const int64_t *dims, int *out_input);
/* *out_output: its index in the graph's order. EARG: no such output. */
int sy_front_infer_find_output(const struct sy_front_infer *infer, const char *name,
                               int *out_output);
/* The tensor lies in this region of the core, at an offset that is a multiple of 64, and is read or written there. An output needs at least the room that it
 * has with the request's sizes (EARG in prepare, with both numbers). */
void sy_front_infer_place_input(struct sy_front_infer *infer, int input, uint64_t region,
                                uint64_t offset, uint64_t bytes);
void sy_front_infer_place_output(struct sy_front_infer *infer, int output, uint64_t region,
                                 uint64_t offset, uint64_t bytes);

/* To be set before start. Where nothing is called, the model's defaults; else class SY_CORE_USUAL_CLASS, no deadline, no tenant. EARG. */
int sy_front_infer_set_class(struct sy_front_infer *infer, int64_t class_);
int sy_front_infer_set_deadline(struct sy_front_infer *infer,
                                sy_ns deadline_ns);                /* from start on */
sy_ns sy_front_infer_deadline(const struct sy_front_infer *infer); /* 0: none */
/* The client's trace context: front_trace.h, sy_front_trace_take. */
void sy_front_infer_set_trace(struct sy_front_infer *infer, const char *protocol, sy_ns received_ns,
                              const char *traceparent, const char *tracestate);
int sy_front_infer_set_tenant(struct sy_front_infer *infer, const char *tenant);

/* The request is one of a session (session_table.h): inputs that the session has are left out, outputs that it keeps are neither asked for nor answered. After the
 * inputs, before outputs are named. id "": of none. starts: a new session; ends: it is over with this request, if that succeeds. A request that fails
 * leaves its session as it was. EARG: the id is too long. */
int sy_front_infer_set_session(struct sy_front_infer *infer, const char *id);
/* Triton's sequence: the same, but a model without state computes each request of it by itself, as Triton's do without sequence batching. */
int sy_front_infer_set_sequence(struct sy_front_infer *infer, const char *id);
void sy_front_infer_set_session_ends(struct sy_front_infer *infer, bool starts, bool ends);
/* The output stays in the session. */
bool sy_front_infer_is_kept(const struct sy_front_infer *infer, int output);
/* After solve: the client sends this input, the server has not got it from the session. */
bool sy_front_infer_is_sent(const struct sy_front_infer *infer, int input);

/* All inputs were added: works out batch and sizes from their shapes. EARG: one is missing, or shapes contradict each other. */
int sy_front_infer_solve(struct sy_front_infer *infer);
/* Takes the slab memory: the caller has checked that the data of each input is there or announced, so that a claim alone reserves no memory. ENOMEM_HOST: it can never fit
 * into the slab; EBUSY: not now. */
int sy_front_infer_prepare(struct sy_front_infer *infer);
/* Between solve and prepare: the input's bytes lie in the slab at `offset` already, in a piece of their own, which is the request's from now on. No strings. */
void sy_front_infer_adopt_input(struct sy_front_infer *infer, int input, uint64_t offset);
/* Between solve and prepare: limits the bytes of a string input, lengths included; they have arrived or are announced. EARG: fewer than
 * its elements need; ETOOBIG: over the front end's limit. Not called: all its strings are empty. A writer that writes fewer bytes ends the block with
 * sy_string_block_end. */
int sy_front_infer_announce_strings(struct sy_front_infer *infer, int input, uint64_t bytes);
bool sy_front_infer_has_strings(const struct sy_front_infer *infer, int input);
int64_t sy_front_infer_elements(const struct sy_front_infer *infer, int input);
/* Bytes that the input has by its shape and dtype; of strings, as announced. */
uint64_t sy_front_infer_input_bytes(const struct sy_front_infer *infer, int input);
enum sy_dtype sy_front_infer_input_dtype(const struct sy_front_infer *infer, int input);
/* Where the caller writes the input (input_bytes of them), until start. NULL: it was placed in a region. */
void *sy_front_infer_input_data(struct sy_front_infer *infer, int input);

typedef void (*sy_front_infer_done)(void *ctx, int status, const char *error);
int sy_front_infer_start(struct sy_front_infer *infer, sy_front_infer_done done, void *ctx);
/* The client is gone: done comes with ECANCELED, or as usual if it was on its way. Not before start. */
void sy_front_infer_cancel(struct sy_front_infer *infer);

struct sy_front_tensor {
    const char *name;
    enum sy_dtype dtype;
    int rank;
    int64_t dims[SY_MAX_RANK];
    const void *data; /* NULL: it lies in the region that the caller named */
    uint64_t bytes;
};
/* After done with SY_OK. ECORRUPT: what lies there was not written by a run. */
int sy_front_infer_output(const struct sy_front_infer *infer, int output,
                          struct sy_front_tensor *out);
int sy_front_infer_n_outputs(const struct sy_front_infer *infer);
/* The last run's report; NULL before done, and for a batch of 0. */
const struct sy_request_report *sy_front_infer_report(const struct sy_front_infer *infer);

#endif
