/* Drives a fuzz target in the tests: its seeds, the corpus in the folder fuzz_NAME.corpus beside it, then mutations of both. The same
 * seed, the same inputs, whatever compiler and machine. New errors are looked for by libFuzzer (fuzz_guided.c).
 *
 *   fuzz_NAME [--runs N] [--seed S] [--seconds T]     runs until N inputs or T seconds, whichever comes first
 *   fuzz_NAME FILE...                                 replays inputs
 *   fuzz_NAME --replay                                seeds and corpus, nothing mutated
 *
 * Without arguments: a short run for `make test`. An input that was refused in new words (fuzz_feedback.h) joins the corpus. The input
 * that kills the target is written to fuzz_NAME-crash-SEED-RUN beside the target. Memory is bounded: FUZZ_MAX_BYTES an input,
 * MAX_CORPUS inputs, and the sanitizer stops a single allocation over 512 MB or 2 GB in all. */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_feedback.h"

#define MAX_CORPUS      2048
#define SECONDS_A_INPUT 20 /* longer is a hang */

struct input {
    size_t n;
    uint8_t *bytes;
};

static struct input corpus[MAX_CORPUS];
static int n_corpus, n_seeds;
static uint64_t random_state, seed, runs_done;
static const char *target_path, *target_name;
static bool is_replay;
static uint8_t current[FUZZ_MAX_BYTES];
static size_t current_bytes;

/* ---- the input that kills --------------------------------------------------------------------------------------- */

static void save_current(void)
{
    char name[4096];
    if (is_replay) /* it is in a file already */
        return;
    snprintf(name, sizeof name, "%s-crash-%llu-%llu", target_path, (unsigned long long)seed,
             (unsigned long long)runs_done);
    FILE *file = fopen(name, "wb");
    if (!file)
        return;
    fwrite(current, 1, current_bytes, file);
    fclose(file);
    fprintf(stderr, "fuzz: %zu bytes written to %s; replay: %s %s\n", current_bytes, name,
            target_path, name);
}

static void on_signal(int signal_number)
{
    fprintf(stderr, "fuzz: %s\n",
            signal_number == SIGALRM ? "the input takes too long" : "aborted");
    save_current();
    _exit(99);
}

#ifdef SY_SANITIZED
/* The sanitizers' libraries look these up and call them before anything else is there, themselves too. */
#define EARLY __attribute__((visibility("default"), no_sanitize("address")))

void __sanitizer_set_death_callback(void (*callback)(void)); /* gcc has no header for it */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

EARLY const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=512:hard_rss_limit_mb=2048:detect_leaks=1";
}

EARLY const char *__ubsan_default_options(void)
{
    return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}
#endif

static void watch_for_death(void)
{
    signal(SIGALRM, on_signal);
    signal(SIGABRT, on_signal);
#ifdef SY_SANITIZED
    __sanitizer_set_death_callback(save_current);
#else
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGFPE, on_signal);
#endif
}

/* ---- random --------------------------------------------------------------------------------------------------- */

static uint64_t draw(void) /* splitmix64 */
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static size_t below(size_t n)
{
    return n ? (size_t)(draw() % n) : 0;
}

/* ---- mutations, each on `current` ------------------------------------------------------------------------------ */

static void flip_bit(void)
{
    if (current_bytes)
        current[below(current_bytes)] ^= (uint8_t)(1u << below(8));
}

static void set_byte(void)
{
    if (current_bytes)
        current[below(current_bytes)] = (uint8_t)draw();
}

/* Lengths, signs and limits, in 1 to 8 bytes, either end first. */
static void set_interesting(void)
{
    static const uint64_t values[] = {
        0,           1,          2,          7,          8,
        16,          63,         64,         127,        128,
        255,         256,        4095,       4096,       32767,
        65535,       65536,      0x7fffffff, 0x80000000, 0xffffffff,
        0x100000000, 1ull << 40, INT64_MAX,  1ull << 63, UINT64_MAX - 4095,
        UINT64_MAX};
    size_t width = (size_t)1 << below(4);
    if (current_bytes < width)
        return;
    uint64_t value = values[below(sizeof values / sizeof *values)];
    uint8_t *at = current + below(current_bytes - width + 1);
    bool big_endian = draw() & 1;
    for (size_t i = 0; i < width; i++)
        at[big_endian ? width - 1 - i : i] = (uint8_t)(value >> 8 * i);
}

