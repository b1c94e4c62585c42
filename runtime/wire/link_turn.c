#include "runtime/wire/link_turn.h"

#include "runtime/base/assert.h"
#include "runtime/wire/control_page.h"

uint64_t sy_link_turn(enum sy_link_class own, enum sy_link_class others, uint64_t left,
                      uint64_t waited_ns)
{
    if (own == SY_LINK_URGENT)
        return left;
    if (own == SY_LINK_NONE || (others > own && waited_ns < SY_LINK_PATIENCE_NS))
        return 0;
    return SY_MIN(left, SY_LINK_CHUNK_BYTES);
}

enum sy_link_class sy_link_board_others(const struct sy_link_board *board, int slot)
{
    uint32_t highest = SY_LINK_NONE;
    for (int i = 0; board && i < SY_LINK_SLOTS; i++) {
        uint32_t c = atomic_load_explicit(&board->classes[i], memory_order_acquire);
        if (i != slot && c <= SY_LINK_URGENT) /* a broken worker's value counts nothing */
            highest = SY_MAX(highest, c);
    }
    return (enum sy_link_class)highest;
}

void sy_link_board_set(struct sy_link_board *board, int slot, enum sy_link_class c)
{
    if (!board || slot < 0 || slot >= SY_LINK_SLOTS)
        return;
    uint32_t before =
        atomic_exchange_explicit(&board->classes[slot], (uint32_t)c, memory_order_acq_rel);
    if (before <= (uint32_t)c)
        return;
    atomic_fetch_add_explicit(&board->changed, 1, memory_order_release);
    sy_futex_wake(&board->changed);
}

void sy_link_board_wait(struct sy_link_board *board, uint32_t seen, uint64_t timeout_ns)
{
    if (board)
        sy_futex_wait(&board->changed, seen, timeout_ns);
}
