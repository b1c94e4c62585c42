/* Front ends in the simulation: HTTP, RPC and gRPC servers as they are, before the simulated core. Clients have the other ends of socket pairs, with little
 * room in them: they send in pieces, pipeline, read slowly or not at all, half-close, vanish, talk nonsense. Drawn from a stream of its own.
 *
 *   sim_front.c        servers, connections, what clients do and what must hold
 *   sim_front_talk.c   HTTP's and RPC's requests and answers      sim_front_grpc.c   gRPC's */
#ifndef SY_TESTS_SIMULATION_SIM_FRONT_H
#define SY_TESTS_SIMULATION_SIM_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "tests/fakes/fake_worker.h"

#define SIM_GRPC_STREAMS 4 /* of a connection; the server refuses more */
#define SIM_ASK_ROWS     3
#define SIM_SAID_BYTES   24576u /* of requests that wait to be sent */
#define SIM_READ_BYTES   16384u /* of an answer */

struct nghttp2_session;
struct sim_call_bytes;

/* A request. In the order of its connection. */
struct sim_ask {
    struct sim_ask *next;
    uint64_t id;
    uint64_t end; /* bytes of its connection up to its last one; 0: of gRPC, not all are said */
    int rows;     /* 0: it asks for nothing that is computed */
    float x[SIM_ASK_ROWS * FAKE_ROW];
    struct sim_call_bytes *call; /* of gRPC */
    int32_t stream;
};

struct sim_connection {
    struct sim_connection *next;
    uint64_t number;
    enum sim_protocol { SIM_HTTP, SIM_RPC, SIM_GRPC, SIM_N_PROTOCOLS } protocol;
    struct nghttp2_session *session; /* of gRPC */
    int fd;
    unsigned char said[SIM_SAID_BYTES], read[SIM_READ_BYTES];
    size_t n_said, n_read;
    uint64_t n_sent, n_answers;
    uint64_t
        n_taken;   /* of n_sent: what the socket took, which is less once the server has ended it */
    int n_cut;     /* CONTINUATIONs of its calls that had no answer */
    bool by_bytes; /* it sends one byte at a time */
    struct sim_ask *asks;       /* not answered yet */
    bool half_closed, nonsense; /* nonsense: the server may end it */
    bool ends;                  /* the server has said so */
    sy_ns clean_ns;             /* when it was asked something while it was asked nothing */
};

/* sim_front_talk.c */
/* Puts a request's bytes behind what is to be said; false: there is no room. */
bool sim_front_ask(struct sim_connection *c, struct sim_ask *ask, const char *model);
/* Bytes that are no request. */
void sim_front_talk_nonsense(struct sim_connection *c);
/* Takes one whole answer from what was read; false: there is none. Checks it against the request that it answers, which is freed. */
bool sim_front_take_answer(struct sim_connection *c);

/* The request at *at is answered: checks numbers that are right, forgets it. */
void sim_front_answered(struct sim_connection *c, struct sim_ask **at, bool is_ok, const float *y);

/* sim_front_grpc.c */
void sim_front_grpc_open(struct sim_connection *c);
void sim_front_grpc_free(struct sim_ask *ask);      /* what it has beside itself */
void sim_front_grpc_say(struct sim_connection *c);  /* what there is, as far as there is room */
void sim_front_grpc_take(struct sim_connection *c); /* what was read */
bool sim_front_grpc_ask(struct sim_connection *c, struct sim_ask *ask, const char *model);
void sim_front_grpc_reset(struct sim_connection *c); /* its first request */
/* Resets in any state, windows of 0, GOAWAY, pings, going on with a call that stood still within its message. */
void sim_front_grpc_misbehave(struct sim_connection *c);
void sim_front_grpc_end(struct sim_connection *c); /* of all that */

/* sim_front.c */
void sim_front_open(uint64_t seed);
uint64_t sim_front_draw(uint64_t n);
bool sim_front_is_wild(void); /* gRPC clients misbehave in this walk */
bool sim_front_is_fine(void); /* requests come byte by byte, header blocks in several frames */
sy_ns sim_front_next(
    void); /* when a client does something next; SIM_NEVER: there are no front ends */
void sim_front_happen(void); /* it does */
void sim_front_look(void);   /* whatever must hold between two events */
void sim_front_calm(
    void); /* nobody asks any more; who waits for answers reads them, and leaves then */
bool sim_front_is_over(void); /* all have left, and the servers hold nothing of theirs */
void sim_front_close(void);   /* before the core */

#endif
