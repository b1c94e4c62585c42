#include "workers/cuda/math/choices.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* A model has some hundred; those of all models of a worker are some thousand, looked up when programs are made: a scan will do. */
#define MAX_CHOICES (1 << 16)
#define LINE_BYTES  (16 + 3 * 12 + 2 * SY_CHOICE_DATA + 8)

struct sy_choices {
    char *label;
    int n, capacity;
    struct sy_choice *list;
};

int sy_choices_create(const char *label, struct sy_choices **out)
{
    struct sy_choices *c = calloc(1, sizeof *c);
    if (c)
        c->label = strdup(label);
    if (!c || !c->label) {
        sy_choices_destroy(c);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the choice of algorithms");
    }
    for (char *at = c->label; *at; at++)
        *at = *at == '\n' ? ' ' : *at;
    *out = c;
    return SY_OK;
}

void sy_choices_destroy(struct sy_choices *c)
{
    if (!c)
        return;
    free(c->label);
    free(c->list);
    free(c);
}

/* FNV-1a over bytes, then mixed: descriptions differ in few low bits. */
uint64_t sy_choices_key(const int64_t *words, size_t n)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++)
        for (int b = 0; b < 64; b += 8) {
            h ^= (uint64_t)words[i] >> b & 0xff;
            h *= 0x100000001b3ull;
        }
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ull;
    return h ^ h >> 32;
}

static struct sy_choice *find(const struct sy_choices *c, uint64_t key)
{
    for (int i = 0; i < c->n; i++)
        if (c->list[i].key == key)
            return &c->list[i];
    return NULL;
}

const struct sy_choice *sy_choices_find(const struct sy_choices *c, uint64_t key)
{
    return find(c, key);
}

int sy_choices_put(struct sy_choices *c, const struct sy_choice *choice)
{
    struct sy_choice *known = find(c, choice->key);
    if (known) {
        *known = *choice;
        return SY_OK;
    }
    if (c->n == MAX_CHOICES)
        return sy_error_set(SY_ETOOBIG, "more than %d choices of algorithms", MAX_CHOICES);
    if (c->n == c->capacity) {
        int capacity = c->capacity ? 2 * c->capacity : 64;
        struct sy_choice *grown = realloc(c->list, (size_t)capacity * sizeof *grown);
        SY_TRY_ALLOC(grown, "no memory for %d choices of algorithms", capacity);
        c->list = grown;
        c->capacity = capacity;
    }
    c->list[c->n++] = *choice;
    return SY_OK;
}

static uint64_t any_key(const int64_t *words, size_t n, size_t batch_word)
{
    int64_t any[SY_CHOICE_WORDS];
    assert(n <= SY_CHOICE_WORDS && batch_word < n);
    memcpy(any, words, n * sizeof *any);
    any[batch_word] = -1;
    return sy_choices_key(any, n);
}

const struct sy_choice *sy_choices_find_any(const struct sy_choices *c, const int64_t *words,
                                            size_t n, size_t batch_word)
{
    const struct sy_choice *exact = find(c, sy_choices_key(words, n));
    return exact ? exact : find(c, any_key(words, n, batch_word));
}

int sy_choices_put_any(struct sy_choices *c, const int64_t *words, size_t n, size_t batch_word,
                       struct sy_choice *choice)
{
    choice->key = any_key(words, n, batch_word);
    SY_TRY(sy_choices_put(c, choice));
    choice->key = sy_choices_key(words, n);
    return sy_choices_put(c, choice);
}

int sy_choices_write(const struct sy_choices *c, char **out)
{
    size_t room = strlen(c->label) + 2 + (size_t)c->n * LINE_BYTES, at;
    char *text = malloc(room);
    SY_TRY_ALLOC(text, "no memory for %d choices of algorithms", c->n);
    at = (size_t)snprintf(text, room, "%s\n", c->label);
    for (int i = 0; i < c->n; i++) {
        const struct sy_choice *x = &c->list[i];
        at += (size_t)snprintf(text + at, room - at,
                               "%016" PRIx64 " %" PRId32 " %" PRId32 " %" PRId32 " ", x->key,
                               x->way, x->algo, x->math_type);
        for (int b = 0; b < SY_CHOICE_DATA; b++)
            at += (size_t)snprintf(text + at, room - at, "%02x", x->data[b]);
        text[at++] = '\n';
    }
    text[at] = 0;
    *out = text;
    return SY_OK;
}

static bool read_line(const char *line, struct sy_choice *out)
{
    char hex[2 * SY_CHOICE_DATA + 2];
    int used = 0;
    unsigned byte;
    if (sscanf(line, "%16" SCNx64 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %129[0-9a-f]%n", &out->key,
               &out->way, &out->algo, &out->math_type, hex, &used) != 5 ||
        line[used] != '\n' || strlen(hex) != 2 * SY_CHOICE_DATA)
        return false;
    for (int b = 0; b < SY_CHOICE_DATA; b++) {
        sscanf(&hex[2 * b], "%2x", &byte);
        out->data[b] = (unsigned char)byte;
    }
    return true;
}

static int add_lines(struct sy_choices *c, const char *text, bool add)
{
    struct sy_choice choice;
    int n = 2;
    for (const char *line = text; *line; n++) {
        if (!read_line(line, &choice))
            return sy_error_set(SY_ECORRUPT, "choice of algorithms, line %d: %.40s", n, line);
        if (add && !find(c, choice.key))
            SY_TRY(sy_choices_put(c, &choice));
        line = strchr(line, '\n') + 1;
    }
    return SY_OK;
}

int sy_choices_read(struct sy_choices *c, const char *text)
{
    const char *end = strchr(text, '\n');
    if (!*text)
        return SY_OK;
    if (!end)
        return sy_error_set(SY_ECORRUPT, "choice of algorithms: its first line has no end");
    if (strlen(c->label) != (size_t)(end - text) || strncmp(c->label, text, (size_t)(end - text)))
        return sy_error_set(SY_EUNSUPPORTED,
                            "algorithms were chosen on \"%.*s\", this is \"%s\": import the model "
                            "again to have them measured here",
                            (int)SY_MIN(end - text, 200), text, c->label);
    SY_TRY(add_lines(c, end + 1, false));
    return add_lines(c, end + 1, true);
}
