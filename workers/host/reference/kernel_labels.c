/* LabelEncoder, OneHotEncoder, TfIdfVectorizer: elements looked up in tables that are made with the program. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/key_map.h"
#include "workers/host/base/strings.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/reference/tokens.h"

/* ---- keys --------------------------------------------------------------------------------------------- */

/* An element as bytes that are equal where elements are: strings, integers; doubles without a sign of 0, and with one NaN. */
static const void *key_of(const struct sy_array *x, int64_t i, int64_t *number, uint32_t *bytes)
{
    if (x->dtype == SY_DTYPE_STRING)
        return sy_strings_text(((const struct sy_string *)x->data)[i], bytes);
    *bytes = sizeof *number;
    if (sy_is_float(x->dtype)) {
        double value = sy_get(x, i);
        value = isnan(value) ? (double)NAN : value + 0.0;
        memcpy(number, &value, sizeof value);
    } else {
        *number = sy_get_int(x, i);
    }
    return number;
}

/* The key of element i of a list; floats lie there as doubles by their bits. */
static const void *key_of_list(const struct sy_attr *list, int i, bool floats, int64_t *number,
                               uint32_t *bytes)
{
    if (list->kind == SY_ATTR_STRINGS) {
        size_t n;
        const char *text = sy_attr_string(list, i, &n);
        *bytes = (uint32_t)n;
        return text;
    }
    struct sy_array one = {
        .dtype = floats ? SY_DTYPE_F64 : SY_DTYPE_I64, .n = 1, .data = &list->ints[i]};
    return key_of(&one, 0, number, bytes);
}

static int make_map(const struct sy_attr *list, bool floats, struct sy_key_map **out)
{
    int64_t number;
    uint32_t bytes;
    int32_t found;
    SY_TRY(sy_key_map_create(list->n, out));
    for (int i = 0; i < list->n; i++) {
        const void *key = key_of_list(list, i, floats, &number, &bytes);
        int status = sy_key_map_add(*out, key, bytes, i, &found);
        if (status < 0) {
            sy_key_map_destroy(*out);
            return status;
        }
    }
    return SY_OK;
}

/* ---- LabelEncoder --------------------------------------------------------------------------------------- */

static int prepare_labels(const struct sy_call *call, void **out)
{
    struct sy_key_map *map = NULL;
    SY_TRY(make_map(sy_node_attr(call->node, "keys"), sy_is_float(call->in[0].dtype), &map));
    *out = map;
    return SY_OK;
}

/* Each string is copied to the heap once a run, when the first element needs it. */
static int put_text(const struct sy_attr *list, int i, struct sy_string *known, bool *is_known,
                    struct sy_string *to)
{
    size_t bytes;
    const char *text = sy_attr_string(list, i, &bytes);
    if (!*is_known)
        SY_TRY(sy_strings_add(text, bytes, known));
    *is_known = true;
    *to = *known;
    return SY_OK;
}

static void put_value(const struct sy_array *y, int64_t i, int64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    if (sy_is_float(y->dtype))
        sy_put(y, i, value);
    else
        sy_put_int(y, i, bits);
}

struct known {
    struct sy_string text;
    bool is_known;
};

static int run_labels(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct sy_attr *values = sy_node_attr(call->node, "values"),
                         *otherwise = sy_node_attr(call->node, "otherwise");
    struct known *known = call->scratch; /* of strings: one each, and the default's */
    if (y->dtype == SY_DTYPE_STRING)
        memset(known, 0, ((size_t)values->n + 1) * sizeof *known);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t number;
        uint32_t bytes;
        const void *key = key_of(x, i, &number, &bytes);
        int32_t at = sy_key_map_find(call->state, key, bytes);
        const struct sy_attr *list = at < 0 ? otherwise : values;
        struct known *k = at < 0 ? &known[values->n] : &known[at];
        if (y->dtype == SY_DTYPE_STRING)
            SY_TRY(put_text(list, SY_MAX(at, 0), &k->text, &k->is_known,
                            (struct sy_string *)y->data + i));
        else
            put_value(y, i, list->ints[SY_MAX(at, 0)]);
    }
    return SY_OK;
}

static int64_t scratch_labels(const struct sy_call *call)
{
    const struct sy_attr *values = sy_node_attr(call->node, "values");
    return ((int64_t)values->n + 1) * (int64_t)sizeof(struct known);
}

