/* Internals of ModelInfer and ModelStreamInfer. */
#ifndef SY_FRONT_GRPC_INFER_INTERNAL_H
#define SY_FRONT_GRPC_INFER_INTERNAL_H

#include "runtime/front/grpc/grpc_infer_message.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/infer_region.h"

enum sy_grpc_infer_phase {
    SY_GRPC_READING,   /* nothing: parsed synchronously */
    SY_GRPC_LOADING,   /* waits for: the repository */
    SY_GRPC_RECEIVING, /* tensors from the socket */
    SY_GRPC_COPYING,   /* a thread, or nothing */
    SY_GRPC_RUNNING,   /* the core */
    SY_GRPC_BUILDING,  /* a thread, or nothing */
    SY_GRPC_OVER       /* earlier requests of the stream, then the socket */
};

enum sy_grpc_source { SY_GRPC_RAW, SY_GRPC_CONTENTS, SY_GRPC_REGION };

/* An input in the order of the request. */
struct sy_grpc_infer_input {
    const char *name; /* the graph's */
    int index;        /* in the graph's order */
    enum sy_grpc_source source;
    enum sy_dtype dtype;
    uint64_t bytes;            /* by its shape */
    struct sy_grpc_bytes from; /* RAW, CONTENTS: in the message */
    struct sy_infer_region place;
    void *to; /* in the slab; NULL: the worker reads it where it lies */
};

/* An output that is answered. */
struct sy_grpc_infer_output {
    int index;       /* in the graph's order */
    int64_t classes; /* 0: the tensor itself */
    char *region;    /* shared memory that it goes to; owned; NULL: none */
    struct sy_infer_region place;
    struct sy_grpc_buffer packed; /* classes */
};

struct sy_grpc_infer {
    struct sy_grpc_server *server;
    struct sy_grpc_stream *stream; /* NULL: the call has ended */
    struct sy_grpc_infer *next;    /* next of the stream */
    enum sy_grpc_infer_phase phase;
    bool on_thread, is_stream, wants_final;
    enum sy_grpc_encoding encoding; /* of the answer */
    struct sy_repository_wait wait;
    struct sy_front_infer *request;
    struct sy_grpc_block kept; /* the message, once it is needed after its call */
    struct sy_grpc_bytes message;
    char *id; /* owned */
    struct sy_grpc_infer_input *inputs;
    struct sy_grpc_infer_output *outputs;
    int n_inputs, n_outputs;
    /* while RECEIVING */
    uint64_t to_skip;  /* bytes of the head already read */
    int next_input;    /* first input whose raw content has not arrived */
    uint64_t raw_left; /* remaining bytes of the current content */
    uint8_t *raw_to;
    uint8_t tag[12]; /* head of the next content, as far as it has arrived */
    size_t n_tag;
    /* work runs in an offload thread; after runs in the loop when it has ended */
    int (*work)(struct sy_grpc_infer *infer);
    void (*after)(struct sy_grpc_infer *infer, int status);
    struct sy_grpc_reply *reply; /* owns the request then */
    int status;
    char *why; /* owned; of a status that is an error */
};

/* ---- grpc_infer_read.c ---- */
/* infer->message to infer->request: inputs, outputs, options; solved and prepared, so that inputs have their places. announced: bytes of raw contents that
 * are to come and are not in the message; UINT64_MAX: all of it is there. SY_REPOSITORY_LOADS: see sy_front_acquire. */
int sy_grpc_infer_read(struct sy_grpc_infer *infer, uint64_t announced);
/* Nanoseconds that sy_grpc_infer_fill takes, roughly. */
uint64_t sy_grpc_infer_fill_ns(const struct sy_grpc_infer *infer);
/* Writes inputs from the message and from shared memory to their places. Any thread. */
int sy_grpc_infer_fill(struct sy_grpc_infer *infer);
/* The next bytes of raw contents, which come without the message. */
int sy_grpc_infer_place(struct sy_grpc_infer *infer, struct sy_grpc_bytes bytes);
/* There are no more of them. */
int sy_grpc_infer_check_placed(struct sy_grpc_infer *infer);

/* ---- grpc_infer_build.c ---- */
uint64_t sy_grpc_infer_build_ns(const struct sy_grpc_infer *infer);
/* Makes infer->reply, which nothing is released with yet, and copies to shared memory what the worker could not write there. Touches the request's own memory alone; any thread. */
int sy_grpc_infer_build(struct sy_grpc_infer *infer);

#endif