static void add_small(void)
{
    if (current_bytes)
        current[below(current_bytes)] += (uint8_t)(below(33) - 16);
}

static void insert_bytes(const uint8_t *from, size_t n)
{
    size_t at = below(current_bytes + 1);
    if (n > FUZZ_MAX_BYTES - current_bytes)
        return;
    memmove(current + at + n, current + at, current_bytes - at);
    for (size_t i = 0; i < n; i++)
        current[at + i] = from ? from[i] : (uint8_t)draw();
    current_bytes += n;
}

static void insert_random(void)
{
    insert_bytes(NULL, 1 + below(8));
}

static void duplicate_part(void)
{
    static uint8_t part[FUZZ_MAX_BYTES];
    size_t from = below(current_bytes), n = below(current_bytes - from + 1) % 256;
    memcpy(part, current + from, n);
    insert_bytes(part, n);
}

static void copy_within(void)
{
    size_t n = 1 + below(32);
    if (current_bytes > n)
        memmove(current + below(current_bytes - n), current + below(current_bytes - n), n);
}

static void delete_part(void)
{
    size_t from = below(current_bytes), n = below(current_bytes - from + 1) % 64;
    memmove(current + from, current + from + n, current_bytes - from - n);
    current_bytes -= n;
}

static void truncate_input(void)
{
    current_bytes = below(current_bytes + 1);
}

static void splice(void)
{
    const struct input *other = &corpus[below((size_t)n_corpus)];
    size_t keep = below(current_bytes + 1), from = below(other->n + 1), n = other->n - from;
    n = n > FUZZ_MAX_BYTES - keep ? FUZZ_MAX_BYTES - keep : n;
    memcpy(current + keep, other->bytes + from, n);
    current_bytes = keep + n;
}

static void insert_from_other(void)
{
    const struct input *other = &corpus[below((size_t)n_corpus)];
    size_t from = below(other->n), n = below(other->n - from + 1) % 128;
    insert_bytes(other->bytes + from, n);
}

/* Something that the code compared the input with, over it or into it. */
static void place_word(void)
{
    const uint8_t *word;
    size_t n = fuzz_feedback_word(draw(), &word);
    if (n == 0 || n > current_bytes)
        return;
    if (draw() & 1)
        insert_bytes(word, n);
    else
        memcpy(current + below(current_bytes - n + 1), word, n);
}

static void mutate(void)
{
    static void (*const mutations[])(void) = {flip_bit,          flip_bit,        set_byte,
                                              set_byte,          set_interesting, add_small,
                                              insert_random,     delete_part,     copy_within,
                                              duplicate_part,    splice,          truncate_input,
                                              add_small,         flip_bit,        set_interesting,
                                              insert_from_other, place_word,      place_word};
    /* Mostly few at once: many leave nothing that is understood. */
    int n = 1 + (int)below((size_t)1 << below(4));
    for (int i = 0; i < n; i++)
        mutations[below(sizeof mutations / sizeof *mutations)]();
}

/* ---- the corpus -------------------------------------------------------------------------------------------------- */

static void keep_current(void)
{
    int at = n_corpus;
    if (n_corpus == MAX_CORPUS)
        at = n_seeds + (int)below((size_t)(MAX_CORPUS - n_seeds)); /* seeds stay */
    else
        n_corpus++;
    free(corpus[at].bytes);
    corpus[at] = (struct input){current_bytes, malloc(current_bytes + 1)};
    if (!corpus[at].bytes)
        abort();
    memcpy(corpus[at].bytes, current, current_bytes);
}

static void load_seeds(void)
{
    while (n_seeds < MAX_CORPUS / 2 &&
           (current_bytes = fuzz_seed(n_seeds, current, FUZZ_MAX_BYTES)) > 0) {
        n_seeds++;
        keep_current();
    }
}

