/* The control socket's codec: what is decoded can be printed, encoded, and decoded to the same again. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* As it comes over the control socket: the bytes, with descriptors or without, then what was understood on its way back. */
static void over_socket(const uint8_t *data, size_t size, int n_sent,
                        enum sy_message_direction direction)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * SY_MESSAGE_MAX_FDS * sizeof(int))] = {0};
    int pair[2], fds[SY_MESSAGE_MAX_FDS], sent[2 * SY_MESSAGE_MAX_FDS], n_fds = -1;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    struct sy_message message;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    if (n_sent > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE((size_t)n_sent * sizeof(int));
        struct cmsghdr *item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN((size_t)n_sent * sizeof(int));
        for (int i = 0; i < n_sent; i++)
            sent[i] = pair[0];
        memcpy(CMSG_DATA(item), sent, (size_t)n_sent * sizeof(int));
    }
    FUZZ_CHECK(sendmsg(pair[0], &header, MSG_DONTWAIT) == (ssize_t)size);
    int status = sy_message_receive(pair[1], direction, &message, n_sent & 1 ? fds : NULL, &n_fds);
    if (status == SY_OK) {
        FUZZ_CHECK(n_sent <= SY_MESSAGE_MAX_FDS && n_fds == (n_sent & 1 ? n_sent : 0));
        FUZZ_CHECK(sy_message_send(pair[1], &message, fds, n_fds) == SY_OK);
        FUZZ_CHECK(sy_message_send(pair[1], &message, fds, SY_MESSAGE_MAX_FDS + 1) == SY_EARG);
        while (n_fds > 0)
            close(fds[--n_fds]);
        sy_message_finish(&message);
        FUZZ_CHECK(sy_message_receive(pair[0], direction, &message, NULL, NULL) == SY_OK);
        sy_message_finish(&message);
    }
    FUZZ_CHECK(fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
    FUZZ_CHECK(sy_message_receive(pair[1], direction, &message, NULL, NULL) == SY_EBUSY);
    close(pair[0]);
    FUZZ_CHECK(sy_message_receive(pair[1], direction, &message, NULL, NULL) == SY_EPEER);
    message = (struct sy_message){.id = SY_MSG_SHUTDOWN};
    FUZZ_CHECK(sy_message_send(pair[1], &message, NULL, 0) == SY_EPEER);
    close(pair[1]);
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
    for (int n_fds = 0; size > 0 && n_fds < 2; n_fds++)
        over_socket(data, size, n_fds + data[size - 1] % (2 * SY_MESSAGE_MAX_FDS - 1),
                    SY_TO_RUNTIME);
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
