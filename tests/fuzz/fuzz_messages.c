/* The control socket's codec: what is decoded can be printed, encoded, and decoded to the same again. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/wire/messages.h"
#include "tests/fuzz/fuzz.h"

static uint8_t encoded[SY_MESSAGE_MAX_BYTES], again[SY_MESSAGE_MAX_BYTES];

static void round_trip(const struct sy_message *message, enum sy_message_direction direction)
{
    char line[600], short_line[8];
    struct sy_message second;
    size_t n = 0, m = 0;
    sy_message_dump(message, line, sizeof line);
    sy_message_dump(message, short_line, sizeof short_line);
    FUZZ_CHECK(strlen(short_line) < sizeof short_line &&
               strncmp(line, short_line, strlen(short_line)) == 0);
    /* Numbers may have come in more bytes than they need, never in fewer than they are sent in. */
    FUZZ_CHECK(sy_message_encode(message, encoded, sizeof encoded, &n) == SY_OK);
    FUZZ_CHECK(sy_message_decode(encoded, n, direction, &second) == SY_OK);
    FUZZ_CHECK(second.id == message->id);
    FUZZ_CHECK(sy_message_encode(&second, again, sizeof again, &m) == SY_OK);
    FUZZ_CHECK(n == m && memcmp(encoded, again, n) == 0);
    sy_message_finish(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sy_message message;
    for (int direction = SY_TO_WORKER; direction <= SY_TO_RUNTIME; direction++) {
        if (sy_message_decode(data, size, (enum sy_message_direction)direction, &message) < 0)
            continue;
        round_trip(&message, (enum sy_message_direction)direction);
        sy_message_finish(&message);
    }
    return 0;
}

/* One of each, every field set. */
static uint64_t numbers[3] = {0, 4096, UINT64_MAX};
static void fill_U64(uint64_t *v)
{
    *v = 300;
}
static void fill_I64(int64_t *v)
{
    *v = -5;
}
static void fill_STATUS(int64_t *v)
{
    *v = -5;
}
static void fill_F64(double *v)
{
    *v = 0.5;
}
static void fill_STR(char **v)
{
    static char text[] = "some text";
    *v = text;
}
static void fill_U64S(struct sy_u64s *v)
{
    *v = (struct sy_u64s){3, numbers};
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    struct sy_message message;
    size_t n = 0;
    int at = 0;
    memset(&message, 0, sizeof message);
#define FILL(kind, name) fill_##kind(&m->name);
#define M(NAME, name_, id_, direction)             \
    if (at++ == i) {                               \
        struct sy_msg_##name_ *m = &message.name_; \
        message.id = SY_MSG_##NAME;                \
        SY_FIELDS_##NAME(FILL)                     \
    }
    SY_MESSAGE_TABLE(M)
#undef M
#undef FILL
    if (i >= at || sy_message_encode(&message, to, room, &n) < 0)
        return 0;
    return n;
}