static void read_current(const char *name)
{
    FILE *file = fopen(name, "rb");
    if (!file) {
        perror(name);
        exit(1);
    }
    current_bytes = fread(current, 1, sizeof current, file);
    fclose(file);
}

/* In the order of their names; what is kept of it stays, as seeds do. */
static void load_corpus(void)
{
    char folder[4096];
    struct dirent **files;
    snprintf(folder, sizeof folder, "%s.corpus", target_path);
    int n = scandir(folder, &files, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char name[8192];
        snprintf(name, sizeof name, "%s/%s", folder, files[i]->d_name);
        if (files[i]->d_name[0] != '.' && n_seeds < MAX_CORPUS / 2) {
            read_current(name);
            n_seeds++;
            keep_current();
        }
        free(files[i]);
    }
    if (n >= 0)
        free(files);
    if (n_seeds == 0) {
        fprintf(stderr, "fuzz: %s has neither seeds nor a corpus\n", target_name);
        exit(2);
    }
}

/* On a copy of exactly its length, so that one byte too far is seen. */
static bool run_current(void)
{
    uint8_t *copy = malloc(current_bytes ? current_bytes : 1);
    if (!copy)
        abort();
    memcpy(copy, current, current_bytes);
    sy_error_set(SY_OK, "%s", "");
    alarm(SECONDS_A_INPUT);
    fuzz_feedback_begin();
    LLVMFuzzerTestOneInput(copy, current_bytes);
    bool is_new = fuzz_feedback_end();
    alarm(0);
    free(copy);
    return is_new;
}

/* ---- main --------------------------------------------------------------------------------------------------------- */

static void fuzz(uint64_t runs, double seconds)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (runs_done = 0; runs_done < runs; runs_done++) {
        bool is_seed = runs_done < (uint64_t)n_seeds;
        const struct input *from = &corpus[is_seed ? (size_t)runs_done : below((size_t)n_corpus)];
        memcpy(current, from->bytes, from->n);
        current_bytes = from->n;
        if (!is_seed)
            mutate();
        if (run_current() && !is_seed)
            keep_current();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9 >
            seconds)
            break;
    }
    printf(
        "[       OK ] %s: seed %llu, %llu inputs from %d seeds, %d kept, %d different refusals\n",
        target_name, (unsigned long long)seed, (unsigned long long)runs_done, n_seeds,
        n_corpus - n_seeds, fuzz_feedback_seen());
}

static void replay(const char *name)
{
    is_replay = true;
    read_current(name);
    run_current();
    printf("%s: %zu bytes, %s\n", name, current_bytes,
           *sy_error_text() ? sy_error_text() : "no error");
}

int main(int argc, char **argv)
{
    uint64_t runs = 20000;
    double seconds = 3;
    const char *slash = strrchr(argv[0], '/'), *from_environment = getenv("SY_SEED");
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    target_path = argv[0];
    target_name = slash ? slash + 1 : argv[0];
    seed = from_environment ? strtoull(from_environment, NULL, 0) : 1;
    sy_log_threshold = SY_LOG_ERROR;
    watch_for_death();
    for (int i = 1; i < argc; i += 2) {
        if (strncmp(argv[i], "--", 2) != 0) {
            for (; i < argc; i++)
                replay(argv[i]);
            return 0;
        }
        if (strcmp(argv[i], "--replay") == 0) {
            runs = 0;
            seconds = 1e9;
        } else if (i + 1 < argc && strcmp(argv[i], "--runs") == 0) {
            runs = strtoull(argv[i + 1], NULL, 0);
            seconds = 1e9;
        } else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0) {
            seconds = strtod(argv[i + 1], NULL);
            runs = UINT64_MAX;
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 0);
        } else {
            fprintf(stderr, "usage: %s [--runs N] [--seed S] [--seconds T] | --replay | FILE...\n",
                    argv[0]);
            return 2;
        }
    }
    random_state = seed;
    load_seeds();
    load_corpus();
    fuzz(runs ? runs : (uint64_t)n_seeds, seconds);
    for (int i = 0; i < n_corpus; i++)
        free(corpus[i].bytes);
    return 0;
}
