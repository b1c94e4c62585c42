/* Turns on the link: one rule for all copies, and where workers show what they have on it.
 *
 *   urgent swap   ################                 all at once, back to back
 *   prefetch      ====            ====  ====       a chunk, then it looks again
 *   spill, copy         (waits)               --   the same, behind prefetches
 *
 * L1: what a class has begun it finishes: at most one chunk. So an urgent swap waits for at most one chunk of each other worker.
 * L2: a class begins nothing while a higher one is there, but a chunk each SY_LINK_PATIENCE_NS, so that nothing starves. */
#ifndef SY_WIRE_LINK_TURN_H
#define SY_WIRE_LINK_TURN_H

#include <stdatomic.h>
#include <stdint.h>

#define SY_LINK_CHUNK_BYTES (8ull << 20)
#define SY_LINK_PATIENCE_NS 1000000000ull
#define SY_LINK_SLOTS       64 /* workers */

/* The higher, the more it may. */
enum sy_link_class { SY_LINK_NONE, SY_LINK_SPILL, SY_LINK_PREFETCH, SY_LINK_URGENT };

/* How many of `left` bytes may go now; 0: wait and ask again. `others`: the highest class of all others; waited_ns: since this class's last
 * chunk, or its wish. Pure. */
uint64_t sy_link_turn(enum sy_link_class own, enum sy_link_class others, uint64_t left,
                      uint64_t waited_ns);

/* In memory that all workers share, behind the arrival words. A worker writes its own slot; the runtime clears it when the worker died. */
struct sy_link_board {
    _Atomic uint32_t classes[SY_LINK_SLOTS]; /* enum sy_link_class */
    _Atomic uint32_t changed; /* a futex for the waiting workers: counts how often a slot fell */
};

/* NULL is an empty board. */
enum sy_link_class sy_link_board_others(const struct sy_link_board *board, int slot);
void sy_link_board_set(struct sy_link_board *board, int slot, enum sy_link_class c);
/* Until something may have changed since `seen` (a value of `changed`), at most timeout_ns. */
void sy_link_board_wait(struct sy_link_board *board, uint32_t seen, uint64_t timeout_ns);

#endif
