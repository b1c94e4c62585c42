/* A small gRPC client on a blocking socket, for tests that need to do what a good client does not: stop reading, send half a message, nonsense. */
#ifndef SY_TESTS_RIGS_GRPC_CLIENT_H
#define SY_TESTS_RIGS_GRPC_CLIENT_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/front/grpc/grpc_wire.h"

#define GRPC_CLIENT_CALLS 64
#define INFER             "/inference.GRPCInferenceService/ModelInfer"
#define STREAM_INFER      "/inference.GRPCInferenceService/ModelStreamInfer"

struct grpc_call {
    int32_t id;
    struct sy_grpc_buffer to_send, got; /* got: DATA as it came */
    size_t sent;
    bool half_closes, is_over;
    int http, status;   /* status -1: none came */
    uint32_t reset;     /* code of RST_STREAM */
    nghttp2_nv trailer; /* name NULL: none */
    char message[2048]; /* still encoded */
    char encoding[16];
};

struct grpc_client {
    nghttp2_session *session;
    int fd;
    bool is_closed; /* by the server */
    uint32_t goaway;
    int n_calls;
    struct grpc_call calls[GRPC_CLIENT_CALLS];
};

/* window: of each stream, for answers; -1: the usual 65535. */
void grpc_client_open(struct grpc_client *client, int port, int window);
void grpc_client_close(struct grpc_client *client);
/* Headers besides the usual ones as name, value, ..., NULL; a usual one by its name in place of its usual value. */
struct grpc_call *grpc_client_call(struct grpc_client *client, const char *path, ...);
void grpc_client_send(struct grpc_client *client, struct grpc_call *call, const void *bytes,
                      size_t n);
/* A whole message. */
void grpc_client_message(struct grpc_client *client, struct grpc_call *call, const void *bytes,
                         size_t n);
void grpc_client_half_close(struct grpc_client *client, struct grpc_call *call);
/* Headers behind the messages that were sent, which end the request. */
void grpc_client_trailer(struct grpc_client *client, struct grpc_call *call, const char *name,
                         const char *value);
void grpc_client_reset(struct grpc_client *client, struct grpc_call *call);
/* Reads and writes until the server's settings have come: from then on it knows how many streams there may be. */
void grpc_client_settle(struct grpc_client *client);
/* Writes all that may be written, and reads until the call is over (120 s at most, or the test fails). */
void grpc_client_wait(struct grpc_client *client, struct grpc_call *call);
/* Reads until `got` has n messages, or the call is over. */
void grpc_client_wait_messages(struct grpc_client *client, struct grpc_call *call, int n);
/* Reads and writes for so long. */
void grpc_client_run(struct grpc_client *client, int ms);
void grpc_client_write(struct grpc_client *client);
/* The i-th message of the answers; data NULL: there is none. */
struct sy_grpc_bytes grpc_client_answer(const struct grpc_call *call, int i);

/* A ModelInferRequest of one input "x", FP32 [rows, columns], in raw_input_contents. */
void grpc_client_put_request(struct sy_grpc_buffer *to, const char *model, int64_t rows,
                             int64_t columns, const float *x);

#endif
