#include "runtime/keeper/image_book.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAGIC   0x6b6f6f4265676d49ull /* "ImgeBook", backwards */
#define VERSION 1u
#define ALIGN   4096u

enum record_state { RECORD_FREE, RECORD_WRITTEN };

/* Written by the runtime alone. `state` is stored with release after the rest, and first when a record goes: a reader of the book after a kill sees
 * a record whole or free. `check` is for memory that somebody else wrote. */
struct sy_image_record {
    _Atomic uint32_t state;
    uint32_t first_layer, n_layers, check;
    uint64_t content_hash, offset, bytes;
};

struct sy_image_book_head {
    uint64_t magic;
    uint32_t version, n_records;
    uint64_t image_bytes;
    _Atomic uint32_t has_link;
    uint32_t link_check;
    struct sy_image_link link;
    char device[SY_IMAGE_BOOK_DEVICE];
};

static_assert(sizeof(struct sy_image_book_head) <= ALIGN, "the head is a page");
static_assert(sizeof(struct sy_image_record) == 40, "the layout is shared between versions");

uint64_t sy_image_book_bytes(void)
{
    return ALIGN + SY_ALIGN_UP(SY_IMAGE_BOOK_RECORDS * sizeof(struct sy_image_record), ALIGN);
}

/* FNV-1a. */
static uint32_t check_of(const void *bytes, size_t n, uint32_t check)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        check = (check ^ at[i]) * 16777619u;
    return check;
}

static uint32_t record_check(const struct sy_image_record *r)
{
    const uint64_t values[] = {r->first_layer, r->n_layers, r->content_hash, r->offset, r->bytes};
    return check_of(values, sizeof values, 2166136261u);
}

static uint32_t link_check(const struct sy_image_book_head *head)
{
    return check_of(&head->link, sizeof head->link,
                    check_of(head->device, sizeof head->device, 2166136261u));
}

static bool is_written(const struct sy_image_record *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire) == RECORD_WRITTEN;
}

static void set_state(struct sy_image_record *r, enum record_state state)
{
    atomic_store_explicit(&r->state, state, memory_order_release);
}

void sy_image_book_start(struct sy_image_book *book, void *memory, uint64_t image_bytes)
{
    *book = (struct sy_image_book){.head = memory, .records = (void *)((char *)memory + ALIGN)};
    *book->head = (struct sy_image_book_head){.magic = MAGIC,
                                              .version = VERSION,
                                              .n_records = SY_IMAGE_BOOK_RECORDS,
                                              .image_bytes = image_bytes};
}

static bool is_sound(const struct sy_image_record *r, uint64_t image_bytes)
{
    return r->check == record_check(r) && r->offset % ALIGN == 0 && r->bytes > 0 &&
           r->bytes <= image_bytes && r->offset <= image_bytes - r->bytes;
}

int sy_image_book_take(struct sy_image_book *book, void *memory, uint64_t image_bytes)
{
    struct sy_image_book_head *head = memory;
    if (head->magic != MAGIC || head->version != VERSION ||
        head->n_records != SY_IMAGE_BOOK_RECORDS)
        return sy_error_set(SY_ECORRUPT, "the kept image has no book of version %u", VERSION);
    if (head->image_bytes != image_bytes)
        return sy_error_set(SY_ECORRUPT, "the kept image has %llu bytes, %llu are asked for",
                            (unsigned long long)head->image_bytes, (unsigned long long)image_bytes);
    *book = (struct sy_image_book){.head = head, .records = (void *)((char *)memory + ALIGN)};
    for (int i = 0; i < SY_IMAGE_BOOK_RECORDS; i++) {
        struct sy_image_record *r = &book->records[i];
        if (!is_written(r) || !is_sound(r, image_bytes))
            set_state(r, RECORD_FREE);
        else
            book->n_used = i + 1;
    }
    if (head->link_check != link_check(head))
        atomic_store_explicit(&head->has_link, 0, memory_order_release);
    return SY_OK;
}

