/* Messages between two processes that are both awake: short ones go through slots in shared memory, beside the control socket, without a system call.
 *
 *   writer   put in the free slot ──> reader_polls still 1? ──yes──> done
 *                                          └─no: take it back (or the reader has it already), use the socket
 *   reader   reader_polls = 1, polls the slots ... ──> reader_polls = 0, polls once more, sleeps on the socket
 *
 * O1: the order of messages is that of sending, over both ways: a slot says how many packets were sent through the socket before it, and the reader
 *     reads the socket only when reader_polls is 0 and no slot is next.
 * O2: a slot is written only while reader_polls is 1, and taken back only when it is 0, so nobody writes a slot that is being read.
 * O3: what comes from the other side is checked as a packet's bytes are. */
#ifndef SY_WIRE_POST_BOX_H
#define SY_WIRE_POST_BOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/wire/messages.h"

#define SY_POST_SLOTS 2u /* LOAD and RUN are sent together */
/* A longer message goes through the socket: LOAD of some 100 groups, RUN_DONE of some 80. */
#define SY_POST_BYTES 3056u

struct sy_post_slot {
    _Atomic uint32_t full;    /* 1 by the writer (seq_cst); 0 by the side that takes it (seq_cst) */
    _Atomic uint32_t after;   /* packets sent through the socket before it; relaxed, before full */
    _Atomic uint32_t n_bytes; /* relaxed, before full */
    unsigned char bytes[SY_POST_BYTES];
};

/* One direction; zeroed memory is an empty box. */
struct sy_post_box {
    _Alignas(64) _Atomic uint32_t reader_polls; /* by the reader, seq_cst */
    struct sy_post_slot slots[SY_POST_SLOTS];
};

/* One side's end of both directions. Zeroed: no boxes yet, all goes through the socket. */
struct sy_post {
    struct sy_post_box *out, *in;
    uint32_t n_sent, n_received; /* packets, through the socket; they wrap */
    uint32_t next_out, next_in;  /* slots */
};

/* As sy_message_send, by whichever way. */
int sy_post_send(struct sy_post *post, int fd, const struct sy_message *message, const int *fds,
                 int n_fds);
/* As sy_message_receive: what comes next, by whichever way. From then on until sy_post_set_polled the other side uses the socket, unless it came through a slot. */
int sy_post_receive(struct sy_post *post, int fd, enum sy_message_direction direction,
                    struct sy_message *out, int *fds, int *n_fds);
/* Takes the next message if it is in a slot: 1; else 0 and `out` empty; negative: not a message of this direction. */
int sy_post_take(struct sy_post *post, enum sy_message_direction direction, struct sy_message *out);
/* Whether a slot is full. Then sy_post_receive does not wait: the slot is next, or what was sent before it is in the socket. */
bool sy_post_has(const struct sy_post *post);
/* true: the caller calls sy_post_has or sy_post_take repeatedly from now on; false: no longer, but for one last sy_post_take. */
void sy_post_set_polled(struct sy_post *post, bool polls);

#endif
