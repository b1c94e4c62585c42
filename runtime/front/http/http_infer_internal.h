/* Internals of the infer route. */
#ifndef SY_FRONT_HTTP_INFER_INTERNAL_H
#define SY_FRONT_HTTP_INFER_INTERNAL_H

#include "runtime/base/text_builder.h"
#include "runtime/front/body_buffer.h"
#include "runtime/front/front_acquire.h"
#include "runtime/front/http/http_deflate.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/infer_region.h"
#include "runtime/front/request/tensor_json.h"

enum sy_http_infer_phase {
    SY_HTTP_COLLECTING, /* waits for: the JSON's last byte */
    SY_HTTP_PARSING,    /* a thread */
    SY_HTTP_LOADING,    /* the repository */
    SY_HTTP_CONVERTING, /* a thread */
    SY_HTTP_STREAMING,  /* the body's last byte */
    SY_HTTP_RUNNING,    /* the core */
    SY_HTTP_ANSWERED    /* a thread that writes JSON, then the socket */
};

enum sy_http_source { SY_HTTP_JSON, SY_HTTP_BINARY, SY_HTTP_REGION };

/* An input in the order of the request. */
struct sy_http_infer_input {
    const char *name; /* the graph's */
    int index;        /* in the graph's order */
    enum sy_http_source source;
    enum sy_dtype dtype;
    uint64_t bytes;
    int64_t cut; /* JSON: of the request's "data"s */
    void *to;    /* in the slab; NULL: the worker reads it where it lies */
    struct sy_infer_region place;
};

/* An output that was asked for. */
struct sy_http_infer_output {
    int index; /* in the graph's order */
    bool binary;
    int64_t classes;    /* 0: the tensor itself */
    const char *region; /* in json: shared memory that it goes to; NULL: none */
    struct sy_infer_region place;
    unsigned char *packed; /* classes as BYTES; owned */
};

struct sy_http_infer {
    struct sy_http_server *server;
    struct sy_http_call *call; /* NULL: the client is gone */
    enum sy_http_infer_phase phase;
    bool is_whole, is_raw;
    uint64_t raw_bytes;
    char model[SY_CORE_MODEL_NAME];
    int64_t version;
    sy_ns received_ns;          /* when its header lines were read, where traces are sent; else 0 */
    uint64_t header_bytes;      /* of JSON; UINT64_MAX: all of the body */
    struct sy_body_buffer text; /* the JSON, and what came behind it in the same piece */
    /* bytes behind the JSON that arrived before its tensors had a place */
    struct sy_body_buffer late;
    struct sy_request_json json;
    struct sy_repository_wait wait;
    struct sy_front_infer *request;
    const char *id; /* in json, or NULL */
    /* One block, as many as the model has. */
    struct sy_http_infer_input *inputs;
    struct sy_http_infer_output *outputs;
    struct sy_http_segment *tensors; /* of the answer, behind its JSON */
    uint64_t *cuts;                  /* for each, the JSON's length */
    int n_inputs, n_outputs, n_tensors;
    int streaming; /* the input that comes from the socket now */
    uint64_t streamed;
    /* on a thread */
    bool on_thread;
    int (*work)(struct sy_http_infer *infer);
    void (*after)(struct sy_http_infer *infer, int status);
    int status;
    char why[512];
    enum sy_http_coding coding; /* of the answer */
    struct sy_text answer;      /* JSON; compressed: all of the answer */
    size_t json_bytes;
};

/* ---- http_infer.c ---- */
/* The sink of an inference request. The HTTP code to refuse with, or 0; *why says why. */
int sy_http_infer_begin(struct sy_http_call *call, const char **why);

/* ---- http_infer_read.c ---- */
/* A version in a path: "3"; NULL: 0. EARG. */
int sy_http_read_version(const char *text, int64_t *out);
/* Inference-Header-Content-Length: 0. bytes: of the body; 0: not known before its end. */
void sy_http_infer_expect_raw(struct sy_http_infer *infer, uint64_t bytes);
/* The request's JSON (or the raw body's length) to infer->request: inputs, outputs, options; solved and prepared. */
int sy_http_infer_read(struct sy_http_infer *infer);
/* Behind it: JSON numbers to the slab, and what is copied from shared memory. Any thread. */
int sy_http_infer_convert(struct sy_http_infer *infer);
uint64_t sy_http_infer_convert_bytes(const struct sy_http_infer *infer); /* a measure of it */

/* ---- http_infer_build.c ---- */
/* A measure of the work: bytes that become JSON numbers, are copied to shared memory, or are compressed. It decides whether a thread does it. */
uint64_t sy_http_infer_answer_bytes(const struct sy_http_infer *infer);
/* Fills answer, tensors, cuts, shared memory. Touches nothing but the request's own memory; any thread. */
int sy_http_infer_build(struct sy_http_infer *infer);
#endif