static int check_labels(const struct sy_call *call)
{
    const struct sy_attr *keys = sy_node_attr(call->node, "keys"),
                         *values = sy_node_attr(call->node, "values"),
                         *otherwise = sy_node_attr(call->node, "otherwise");
    bool by_text = call->in[0].dtype == SY_DTYPE_STRING,
         to_text = call->out[0].dtype == SY_DTYPE_STRING;
    if (!keys || !values || !otherwise || keys->n != values->n || otherwise->n < 1 ||
        keys->kind != (by_text ? SY_ATTR_STRINGS : SY_ATTR_INTS) ||
        values->kind != (to_text ? SY_ATTR_STRINGS : SY_ATTR_INTS) ||
        otherwise->kind != values->kind || call->in[0].n != call->out[0].n)
        return sy_kernel_refuse(call, "keys, values or a result that do not fit");
    return SY_OK;
}

/* ---- OneHotEncoder ---------------------------------------------------------------------------------------- */

static const struct sy_attr *categories(const struct sy_call *call)
{
    return sy_node_attr(call->node,
                        call->in[0].dtype == SY_DTYPE_STRING ? "cats_strings" : "cats_int64s");
}

static int prepare_one_hot(const struct sy_call *call, void **out)
{
    struct sy_key_map *map = NULL;
    SY_TRY(make_map(categories(call), false, &map));
    *out = map;
    return SY_OK;
}

/* Numbers are compared as whole ones, as ONNX Runtime casts them. */
static int run_one_hot(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    bool zeros = sy_node_int(call->node, "zeros", 1) != 0;
    int64_t columns = categories(call)->n;
    float *to = y->data;
    memset(to, 0, (size_t)y->n * sizeof *to);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t number = 0;
        uint32_t bytes = sizeof number;
        const void *key = &number;
        if (x->dtype == SY_DTYPE_STRING)
            key = key_of(x, i, &number, &bytes);
        else
            number = sy_is_float(x->dtype) ? sy_double_to_int(sy_get(x, i)) : sy_get_int(x, i);
        int32_t at = sy_key_map_find(call->state, key, bytes);
        if (at >= 0)
            to[i * columns + at] = 1;
        else if (!zeros)
            return sy_kernel_fail(call, "element %lld is not one of its categories", (long long)i);
    }
    return SY_OK;
}

static int check_one_hot(const struct sy_call *call)
{
    const struct sy_attr *list = categories(call);
    if (!list || call->out[0].dtype != SY_DTYPE_F32 || call->out[0].n != call->in[0].n * list->n)
        return sy_kernel_refuse(call, "categories or a result that do not fit");
    return SY_OK;
}

/* ---- TfIdfVectorizer ------------------------------------------------------------------------------------------ */

struct grams {
    const struct sy_attr *counts, *indexes, *pool, *weights;
    int64_t shortest, longest, skips;
    char mode;                      /* '1' TF, 'i' IDF, 'b' both */
    struct sy_key_map *items, *all; /* items of the pool to numbers, lists of these to grams */
    int32_t *same;                  /* per gram: the next of the same items; -1 */
};

enum { LONGEST_GRAM = 64 };

static bool read_grams(const struct sy_call *call, struct grams *g)
{
    const struct sy_node *node = call->node;
    const struct sy_attr *mode = sy_node_attr(node, "mode");
    bool by_text = call->in[0].dtype == SY_DTYPE_STRING;
    *g = (struct grams){.counts = sy_node_attr(node, "ngram_counts"),
                        .indexes = sy_node_attr(node, "ngram_indexes"),
                        .pool = sy_node_attr(node, by_text ? "pool_strings" : "pool_int64s"),
                        .weights = sy_node_attr(node, "weights"),
                        .shortest = sy_node_int(node, "min_gram_length", 1),
                        .longest = sy_node_int(node, "max_gram_length", 1),
                        .skips = sy_node_int(node, "max_skip_count", 0)};
    const char *text = mode && mode->s ? mode->s : "";
    g->mode = strcmp(text, "TF") == 0      ? '1'
              : strcmp(text, "IDF") == 0   ? 'i'
              : strcmp(text, "TFIDF") == 0 ? 'b'
                                           : 0;
    return g->counts && g->indexes && g->pool && g->counts->kind == SY_ATTR_INTS &&
           g->indexes->kind == SY_ATTR_INTS &&
           g->pool->kind == (by_text ? SY_ATTR_STRINGS : SY_ATTR_INTS) && g->mode != 0 &&
           (!g->weights || g->weights->kind == SY_ATTR_FLOATS);
}

static int64_t end_of(const struct grams *g, int64_t length)
{
    return length < g->counts->n ? g->counts->ints[length] : g->pool->n;
}

