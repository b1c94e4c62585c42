#include "tests/fuzz/fuzz_feedback.h"

#include <string.h>

#include "runtime/base/status.h"

#define MAX_TEXTS 4096 /* hashes of error texts */
#define N_WORDS   256
#define VISIBLE   __attribute__((visibility("default")))

static bool running;
static int n_seen;

/* ---- error texts -------------------------------------------------------------------------------------------------- */

static bool text_is_new(const char *text)
{
    static uint32_t known[MAX_TEXTS];
    uint32_t hash = 2166136261u;
    char quote = 0;
    for (; *text; text++) {
        if (*text == quote)
            quote = 0;
        else if (quote == 0 && (*text == '"' || *text == '\''))
            quote = *text;
        else if (quote == 0 && (*text < '0' || *text > '9'))
            hash = (hash ^ (uint8_t)*text) * 16777619u;
    }
    for (int i = 0; i < n_seen; i++)
        if (known[i] == hash)
            return false;
    if (n_seen == MAX_TEXTS)
        return false;
    known[n_seen++] = hash;
    return true;
}

/* ---- words -------------------------------------------------------------------------------------------------------- */

static struct {
    size_t n;
    uint8_t bytes[FUZZ_MAX_WORD];
} words[N_WORDS];

static void keep_word(const void *from, size_t n)
{
    const uint8_t *bytes = from;
    uint32_t hash = 2166136261u;
    if (!running || n < 2 || n > FUZZ_MAX_WORD)
        return;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    words[hash % N_WORDS].n = n; /* a place for each hash: the same word again changes nothing */
    for (size_t i = 0; i < n; i++)
        words[hash % N_WORDS].bytes[i] = bytes[i];
}

/* Called by the address sanitizer's interceptors. */
void __sanitizer_weak_hook_strcmp(void *pc, const char *a, const char *b, int result);
void __sanitizer_weak_hook_strncmp(void *pc, const char *a, const char *b, size_t n, int result);
void __sanitizer_weak_hook_memcmp(void *pc, const void *a, const void *b, size_t n, int result);

VISIBLE void __sanitizer_weak_hook_strcmp(void *pc, const char *a, const char *b, int result)
{
    (void)pc, (void)a;
    if (result != 0)
        keep_word(b, strnlen(b, FUZZ_MAX_WORD + 1));
}

VISIBLE void __sanitizer_weak_hook_strncmp(void *pc, const char *a, const char *b, size_t n,
                                           int result)
{
    (void)pc, (void)a;
    if (result != 0)
        keep_word(b, strnlen(b, n < FUZZ_MAX_WORD ? n : FUZZ_MAX_WORD + 1));
}

VISIBLE void __sanitizer_weak_hook_memcmp(void *pc, const void *a, const void *b, size_t n,
                                          int result)
{
    (void)pc, (void)a;
    if (result != 0)
        keep_word(b, n);
}

size_t fuzz_feedback_word(uint64_t random, const uint8_t **out)
{
    size_t i = (size_t)(random % N_WORDS);
    *out = words[i].bytes;
    return words[i].n;
}

/* ---- a run -------------------------------------------------------------------------------------------------------- */

void fuzz_feedback_begin(void)
{
    running = true;
}

bool fuzz_feedback_end(void)
{
    running = false;
    return text_is_new(sy_error_text());
}

int fuzz_feedback_seen(void)
{
    return n_seen;
}
