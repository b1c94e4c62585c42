#include "runtime/wire/post_box.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

_Static_assert(SY_POST_BYTES <= SY_MESSAGE_MAX_BYTES,
               "a slot holds no longer message than a packet");

/* Whether the reader has it, or will look at it before it sleeps (O2). */
static bool put(struct sy_post *post, const void *bytes, size_t n_bytes)
{
    struct sy_post_box *box = post->out;
    struct sy_post_slot *slot = &box->slots[post->next_out % SY_POST_SLOTS];
    uint32_t full = 1;

    if (atomic_load(&slot->full))
        return false;
    memcpy(slot->bytes, bytes, n_bytes);
    atomic_store_explicit(&slot->after, post->n_sent, memory_order_relaxed);
    atomic_store_explicit(&slot->n_bytes, (uint32_t)n_bytes, memory_order_relaxed);
    atomic_store(&slot->full, 1);
    if (!atomic_load(&box->reader_polls) && atomic_compare_exchange_strong(&slot->full, &full, 0))
        return false;
    post->next_out++;
    return true;
}

int sy_post_send(struct sy_post *post, int fd, const struct sy_message *message, const int *fds,
                 int n_fds)
{
    unsigned char bytes[SY_POST_BYTES];
    size_t n_bytes;

    if (n_fds == 0 && post->out && atomic_load(&post->out->reader_polls) &&
        sy_message_encode(message, bytes, sizeof bytes, &n_bytes) == SY_OK &&
        put(post, bytes, n_bytes))
        return SY_OK;
    SY_TRY(sy_message_send(fd, message, fds, n_fds));
    post->n_sent++;
    return SY_OK;
}

int sy_post_take(struct sy_post *post, enum sy_message_direction direction, struct sy_message *out)
{
    unsigned char bytes[SY_POST_BYTES];
    struct sy_post_slot *slot;
    uint32_t full = 1, n_bytes;

    memset(out, 0, sizeof *out);
    if (!post->in)
        return 0;
    slot = &post->in->slots[post->next_in % SY_POST_SLOTS];
    if (atomic_load_explicit(&slot->full, memory_order_acquire) != 1 ||
        atomic_load_explicit(&slot->after, memory_order_relaxed) != post->n_received)
        return 0; /* O1 */
    n_bytes = atomic_load_explicit(&slot->n_bytes, memory_order_relaxed);
    if (n_bytes > sizeof bytes) /* O3 */
        return sy_error_set(SY_EPROTO, "a slot of %u bytes holds %u", SY_POST_BYTES, n_bytes);
    memcpy(bytes, slot->bytes, n_bytes);
    if (!atomic_compare_exchange_strong(&slot->full, &full, 0))
        return 0;
    post->next_in++;
    SY_TRY(sy_message_decode(bytes, n_bytes, direction, out));
    return 1;
}

int sy_post_receive(struct sy_post *post, int fd, enum sy_message_direction direction,
                    struct sy_message *out, int *fds, int *n_fds)
{
    int status = sy_post_take(post, direction, out);

    if (status == 0) {
        sy_post_set_polled(post, false);
        status = sy_post_take(post, direction, out);
    }
    if (n_fds && status != 0)
        *n_fds = 0;
    if (status != 0)
        return status < 0 ? status : SY_OK;
    SY_TRY(sy_message_receive(fd, direction, out, fds, n_fds));
    post->n_received++;
    return SY_OK;
}

bool sy_post_has(const struct sy_post *post)
{
    return post->in && atomic_load_explicit(&post->in->slots[post->next_in % SY_POST_SLOTS].full,
                                            memory_order_acquire) == 1;
}

void sy_post_set_polled(struct sy_post *post, bool polls)
{
    if (post->in && atomic_load_explicit(&post->in->reader_polls, memory_order_relaxed) != polls)
        atomic_store(&post->in->reader_polls, polls);
}