/* A gram of the pool: the numbers of its items. Grams of the same items are listed behind the first. */
static int add_gram(struct grams *g, int64_t from, int64_t length, int32_t gram)
{
    int32_t items[LONGEST_GRAM], first;
    for (int64_t k = 0; k < length; k++) {
        int64_t number;
        uint32_t bytes;
        const void *key = key_of_list(g->pool, (int)(from + k), false, &number, &bytes);
        SY_TRY(sy_key_map_add(g->items, key, bytes, (int32_t)(from + k), &items[k]));
    }
    SY_TRY(
        sy_key_map_add(g->all, items, (uint32_t)(length * (int64_t)sizeof *items), gram, &first));
    g->same[gram] = -1;
    if (first != gram) {
        g->same[gram] = g->same[first];
        g->same[first] = gram;
    }
    return SY_OK;
}

static void drop_grams(void *state)
{
    struct grams *g = state;
    if (!g)
        return;
    sy_key_map_destroy(g->items);
    sy_key_map_destroy(g->all);
    free(g->same);
    free(g);
}

static int fill_grams(struct grams *g)
{
    int32_t gram = 0;
    SY_TRY(sy_key_map_create(g->pool->n, &g->items));
    SY_TRY(sy_key_map_create(g->indexes->n, &g->all));
    g->same = malloc(((size_t)g->indexes->n + 1) * sizeof *g->same);
    SY_TRY_ALLOC(g->same, "no memory for %d grams", g->indexes->n);
    for (int64_t length = 1; length <= g->counts->n; length++)
        for (int64_t p = g->counts->ints[length - 1]; p + length <= end_of(g, length);
             p += length, gram++)
            if (length >= g->shortest && length <= g->longest)
                SY_TRY(add_gram(g, p, length, gram));
    return SY_OK;
}

static int prepare_grams(const struct sy_call *call, void **out)
{
    struct grams *g = calloc(1, sizeof *g);
    SY_TRY_ALLOC(g, "no memory for grams");
    read_grams(call, g);
    int status = fill_grams(g);
    if (status < 0) {
        drop_grams(g);
        return status;
    }
    *out = g;
    return SY_OK;
}

/* Grams that begin with item i of the row, `step` between their items. */
static void count_from(const struct grams *g, const int32_t *items, int64_t n, int64_t i,
                       int64_t step, float *to)
{
    int32_t key[LONGEST_GRAM];
    int64_t longest = SY_MIN(g->longest, g->counts->n);
    for (int64_t length = 1; length <= longest && i + (length - 1) * step < n; length++) {
        key[length - 1] = items[i + (length - 1) * step];
        if (key[length - 1] < 0)
            return;
        if (length < g->shortest || (length == 1 && step > 1))
            continue;
        int32_t gram = sy_key_map_find(g->all, key, (uint32_t)(length * (int64_t)sizeof *key));
        for (; gram >= 0; gram = g->same[gram])
            to[g->indexes->ints[gram]] += 1;
    }
}

/* Counts become what the mode says; a column of several grams has the last one's weight, as its counts are one number. */
static void weigh(const struct grams *g, int64_t columns, float *to)
{
    for (int64_t c = 0; c < columns && g->mode == 'i'; c++)
        to[c] = to[c] > 0 ? 1 : 0;
    for (int i = 0; g->mode != '1' && g->weights && i < g->indexes->n; i++)
        to[g->indexes->ints[i]] *= g->weights->floats[i];
}

/* A row of n items, by their numbers. */
static void count_row(const struct grams *g, const int32_t *items, int64_t n, int64_t columns,
                      float *to)
{
    for (int64_t skip = 0; skip <= SY_MIN(g->skips, n); skip++)
        for (int64_t i = 0; i < n; i++)
            count_from(g, items, n, i, skip + 1, to);
    weigh(g, columns, to);
}

/* Whether elements are texts whose tokens are the items (loader/expand/expand_text.c). */
static bool cuts_texts(const struct sy_node *node)
{
    return sy_node_attr(node, "tokenexp") || sy_node_attr(node, "separators");
}

/* Each element of x is a row. No text has more tokens than bytes. */
static int count_texts(const struct sy_call *call, const struct sy_tokens *tokens,
                       struct sy_string *to, int32_t *items)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct grams *g = call->state;
    int64_t columns = y->dims[y->rank - 1];
    for (int64_t row = 0; row < x->n; row++) {
        uint32_t bytes;
        struct sy_string whole = ((const struct sy_string *)x->data)[row];
        const char *text = sy_strings_text(whole, &bytes);
        struct sy_parts parts = {.whole = whole, .to = to, .room = bytes};
        SY_TRY(sy_tokens_cut(tokens, &parts, text, bytes));
        assert(parts.n <= parts.room);
        for (int64_t i = 0; i < parts.n; i++) {
            const char *token = sy_strings_text(to[i], &bytes);
            items[i] = sy_key_map_find(g->items, token, bytes);
        }
        count_row(g, items, parts.n, columns, (float *)y->data + row * columns);
    }
    return SY_OK;
}