void sy_image_book_drop(struct sy_image_book *book, uint64_t offset, uint64_t bytes)
{
    for (int i = 0; i < book->n_used; i++) {
        struct sy_image_record *r = &book->records[i];
        if (is_written(r) && r->offset < offset + bytes && offset < r->offset + r->bytes)
            set_state(r, RECORD_FREE);
    }
    while (book->n_used > 0 && !is_written(&book->records[book->n_used - 1]))
        book->n_used--;
}

void sy_image_book_note(struct sy_image_book *book, const struct sy_image_group *group)
{
    int i = 0;
    sy_image_book_drop(book, group->offset, group->bytes);
    while (i < book->n_used && is_written(&book->records[i]))
        i++;
    if (i == SY_IMAGE_BOOK_RECORDS)
        return;
    struct sy_image_record *r = &book->records[i];
    r->first_layer = group->first_layer;
    r->n_layers = group->n_layers;
    r->content_hash = group->content_hash;
    r->offset = group->offset;
    r->bytes = group->bytes;
    r->check = record_check(r);
    set_state(r, RECORD_WRITTEN);
    book->n_used = SY_MAX(book->n_used, i + 1);
}

static bool is_group(const struct sy_image_record *r, const struct sy_image_group *g)
{
    return is_written(r) && r->content_hash == g->content_hash &&
           r->first_layer == g->first_layer && r->n_layers == g->n_layers && r->bytes == g->bytes;
}

bool sy_image_book_find(const struct sy_image_book *book, const struct sy_image_group *group,
                        uint64_t *out_offset)
{
    for (int i = 0; i < book->n_used; i++)
        if (is_group(&book->records[i], group)) {
            *out_offset = book->records[i].offset;
            return true;
        }
    return false;
}

bool sy_image_book_has(const struct sy_image_book *book, const struct sy_image_group *group)
{
    for (int i = 0; i < book->n_used; i++)
        if (is_group(&book->records[i], group) && book->records[i].offset == group->offset)
            return true;
    return false;
}

int sy_image_book_filter(struct sy_image_book *book,
                         bool (*is_known)(void *ctx, const struct sy_image_group *group),
                         void (*dropped)(void *ctx, uint64_t offset, uint64_t bytes), void *ctx)
{
    int n = 0;
    for (int i = 0; i < book->n_used; i++) {
        struct sy_image_record *r = &book->records[i];
        struct sy_image_group group = {.content_hash = r->content_hash,
                                       .offset = r->offset,
                                       .bytes = r->bytes,
                                       .first_layer = r->first_layer,
                                       .n_layers = r->n_layers};
        if (!is_written(r) || is_known(ctx, &group))
            continue;
        set_state(r, RECORD_FREE);
        dropped(ctx, group.offset, group.bytes);
        n++;
    }
    return n;
}

int sy_image_book_n(const struct sy_image_book *book)
{
    int n = 0;
    for (int i = 0; i < book->n_used; i++)
        n += is_written(&book->records[i]);
    return n;
}

void sy_image_book_set_link(struct sy_image_book *book, const char *device,
                            const struct sy_image_link *link)
{
    struct sy_image_book_head *head = book->head;
    if (strlen(device) >= sizeof head->device)
        return;
    atomic_store_explicit(&head->has_link, 0, memory_order_release);
    memset(head->device, 0, sizeof head->device);
    memcpy(head->device, device, strlen(device));
    head->link = *link;
    head->link_check = link_check(head);
    atomic_store_explicit(&head->has_link, 1, memory_order_release);
}

bool sy_image_book_link(const struct sy_image_book *book, const char *device,
                        struct sy_image_link *out)
{
    const struct sy_image_book_head *head = book->head;
    if (!atomic_load_explicit(&head->has_link, memory_order_acquire) ||
        strncmp(head->device, device, sizeof head->device) != 0)
        return false;
    for (int i = 0; i < 4; i++)
        if (!isfinite(head->link.values[i]))
            return false;
    *out = head->link;
    return true;
}
