/* Header values that clients choose: traceparent, tracestate, Accept. The first byte chooses. */
#include <stdlib.h>
#include <string.h>

#include "runtime/metrics/exposition.h"
#include "runtime/telemetry/trace_context.h"
#include "tests/fuzz/fuzz.h"

static void read_parent(const char *text)
{
    struct sy_trace_context context, empty = {0};
    bool is_given = sy_trace_context_parse(text, &context);

    FUZZ_CHECK(is_given == context.is_given);
    FUZZ_CHECK(is_given || memcmp(&context, &empty, sizeof context) == 0);
    FUZZ_CHECK(!is_given || strlen(text) >= 55);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 3) {
    case 0:
        read_parent(text);
        break;
    case 1:
        FUZZ_CHECK(!sy_trace_state_is_valid(text) || strlen(text) < SY_TRACE_STATE_BYTES);
        break;
    default:
        FUZZ_CHECK(sy_exposition_choose(text) <= SY_EXPOSITION_OPENMETRICS);
    }
    free(text);
    return 0;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "\x03"
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "\x03"
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "\x01"
        "rojo=00f067aa0ba902b7,tenant@congo=t61rcWkgMzE , a=b c",
        "\x02"
        "application/openmetrics-text;version=1.0.0;q=0.5, text/plain;q=0.3,*/*",
    };

    return i < (int)(sizeof seeds / sizeof *seeds) ? fuzz_give(seeds[i], strlen(seeds[i]), to, room)
                                                   : 0;
}