static int run_texts(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    struct sy_tokens tokens;
    uint32_t bytes, most = 0;
    for (int64_t i = 0; i < x->n; i++) {
        sy_strings_text(((const struct sy_string *)x->data)[i], &bytes);
        most = SY_MAX(most, bytes);
    }
    struct sy_string *to = malloc(((size_t)most + 1) * sizeof *to);
    int32_t *items = malloc(((size_t)most + 1) * sizeof *items);
    int status = sy_tokens_open(call->node, &tokens);
    if (!to || !items)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the tokens of %u bytes", most);
    if (status == SY_OK)
        status = count_texts(call, &tokens, to, items);
    sy_tokens_finish(&tokens);
    free(to);
    free(items);
    return status;
}

static int run_grams(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct grams *g = call->state;
    int64_t n = x->dims[x->rank - 1], rows = x->rank == 2 ? x->dims[0] : 1,
            columns = y->dims[y->rank - 1];
    int32_t *items = call->scratch;
    memset(y->data, 0, (size_t)y->n * sizeof(float));
    if (cuts_texts(call->node))
        return run_texts(call);
    for (int64_t row = 0; row < rows; row++) {
        float *to = (float *)y->data + row * columns;
        for (int64_t i = 0; i < n; i++) {
            int64_t number;
            uint32_t bytes;
            const void *key = key_of(x, row * n + i, &number, &bytes);
            items[i] = sy_key_map_find(g->items, key, bytes);
        }
        count_row(g, items, n, columns, to);
    }
    return SY_OK;
}

static int64_t scratch_grams(const struct sy_call *call)
{
    return (call->in[0].dims[call->in[0].rank - 1] + 1) * (int64_t)sizeof(int32_t);
}

static int check_grams(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct grams g;
    int64_t grams = 0;
    bool texts = cuts_texts(call->node), by_row = texts || x->rank == 2;
    if (!read_grams(call, &g) || x->rank < 1 || x->rank > 2 || y->rank != (by_row ? 2 : 1) ||
        y->dtype != SY_DTYPE_F32 || (by_row && x->dims[0] != y->dims[0]) ||
        (texts && (x->dtype != SY_DTYPE_STRING || x->n != y->dims[0])))
        return sy_kernel_refuse(call, "this mode, or attributes that are missing");
    if (g.counts->n > LONGEST_GRAM || g.skips < 0 || g.skips > INT32_MAX || g.shortest < 1)
        return sy_kernel_refuse(call, "grams or skips that are too long");
    for (int i = 0; i < g.counts->n; i++) {
        int64_t start = g.counts->ints[i], end = end_of(&g, i + 1);
        if (start < 0 || end < start || end > g.pool->n)
            return sy_kernel_refuse(call, "ngram_counts that do not fit the pool");
        grams += (end - start) / (i + 1);
    }
    bool fits = grams <= g.indexes->n && (!g.weights || g.indexes->n <= g.weights->n);
    for (int i = 0; fits && i < g.indexes->n; i++)
        fits = g.indexes->ints[i] >= 0 && g.indexes->ints[i] < y->dims[y->rank - 1];
    return fits ? SY_OK : sy_kernel_refuse(call, "ngram_indexes or weights that do not fit");
}

#define LABELS (SY_ANY_NUMBER | SY_BIT(STRING))
const struct sy_kernel sy_kernels_labels[] = {
    {SY_OP_ML_LABEL_ENCODER, run_labels, {LABELS}, check_labels, scratch_labels},
    {SY_OP_ML_ONE_HOT, run_one_hot, {LABELS}, check_one_hot, NULL},
    {SY_OP_TF_IDF, run_grams, {SY_ANY_INDEX | SY_BIT(STRING)}, check_grams, scratch_grams},
    {0}};

const struct sy_kernel_state sy_kernel_states[] = {
    {SY_OP_ML_LABEL_ENCODER, prepare_labels, sy_key_map_destroy},
    {SY_OP_ML_ONE_HOT, prepare_one_hot, sy_key_map_destroy},
    {SY_OP_TF_IDF, prepare_grams, drop_grams},
    {0}};
