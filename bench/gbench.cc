#include "bench/gbench.h"

#include <benchmark/benchmark.h>

static benchmark::State *unwrap(struct gb_state *state)
{
    return reinterpret_cast<benchmark::State *>(state);
}

void gb_register(const char *name, gb_function function, void *arg,
                 const struct gb_options *options)
{
    auto *b = benchmark::RegisterBenchmark(name, [function, arg](benchmark::State &state) {
        function(reinterpret_cast<struct gb_state *>(&state), arg);
    });
    if (options->iterations > 0)
        b->Iterations(options->iterations);
    if (options->repetitions > 0)
        b->Repetitions(options->repetitions);
    if (options->manual_time)
        b->UseManualTime();
    else
        b->UseRealTime();
    if (options->milliseconds)
        b->Unit(benchmark::kMillisecond);
}

void gb_add_context(const char *key, const char *value)
{
    benchmark::AddCustomContext(key, value);
}

void gb_initialize(int *argc, char **argv)
{
    benchmark::Initialize(argc, argv);
}

int gb_run(void)
{
    size_t n = benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return static_cast<int>(n);
}

bool gb_keep_running(struct gb_state *state)
{
    return unwrap(state)->KeepRunning();
}

void gb_pause_timing(struct gb_state *state)
{
    unwrap(state)->PauseTiming();
}

void gb_resume_timing(struct gb_state *state)
{
    unwrap(state)->ResumeTiming();
}

void gb_set_iteration_seconds(struct gb_state *state, double seconds)
{
    unwrap(state)->SetIterationTime(seconds);
}

void gb_set_counter(struct gb_state *state, const char *name, double value)
{
    unwrap(state)->counters[name] = benchmark::Counter(value);
}

void gb_set_label(struct gb_state *state, const char *label)
{
    unwrap(state)->SetLabel(label);
}

void gb_fail(struct gb_state *state, const char *message)
{
    unwrap(state)->SkipWithError(message);
}
