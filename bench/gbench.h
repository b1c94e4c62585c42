/* Google Benchmark for C: the few calls that our benches need.
 *
 * A bench registers C functions, hands argc/argv over (so that --benchmark_filter, --benchmark_repetitions,
 * --benchmark_out=FILE --benchmark_out_format=json and the rest work) and runs. Results are in Google Benchmark's own format. */
#ifndef SY_BENCH_GBENCH_H
#define SY_BENCH_GBENCH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gb_state; /* benchmark::State, valid inside the function that got it */
typedef void (*gb_function)(struct gb_state *state, void *arg);

struct gb_options {
    int64_t iterations; /* 0: chosen by Google Benchmark */
    bool manual_time;   /* the function reports each iteration's time itself */
    bool milliseconds;  /* unit of the table; else nanoseconds */
    int repetitions;    /* 0: 1 */
};

void gb_register(const char *name, gb_function function, void *arg,
                 const struct gb_options *options);
/* "commit", "device" ... in the JSON's context. Strings are copied. */
void gb_add_context(const char *key, const char *value);
/* Removes Google Benchmark's flags from argv; the others are the caller's. */
void gb_initialize(int *argc, char **argv);
/* Runs the selected benchmarks; returns their number. */
int gb_run(void);

bool gb_keep_running(struct gb_state *state); /* use: while (gb_keep_running(s)) one iteration; */
void gb_pause_timing(struct gb_state *state);
void gb_resume_timing(struct gb_state *state);
void gb_set_iteration_seconds(struct gb_state *state, double seconds); /* with manual_time */
void gb_set_counter(struct gb_state *state, const char *name, double value);
void gb_set_label(struct gb_state *state, const char *label);
void gb_fail(struct gb_state *state,
             const char *message); /* this benchmark is reported as an error; stop iterating */

#ifdef __cplusplus
}
#endif

#endif
