#include "runtime/wire/messages.h"

#include <errno.h>
#include <inttypes.h>
#include <msgpack.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"

#define SEND_PATIENCE_NS SY_NS_PER_S

/* ---- what the table says of each message --------------------------------------------------------- */

enum field_kind { KIND_U64, KIND_I64, KIND_STATUS, KIND_F64, KIND_STR, KIND_U64S };

struct field {
    enum field_kind kind;
    const char *name;
    size_t offset; /* in struct sy_message */
};

struct descriptor {
    int id;
    const char *name;
    enum sy_message_direction direction;
    int n_fields;
    const struct field *fields;
};

/* The fields of one message as an array: F sees the message's name through the enclosing M. */
#define FIELD_ROW(kind, field_name) {KIND_##kind, #field_name, offsetof(struct here, m.field_name)},
#define M(NAME, name, id, direction)                                      \
    static const struct field *fields_of_##name(int *n)                   \
    {                                                                     \
        struct here {                                                     \
            struct sy_msg_##name m;                                       \
        };                                                                \
        static const struct field rows[] = {SY_FIELDS_##NAME(FIELD_ROW)}; \
        *n = (int)SY_ARRAY_LEN(rows);                                     \
        return rows;                                                      \
    }
SY_MESSAGE_TABLE(M)
#undef M

static bool describe(int id, struct descriptor *out)
{
    switch (id) {
#define M(NAME, name_, id_, direction_)                  \
    case id_:                                            \
        out->id = id_;                                   \
        out->name = #NAME;                               \
        out->direction = SY_##direction_;                \
        out->fields = fields_of_##name_(&out->n_fields); \
        return true;
        SY_MESSAGE_TABLE(M)
#undef M
    default:
        return false;
    }
}

/* All members of the union start at the same place. */
static void *field_of(const struct sy_message *message, const struct field *field)
{
    return (unsigned char *)message + offsetof(struct sy_message, hello) + field->offset;
}

const char *sy_message_name(int id)
{
    struct descriptor descriptor;

    return describe(id, &descriptor) ? descriptor.name : "?";
}

/* ---- encoding -------------------------------------------------------------------------------------- */

struct span {
    char *bytes;
    size_t used, capacity;
};

static int span_write(void *data, const char *bytes, size_t n)
{
    struct span *span = data;

    if (n > span->capacity - span->used)
        return -1;
    memcpy(span->bytes + span->used, bytes, n);
    span->used += n;
    return 0;
}

static int pack_text(msgpack_packer *packer, const char *text)
{
    size_t n = text ? strlen(text) : 0;

    return msgpack_pack_str(packer, n) || msgpack_pack_str_body(packer, text ? text : "", n);
}

static int pack_u64s(msgpack_packer *packer, const struct sy_u64s *array)
{
    if (msgpack_pack_array(packer, array->n))
        return -1;
    for (size_t i = 0; i < array->n; i++)
        if (msgpack_pack_uint64(packer, array->v[i]))
            return -1;
    return 0;
}

static int pack_field(msgpack_packer *packer, enum field_kind kind, const void *value)
{
    switch (kind) {
    case KIND_U64:
        return msgpack_pack_uint64(packer, *(const uint64_t *)value);
    case KIND_I64:
    case KIND_STATUS:
        return msgpack_pack_int64(packer, *(const int64_t *)value);
    case KIND_F64:
        return msgpack_pack_double(packer, *(const double *)value);
    case KIND_STR:
        return pack_text(packer, *(char *const *)value);
    case KIND_U64S:
        return pack_u64s(packer, value);
    }
    return -1;
}

int sy_message_encode(const struct sy_message *message, void *buffer, size_t capacity,
                      size_t *out_bytes)
{
    struct span span = {.bytes = buffer, .capacity = capacity};
    struct descriptor descriptor;
    msgpack_packer packer;
    int failed;

    if (!describe((int)message->id, &descriptor))
        return sy_error_set(SY_EBUG, "no message has the id %d", (int)message->id);
    msgpack_packer_init(&packer, &span, span_write);
    failed = msgpack_pack_array(&packer, (size_t)descriptor.n_fields + 1) ||
             msgpack_pack_int(&packer, descriptor.id);
    for (int i = 0; !failed && i < descriptor.n_fields; i++)
        failed = pack_field(&packer, descriptor.fields[i].kind,
                            field_of(message, &descriptor.fields[i]));
    if (failed)
        return sy_error_set(SY_ETOOBIG, "message %s does not fit into %zu bytes", descriptor.name,
                            capacity);
    *out_bytes = span.used;
    return SY_OK;
}

/* ---- decoding -------------------------------------------------------------------------------------- */

/* Bytes that a field's copy takes in the message's storage. */
static size_t storage_of(const msgpack_object *object)
{
    if (object->type == MSGPACK_OBJECT_STR)
        return (size_t)object->via.str.size + 1;
    if (object->type == MSGPACK_OBJECT_ARRAY)
        return (size_t)object->via.array.size * sizeof(uint64_t);
    return 0;
}

static bool unpack_u64s(const msgpack_object *object, struct sy_u64s *array, unsigned char **room)
{
    if (object->type != MSGPACK_OBJECT_ARRAY)
        return false;
    array->n = object->via.array.size;
    array->v = (uint64_t *)*room;
    for (size_t i = 0; i < array->n; i++) {
        if (object->via.array.ptr[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
            return false;
        array->v[i] = object->via.array.ptr[i].via.u64;
    }
    *room += array->n * sizeof(uint64_t);
    return true;
}

static bool unpack_i64(const msgpack_object *object, int64_t *value)
{
    if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        *value = object->via.i64;
    else if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= INT64_MAX)
        *value = (int64_t)object->via.u64;
    else
        return false;
    return true;
}

static bool unpack_text(const msgpack_object *object, char **text, char **room)
{
    size_t n;

    if (object->type != MSGPACK_OBJECT_STR)
        return false;
    n = object->via.str.size;
    if (n > 0 && memchr(object->via.str.ptr, 0, n))
        return false;
    if (n > 0) /* the library gives NULL for "" */
        memcpy(*room, object->via.str.ptr, n);
    (*room)[n] = 0;
    *text = *room;
    *room += n + 1;
    return true;
}

static bool unpack_field(const msgpack_object *object, enum field_kind kind, void *value,
                         unsigned char **words, char **letters)
{
    switch (kind) {
    case KIND_U64:
        if (object->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
            return false;
        *(uint64_t *)value = object->via.u64;
        return true;
    case KIND_I64:
        return unpack_i64(object, value);
    case KIND_STATUS:
        return unpack_i64(object, value) && sy_status_is_known(*(int64_t *)value);
    case KIND_F64:
        if (object->type != MSGPACK_OBJECT_FLOAT64 && object->type != MSGPACK_OBJECT_FLOAT32)
            return false;
        *(double *)value = object->via.f64;
        return true;
    case KIND_STR:
        return unpack_text(object, value, letters);
    case KIND_U64S:
        return unpack_u64s(object, value, words);
    }
    return false;
}

static int unpack_fields(const struct descriptor *descriptor, const msgpack_object *values,
                         struct sy_message *out)
{
    size_t word_bytes = 0, letter_bytes = 0;
    unsigned char *words;
    char *letters;

    for (int i = 0; i < descriptor->n_fields; i++)
        *(values[i].type == MSGPACK_OBJECT_STR ? &letter_bytes : &word_bytes) +=
            storage_of(&values[i]);
    out->storage = calloc(1, word_bytes + letter_bytes + 1);
    SY_TRY_ALLOC(out->storage, "no memory for %zu bytes of a message", word_bytes + letter_bytes);
    words = out->storage;
    letters = (char *)words + word_bytes; /* the arrays first: they need their alignment */
    for (int i = 0; i < descriptor->n_fields; i++) {
        const struct field *field = &descriptor->fields[i];

        if (!unpack_field(&values[i], field->kind, field_of(out, field), &words, &letters))
            return sy_error_set(SY_EPROTO, "message %s: field %s has the wrong type (%d)%s",
                                descriptor->name, field->name, (int)values[i].type,
                                field->kind == KIND_STATUS ? ", or there is no such status" : "");
    }
    return SY_OK;
}

static int check_frame(const msgpack_object *root, enum sy_message_direction direction,
                       struct descriptor *descriptor)
{
    const msgpack_object *id;

    if (root->type != MSGPACK_OBJECT_ARRAY || root->via.array.size < 1)
        return sy_error_set(SY_EPROTO, "a message is an array that begins with its id");
    id = &root->via.array.ptr[0];
    if (id->type != MSGPACK_OBJECT_POSITIVE_INTEGER || id->via.u64 > INT32_MAX ||
        !describe((int)id->via.u64, descriptor))
        return sy_error_set(SY_EPROTO, "unknown message id %" PRIu64,
                            id->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? id->via.u64 : 0);
    if (descriptor->direction != direction)
        return sy_error_set(SY_EPROTO, "message %s may not come from this side", descriptor->name);
    if (root->via.array.size != (uint32_t)descriptor->n_fields + 1)
        return sy_error_set(SY_EPROTO, "message %s has %d fields, %u came", descriptor->name,
                            descriptor->n_fields, root->via.array.size - 1);
    return SY_OK;
}

/* Exactly one value, of a claimed size that the bytes can hold: the library reserves room by the claim. */
static int check_packet(const void *bytes, size_t n_bytes)
{
    struct sy_msgpack_scan scan;
    int complete;

    sy_msgpack_scan_init(&scan, SY_MESSAGE_MAX_BYTES, n_bytes);
    complete = sy_msgpack_scan(&scan, bytes, n_bytes);
    if (complete < 0)
        return sy_error_prefix(SY_EPROTO, "a packet of %zu bytes", n_bytes);
    if (!complete || scan.at != n_bytes)
        return sy_error_set(SY_EPROTO, "a packet of %zu bytes is not one msgpack value", n_bytes);
    return SY_OK;
}

int sy_message_decode(const void *bytes, size_t n_bytes, enum sy_message_direction direction,
                      struct sy_message *out)
{
    struct descriptor descriptor;
    msgpack_unpacked unpacked;
    size_t offset = 0;
    int status;

    memset(out, 0, sizeof(*out));
    if (n_bytes > SY_MESSAGE_MAX_BYTES)
        return sy_error_set(SY_EPROTO, "message of %zu bytes; at most %u are allowed", n_bytes,
                            SY_MESSAGE_MAX_BYTES);
    SY_TRY(check_packet(bytes, n_bytes));
    msgpack_unpacked_init(&unpacked);
    if (msgpack_unpack_next(&unpacked, bytes, n_bytes, &offset) != MSGPACK_UNPACK_SUCCESS ||
        offset != n_bytes) {
        status = sy_error_set(SY_EPROTO, "a packet of %zu bytes is not one msgpack value", n_bytes);
        goto done;
    }
    SY_TRY_GOTO(check_frame(&unpacked.data, direction, &descriptor), done);
    out->id = (enum sy_message_id)descriptor.id;
    status = unpack_fields(&descriptor, unpacked.data.via.array.ptr + 1, out);
done:
    msgpack_unpacked_destroy(&unpacked);
    if (status < 0)
        sy_message_finish(out);
    return status;
}

void sy_message_finish(struct sy_message *message)
{
    free(message->storage);
    memset(message, 0, sizeof(*message));
}

/* ---- the log's line -------------------------------------------------------------------------------- */

static int dump_field(const struct field *field, const void *value, char *to, size_t bytes)
{
    switch (field->kind) {
    case KIND_U64:
        return snprintf(to, bytes, " %s=%" PRIu64, field->name, *(const uint64_t *)value);
    case KIND_I64:
    case KIND_STATUS:
        return snprintf(to, bytes, " %s=%" PRId64, field->name, *(const int64_t *)value);
    case KIND_F64:
        return snprintf(to, bytes, " %s=%g", field->name, *(const double *)value);
    case KIND_STR:
        return snprintf(to, bytes, " %s=\"%.80s\"", field->name,
                        *(char *const *)value ? *(char *const *)value : "");
    case KIND_U64S:
        return snprintf(to, bytes, " %s=[%zu]", field->name, ((const struct sy_u64s *)value)->n);
    }
    return 0;
}

void sy_message_dump(const struct sy_message *message, char *buffer, size_t bytes)
{
    struct descriptor descriptor;
    size_t used;

    if (!describe((int)message->id, &descriptor)) {
        snprintf(buffer, bytes, "? id=%d", (int)message->id);
        return;
    }
    used = (size_t)snprintf(buffer, bytes, "%s", descriptor.name);
    for (int i = 0; i < descriptor.n_fields && used < bytes; i++)
        used += (size_t)dump_field(&descriptor.fields[i], field_of(message, &descriptor.fields[i]),
                                   buffer + used, bytes - used);
}

/* ---- the socket ------------------------------------------------------------------------------------ */

static int socket_failed(const char *verb, int error)
{
    if (error == EPIPE || error == ECONNRESET || error == ENOTCONN)
        return sy_error_set(SY_EPEER, "the other side of the control socket is gone");
    return sy_error_set(SY_EIO, "cannot %s on the control socket: %s", verb, strerror(error));
}

static void attach_fds(struct msghdr *header, char *control, const int *fds, int n_fds)
{
    struct cmsghdr *item;

    header->msg_control = control;
    header->msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
    item = CMSG_FIRSTHDR(header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
    memcpy(CMSG_DATA(item), fds, (size_t)n_fds * sizeof(int));
}

static int send_patiently(int fd, const struct msghdr *header, const char *name)
{
    sy_ns deadline = sy_clock_now() + SEND_PATIENCE_NS;

    for (;;) {
        struct pollfd poller = {.fd = fd, .events = POLLOUT};
        sy_ns now;

        if (sendmsg(fd, header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return SY_OK;
        if (errno != EAGAIN && errno != EINTR)
            return socket_failed("send", errno);
        now = sy_clock_now();
        if (now >= deadline)
            return sy_error_set(SY_EBUSY, "the peer did not take message %s within 1 s", name);
        poll(&poller, 1, (int)((deadline - now) / SY_NS_PER_MS) + 1);
    }
}

int sy_message_send(int fd, const struct sy_message *message, const int *fds, int n_fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SY_MESSAGE_MAX_FDS * sizeof(int))];
    /* One buffer a thread: 64 KiB is much for a stack, and every sender has few threads. */
    static _Thread_local unsigned char packet[SY_MESSAGE_MAX_BYTES];
    struct iovec part = {.iov_base = packet};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

    if (n_fds < 0 || n_fds > SY_MESSAGE_MAX_FDS)
        return sy_error_set(SY_EARG, "%d fds with a message; at most %d", n_fds,
                            SY_MESSAGE_MAX_FDS);
    SY_TRY(sy_message_encode(message, packet, sizeof(packet), &part.iov_len));
    memset(control, 0, sizeof(control));
    if (n_fds > 0)
        attach_fds(&header, control, fds, n_fds);
    return send_patiently(fd, &header, sy_message_name((int)message->id));
}

static void take_fds(struct msghdr *header, int *fds, int *n_fds)
{
    *n_fds = 0;
    for (struct cmsghdr *item = CMSG_FIRSTHDR(header); item; item = CMSG_NXTHDR(header, item)) {
        size_t n;

        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS)
            continue;
        n = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds + *n_fds, CMSG_DATA(item), n * sizeof(int));
        *n_fds += (int)n;
    }
}

static void drop_fds(int *fds, int *n_fds)
{
    for (int i = 0; i < *n_fds; i++)
        close(fds[i]);
    *n_fds = 0;
}

static ssize_t receive_packet(int fd, struct msghdr *header)
{
    ssize_t n;

    do
        n = recvmsg(fd, header, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    return n;
}

int sy_message_receive(int fd, enum sy_message_direction direction, struct sy_message *out,
                       int *fds, int *n_fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SY_MESSAGE_MAX_FDS * sizeof(int))];
    static _Thread_local unsigned char packet[SY_MESSAGE_MAX_BYTES];
    int taken[SY_MESSAGE_MAX_FDS], n_taken = 0, status;
    struct iovec part = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
    ssize_t n;

    memset(out, 0, sizeof(*out));
    if (n_fds)
        *n_fds = 0;
    n = receive_packet(fd, &header);
    if (n < 0)
        return errno == EAGAIN ? sy_error_set(SY_EBUSY, "no message is waiting")
                               : socket_failed("receive", errno);
    take_fds(&header, taken, &n_taken);
    if (n == 0)
        status = sy_error_set(SY_EPEER, "the other side closed the control socket");
    else if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        status = sy_error_set(SY_EPROTO, "a packet was larger than %u bytes or had too many fds",
                              SY_MESSAGE_MAX_BYTES);
    else
        status = sy_message_decode(packet, (size_t)n, direction, out);
    if (status < 0 || !fds || !n_fds) {
        drop_fds(taken, &n_taken);
        return status;
    }
    memcpy(fds, taken, (size_t)n_taken * sizeof(int));
    *n_fds = n_taken;
    return SY_OK;
}
