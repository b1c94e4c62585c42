#include "workers/host/reference/pick.h"

#include "runtime/base/assert.h"

enum { PARALLEL_FROM = 16384, PARTS = 64, /* of the rows, for the threads */ LONG_RUN = 4 };

/* Constants of all rows of a result. A row's element is a block: the inner dimensions that are copied whole. */
struct rows {
    const struct sy_pick *pick;
    const int64_t *dims, *last; /* the rows' own table */
    const char *padding;
    char *to;
    const char *from;
    int outer;              /* dimensions before a row */
    int64_t n, size, bytes; /* blocks in a row; of an element, of a block */
    int64_t pieces, count;  /* runs in a row; rows */
};

int64_t sy_pick_scratch(const struct sy_array *y)
{
    int64_t places = 0;
    for (int d = 0; d < y->rank; d++)
        places += y->dims[d];
    return 2 * places * (int64_t)sizeof(int64_t);
}

void sy_pick_start(struct sy_pick *pick, const struct sy_array *y, void *scratch)
{
    pick->runs = scratch;
    for (int d = 0; d < y->rank; d++) {
        pick->from[d] = pick->runs;
        pick->runs += y->dims[d];
    }
}

static bool is_whole(const int64_t *from, int64_t n, int64_t block)
{
    bool whole = true;
    for (int64_t i = 0; whole && i < n; i++)
        whole = from[i] == i * block;
    return whole;
}

/* How many pieces a row is copied in. */
static int64_t find_runs(const int64_t *from, int64_t n, int64_t block, int64_t *runs)
{
    int64_t pieces = 1;
    runs[n - 1] = 1;
    for (int64_t i = n - 2; i >= 0; i--) {
        bool goes_on = from[i] < 0 ? from[i + 1] < 0 : from[i + 1] == from[i] + block;
        runs[i] = goes_on ? runs[i + 1] + 1 : 1;
        pieces += !goes_on;
    }
    return pieces;
}

/* `bytes` of elements of `size`, each as `value`; what is written already is copied behind itself. */
static void fill(char *to, int64_t bytes, const char *value, int64_t size)
{
    memcpy(to, value, (size_t)size);
    for (int64_t done = size; done < bytes; done += SY_MIN(done, bytes - done))
        memcpy(to + done, to, (size_t)SY_MIN(done, bytes - done));
}

static void pick_pieces(const struct rows *r, const char *from, char *to)
{
    const int64_t *runs = r->pick->runs;
    for (int64_t i = 0; i < r->n; i += runs[i]) {
        int64_t bytes = runs[i] * r->bytes;
        if (r->last[i] < 0)
            fill(to + i * r->bytes, bytes, r->padding, r->size);
        else
            memcpy(to + i * r->bytes, from + r->last[i] * r->size, (size_t)bytes);
    }
}

/* Copies the elements one by one; inlined where `bytes` is a constant. */
static inline void pick_each(const struct rows *r, const char *from, char *to, int64_t bytes)
{
    for (int64_t i = 0; i < r->n; i++)
        memcpy(to + i * bytes, r->last[i] < 0 ? r->padding : from + r->last[i] * bytes,
               (size_t)bytes);
}

static void pick_row(const struct rows *r, const char *from, char *to)
{
    bool long_runs = r->bytes != r->size || r->pieces * LONG_RUN <= r->n;
    switch (long_runs ? 0 : r->size) {
    case 1:
        pick_each(r, from, to, 1);
        break;
    case 2:
        pick_each(r, from, to, 2);
        break;
    case 4:
        pick_each(r, from, to, 4);
        break;
    case 8:
        pick_each(r, from, to, 8);
        break;
    default:
        pick_pieces(r, from, to);
        break;
    }
}

/* Counters of the dimensions before the row: base[d] is the offset, or -1, by those before dimension d. */
struct walk {
    int64_t at[SY_MAX_RANK], base[SY_MAX_RANK + 1];
};

static void add_up(const struct rows *r, struct walk *w, int first)
{
    for (int d = first; d < r->outer; d++) {
        int64_t offset = r->pick->from[d][w->at[d]];
        w->base[d + 1] = offset < 0 || w->base[d] < 0 ? -1 : w->base[d] + offset;
    }
}

static void next_row(const struct rows *r, struct walk *w)
{
    int d = r->outer - 1;
    for (; d > 0 && w->at[d] + 1 == r->dims[d]; d--)
        w->at[d] = 0;
    if (d >= 0 && w->at[d] + 1 < r->dims[d])
        w->at[d]++;
    add_up(r, w, d < 0 ? 0 : d);
}

static void pick_rows(const struct rows *r, int64_t first, int64_t end)
{
    struct walk w = {.base = {0}};
    int64_t left = first;
    for (int d = r->outer - 1; d >= 0; d--) {
        w.at[d] = left % r->dims[d];
        left /= r->dims[d];
    }
    add_up(r, &w, 0);
    for (int64_t row = first; row < end; row++, next_row(r, &w)) {
        char *to = r->to + row * r->n * r->bytes;
        if (w.base[r->outer] < 0)
            fill(to, r->n * r->bytes, r->padding, r->size);
        else
            pick_row(r, r->from + w.base[r->outer] * r->size, to);
    }
}

void sy_pick(const struct sy_pick *pick, const struct sy_array *x, const struct sy_array *y,
             const void *padding)
{
    static const int64_t alone = 0;
    int64_t block = 1, one_run = 1;
    struct sy_pick own = *pick;
    int rank = y->rank;
    if (y->n == 0)
        return;
    for (; rank > 0 && is_whole(pick->from[rank - 1], y->dims[rank - 1], block); rank--)
        block *= y->dims[rank - 1];
    struct rows r = {.pick = &own,
                     .dims = y->dims,
                     .last = &alone,
                     .padding = padding,
                     .to = y->data,
                     .from = x->data,
                     .outer = SY_MAX(rank - 1, 0),
                     .n = 1};
    if (rank) {
        r.n = y->dims[rank - 1];
        r.last = pick->from[rank - 1];
    } else {
        own.runs = &one_run;
    }
    r.size = (int64_t)sy_dtype_bytes(x->dtype);
    r.bytes = block * r.size;
    r.pieces = find_runs(r.last, r.n, block, own.runs);
    r.count = y->n / (r.n * block);
    int64_t parts = y->n > PARALLEL_FROM ? SY_MIN(r.count, PARTS) : 1;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t p = 0; p < parts; p++)
        pick_rows(&r, r.count * p / parts, r.count * (p + 1) / parts);
}
