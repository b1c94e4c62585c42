/* What a front end's target has behind it: a front, and a fake core that answers from the event loop. Its models are "m" (x FP32 [N, 2] and k UINT8 [3]
 * to y FP32 [N, 2]) and "o" (x alone). A target that needs another "m", or further functions of the core, sets them before fuzz_front_open. */
#ifndef SY_TESTS_FUZZ_FRONT_H
#define SY_TESTS_FUZZ_FRONT_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/slab.h"
#include "runtime/front/front_server.h"
#include "runtime/front/request/front.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/shared_regions.h"

/* An answer that the core owes: one of the three callbacks. */
struct fuzz_owed {
    sy_core_infer_done infer_done;
    sy_core_done done;
    void (*drained)(void *ctx);
    void *ctx;
    uint64_t output, output_bytes; /* in the slab; 0 bytes: not there */
};

struct fuzz_front {
    struct sy_front front;
    struct sy_core_handlers handlers; /* those that fuzz_front_open finds stay */
    struct sy_core_model_ref *m;      /* NULL: the one above */
    /* (optional) Checks where an inference's tensors lie; clears *in_slab if its output is elsewhere. A negative status refuses the request. */
    int (*check)(int64_t batch, const struct sy_sizes *sizes, const uint64_t *inputs,
                 const uint64_t *outputs, bool *in_slab);
    struct sy_slab *slab;
    struct sy_offload *offload; /* one thread; a target sets front.offload for inputs that use it */
    bool refuses;               /* the core answers EBUSY */
    int n_pending;              /* answers that the core owes */
    int n_refs;                 /* models that are held */
};
extern struct fuzz_front fuzz_front;

void fuzz_front_open(void);
/* Answers in the loop's next turn. SY_OK. */
int fuzz_front_owe(struct fuzz_owed owed);
/* At exit, for the leak checker: the threads before the servers, the rest behind them. */
void fuzz_front_stop_threads(void);
void fuzz_front_close(void);

/* The client's side of a connection: what it was answered so far; full: the rest was not taken. */
struct fuzz_answers {
    size_t n;
    uint8_t bytes[8 << 20];
};
extern struct fuzz_answers fuzz_answers;
/* Runs the loop until neither the server, nor a thread, nor the core has anything to do; fd: where answers come, -1: the client is gone. */
void fuzz_front_settle(int fd, bool has_thread);

/* How a client sends an input. */
struct fuzz_sending {
    unsigned
        log_piece; /* pieces of 2^this bytes at first, each twice as long as the one before; 0: all at once */
    bool goes;                 /* it reads no answers */
    bool has_thread;           /* the front has one */
    void (*after_piece)(void); /* (optional) */
};
/* Until all is sent, or the server has closed or reads no more. */
void fuzz_front_send(int fd, const uint8_t *data, size_t size, const struct fuzz_sending *how);
/* A thread may still have a request whose client is gone. */
void fuzz_front_wait_for_threads(const struct sy_front_server *server);

#endif
