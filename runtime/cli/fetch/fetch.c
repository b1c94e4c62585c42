#include "runtime/cli/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/cli/fetch/fetch_curl.h"
#include "runtime/cli/fetch/fetch_stream.h"

#define MAX_PATH_BYTES 4096
#define MAX_ETAG_BYTES 256
#define HASH_BYTES     32
#define BUFFER_BYTES   (512L << 10)
#define FIRST_PAUSE_MS 250 /* between two tries without progress; doubles */
#define MOST_CHANGES   5   /* of the content; from the next on, bytes read again are no progress */
#define CONNECT_S      10L
#define HOLE_STEP      (2L << 20) /* granularity to which a file system may round data up */
#define LOCK_STEP_MS   20
#define LOCK_TRIES     100 /* 2 s: a fetch that was just killed holds its lock until it is gone */

struct transfer {
    const struct sy_fetch *fetch;
    struct sy_curl curl;
    CURL *easy;
    EVP_MD_CTX *hash; /* of what is in the file */
    int fd;
    int url;           /* which is asked now */
    uint64_t n_bytes;  /* in the file */
    uint64_t resumed;  /* of a stream: verified bytes of an earlier try */
    uint64_t skip;     /* of this answer, that are there and not read again */
    uint64_t range_at; /* where the answer says that it begins; UINT64_MAX: it does not say */
    bool has_answer;   /* its status was looked at */
    bool fits_none;    /* every source so far sent what does not fit what is there */
    bool has_changed;  /* the answer is of other content than the file so far: from the start */
    sy_ns moved_ns;    /* when the last bytes came */
    int failed;        /* status set by a callback */
    char shown[512];   /* the URL without what may be secret */
    char part[MAX_PATH_BYTES], etag_path[MAX_PATH_BYTES + 8];
    char etag[MAX_ETAG_BYTES], etag_now[MAX_ETAG_BYTES];
    char coding[32]; /* the answer's Content-Encoding; "": none */
    char curl_error[CURL_ERROR_SIZE];
};

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

static bool is_hex(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdefABCDEF") == 64;
}

static void choose_url(struct transfer *t, int url)
{
    const char *text = t->fetch->urls[url];

    t->url = url;
    snprintf(t->shown, sizeof(t->shown), "%.*s", (int)strcspn(text, "?#"), text);
}

static int check(const struct sy_fetch *fetch, struct transfer *t)
{
    for (int i = fetch->n_urls - 1; i >= 0; i--) {
        const char *url = fetch->urls[i];

        choose_url(t, i);
        if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
            return sy_error_set(SY_EARG, "%s is not an http:// or https:// URL", t->shown);
    }
    if (fetch->sha256 && !is_hex(fetch->sha256))
        return sy_error_set(SY_EARG, "\"%s\" is no SHA-256: 64 hexadecimal digits", fetch->sha256);
    if (strlen(fetch->path) + 16 > MAX_PATH_BYTES)
        return sy_error_set(SY_EARG, "the path is longer than %d bytes", MAX_PATH_BYTES - 16);
    return SY_OK;
}

/* ---- the file so far ---------------------------------------------------------------------- */

static int start_over(struct transfer *t)
{
    if (ftruncate(t->fd, 0) || lseek(t->fd, 0, SEEK_SET) < 0)
        return sy_error_set(SY_EIO, "cannot empty %s: %s", t->part, strerror(errno));
    t->n_bytes = 0;
    if (t->fetch->stream)
        sy_fetch_stream_rewind(t->fetch->stream);
    EVP_DigestInit_ex(t->hash, EVP_sha256(), NULL);
    return SY_OK;
}

static int hash_what_is_there(struct transfer *t)
{
    char *buffer = malloc(BUFFER_BYTES);
    ssize_t n = -1;

    lseek(t->fd, 0, SEEK_SET);
    while (buffer && (n = read(t->fd, buffer, BUFFER_BYTES)) > 0)
        EVP_DigestUpdate(t->hash, buffer, (size_t)n);
    free(buffer);
    return n == 0 ? SY_OK : sy_error_set(SY_EIO, "cannot read %s: %s", t->part, strerror(errno));
}

/* Of a file with a hole behind them: so many bytes are surely there (HOLE_STEP), or are whole layers that are right. */
static off_t count_before_hole(const struct transfer *t, off_t hole)
{
    off_t sure = hole > 0 ? (hole - 1) / HOLE_STEP * HOLE_STEP : 0;

    return SY_MAX(sure, (off_t)sy_fetch_stream_count(t->part, t->fd, (uint64_t)hole));
}

/* A stream that failed or was killed left a file of full length, of which the rest is a hole; bytes come in order. */
static int count_what_is_there(struct transfer *t)
{
    off_t end = lseek(t->fd, 0, SEEK_END), hole = lseek(t->fd, 0, SEEK_HOLE);

    if (end < 0)
        return sy_error_set(SY_EIO, "cannot read %s: %s", t->part, strerror(errno));
    if (hole >= 0 && hole < end)
        end = count_before_hole(t, hole);
    if (ftruncate(t->fd, end))
        return sy_error_set(SY_EIO, "cannot cut %s: %s", t->part, strerror(errno));
    t->n_bytes = (uint64_t)end;
    return t->fetch->stream ? SY_OK
                            : hash_what_is_there(t); /* a stream's whole is hashed at its end */
}

static void read_etag(struct transfer *t)
{
    FILE *file = fopen(t->etag_path, "r");

    if (file && !fgets(t->etag, sizeof(t->etag), file))
        t->etag[0] = '\0';
    if (file)
        fclose(file);
}

/* Another process may have given it its name between the two: then the lock is one of a file that is whole, and in use. */
static bool is_locked(const struct transfer *t)
{
    struct stat own, there;

    return flock(t->fd, LOCK_EX | LOCK_NB) == 0 && fstat(t->fd, &own) == 0 &&
           stat(t->part, &there) == 0 && own.st_ino == there.st_ino && own.st_dev == there.st_dev;
}

/* One process at a time writes to it. */
static int lock_part(struct transfer *t)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (t->fd < 0)
            return sy_error_set(SY_EIO, "cannot make %s: %s", t->part, strerror(errno));
        if (is_locked(t))
            return SY_OK;
        close(t->fd);
        t->fd = -1;
        pause_ms(LOCK_STEP_MS);
    }
    return sy_error_set(SY_EBUSY, "%s is being fetched by another process", t->part);
}

static int open_part(struct transfer *t)
{
    snprintf(t->part, sizeof(t->part), "%s.part", t->fetch->path);
    snprintf(t->etag_path, sizeof(t->etag_path), "%s.etag", t->part);
    SY_TRY(lock_part(t));
    EVP_DigestInit_ex(t->hash, EVP_sha256(), NULL);
    read_etag(t);
    return t->etag[0] ? count_what_is_there(t) : start_over(t);
}

/* Keeps the content's ETag, from the head of an answer. Weak ones do not identify bytes. */
static void keep_etag(struct transfer *t)
{
    bool is_strong = t->etag_now[0] == '"';
    FILE *file = is_strong ? fopen(t->etag_path, "w") : NULL;

    snprintf(t->etag, sizeof(t->etag), "%s", is_strong ? t->etag_now : "");
    if (!is_strong)
        unlink(t->etag_path);
    if (file) {
        fputs(t->etag, file);
        fclose(file);
    }
}

/* ---- one answer --------------------------------------------------------------------------- */

/* Copies the line's value, cut to `bytes`, if the line is that of the header `name`, which ends with a colon. */
static bool is_header(const char *line, size_t length, const char *name, char *value, size_t bytes)
{
    size_t n = strlen(name);

    if (length < n || strncasecmp(line, name, n) != 0)
        return false;
    while (n < length && line[n] == ' ')
        n++;
    while (length > n && (line[length - 1] == '\r' || line[length - 1] == '\n'))
        length--;
    snprintf(value, bytes, "%.*s", (int)(length - n), line + n);
    return true;
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t length = size * n;
    char value[MAX_ETAG_BYTES + 1];
    unsigned long long first;

    if (length > 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        t->etag_now[0] = t->coding[0] = '\0'; /* every answer, also a redirect's, has its own */
        t->range_at = UINT64_MAX;
    }
    /* "bytes FIRST-LAST/TOTAL" */
    if (is_header(line, length, "content-range:", value, sizeof(value)) &&
        sscanf(value, "bytes %llu-", &first) == 1)
        t->range_at = first;
    if (is_header(line, length, "etag:", value, sizeof(value)) &&
        strlen(value) < sizeof(t->etag_now))
        strcpy(t->etag_now, value);
    if (is_header(line, length, "content-encoding:", value, sizeof(value)))
        snprintf(t->coding, sizeof(t->coding), "%s",
                 strcasecmp(value, "identity") == 0 ? "" : value);
    return length;
}

static bool is_streaming(const struct transfer *t)
{
    return t->fetch->stream && sy_fetch_stream_has_begun(t->fetch->stream);
}

/* Whether it is known before the end, or decided there, that all bytes are of the same content, from wherever they come. */
static bool is_hashed(const struct transfer *t)
{
    return is_streaming(t) || (t->url > 0 && t->fetch->sha256);
}

/* If-Range asks for the whole file then; some servers ignore it. */
static bool is_other_content(const struct transfer *t)
{
    return !is_hashed(t) && t->etag_now[0] && strcmp(t->etag_now, t->etag) != 0;
}

/* Bytes that a reader may have read are not written again. */
static int begin_whole(struct transfer *t)
{
    if (is_streaming(t)) { /* the ETag stays that of the bytes which are there */
        t->skip = t->n_bytes;
        return SY_OK;
    }
    if (t->n_bytes > 0)
        SY_TRY(start_over(t));
    keep_etag(t);
    return SY_OK;
}

/* An answer without the file: a redirect without a target, or one that says that there is none. Coded bytes are those of another file, unless
 * the file's hash is known. */
static int check_answer(struct transfer *t, long code)
{
    if (code != 200 && code != 206)
        return sy_error_set(SY_EPROTO, "%s: the registry says %ld and sends no file", t->shown,
                            code);
    if (t->coding[0] && (t->fetch->stream || !t->fetch->sha256)) {
        sy_printable_make(t->coding);
        return sy_error_set(SY_EPROTO,
                            "%s: its bytes come coded (Content-Encoding: %s), not as they are",
                            t->shown, t->coding);
    }
    return SY_OK;
}

static int take_over(struct transfer *t)
{
    int status = sy_fetch_stream_take_over(t->fetch->stream, t->fd, t->n_bytes);

    t->resumed = sy_fetch_stream_verified(t->fetch->stream);
    return status;
}

/* 206 goes on where the file ends; 200 is the whole file again. */
static int begin_answer(struct transfer *t)
{
    long code = 0;

    t->has_answer = true;
    t->skip = 0;
    t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    SY_TRY(check_answer(t, code));
    if (code == 200)
        return begin_whole(t);
    if (is_other_content(t)) {
        SY_TRY(start_over(t));
        t->has_changed = true;
        return sy_error_set(SY_EIO, "%s: its content has changed", t->shown);
    }
    if (t->range_at != UINT64_MAX && t->range_at != t->n_bytes)
        return sy_error_set(
            SY_EPROTO, "%s: asked for what follows byte %llu, it sends what follows %llu", t->shown,
            (unsigned long long)t->n_bytes, (unsigned long long)t->range_at);
    return t->fetch->stream && !is_streaming(t) ? take_over(t) : SY_OK;
}

/* ECORRUPT: of a stream, what came is not what its table says. */
static int take_bytes(struct transfer *t, const char *bytes, size_t length)
{
    if (t->n_bytes + length > t->fetch->max_bytes)
        return sy_error_set(SY_EARG, "%s: more than %llu bytes (--max-bytes)", t->shown,
                            (unsigned long long)t->fetch->max_bytes);
    SY_TRY(sy_write_fully(t->fd, t->part, bytes, length, t->n_bytes));
    t->n_bytes += length;
    if (t->fetch->stream)
        return sy_fetch_stream_took(t->fetch->stream, t->fd, t->n_bytes - length, bytes, length);
    EVP_DigestUpdate(t->hash, bytes, length);
    return SY_OK;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t length = size * n, skipped;

    t->moved_ns = sy_clock_now();
    if (!t->has_answer)
        t->failed = begin_answer(t);
    skipped = (size_t)SY_MIN(t->skip, length);
    t->skip -= skipped;
    if (!t->failed && length > skipped)
        t->failed = take_bytes(t, bytes + skipped, length - skipped);
    return t->failed ? 0 : length;
}

/* Called about once a second while nothing comes. libcurl's own limit looks at the average of some seconds. */
static int on_progress(void *ctx, curl_off_t total, curl_off_t got, curl_off_t up_total,
                       curl_off_t up)
{
    const struct transfer *t = ctx;

    (void)total, (void)got, (void)up_total, (void)up;
    return (double)(sy_clock_now() - t->moved_ns) > t->fetch->stall_s * 1e9;
}

static void set_options(struct transfer *t, const char *range, struct curl_slist *headers)
{
#define SET(option, value) t->curl.easy_setopt(t->easy, CURLOPT_##option, value)
    SET(URL, t->fetch->urls[t->url]);
    SET(PROTOCOLS_STR, "http,https");
    SET(REDIR_PROTOCOLS_STR, "http,https");
    SET(FOLLOWLOCATION, 1L);
    SET(MAXREDIRS, 5L);
    SET(FAILONERROR, 1L);
    SET(NOSIGNAL, 1L);
    SET(CONNECTTIMEOUT, CONNECT_S);
    SET(NOPROGRESS, 0L);
    SET(XFERINFOFUNCTION, on_progress);
    SET(XFERINFODATA, t);
    SET(BUFFERSIZE, BUFFER_BYTES);
    SET(RANGE, range);
    SET(HTTPHEADER, headers);
    SET(HEADERFUNCTION, on_header);
    SET(HEADERDATA, t);
    SET(WRITEFUNCTION, on_bytes);
    SET(WRITEDATA, t);
    SET(ERRORBUFFER, t->curl_error);
#undef SET
}

/* One connection. SY_OK: the file is whole. */
static int run_once(struct transfer *t)
{
    char range[32], if_range[MAX_ETAG_BYTES + 16];
    struct curl_slist *headers;
    long code = 0;
    CURLcode got;

    if (t->n_bytes > 0 && !t->etag[0] && !is_hashed(t))
        SY_TRY(start_over(t)); /* whose bytes they are nobody can say */
    headers = t->curl.slist_append(NULL, "Accept-Encoding: identity");
    if (t->n_bytes > 0)
        snprintf(range, sizeof(range), "%llu-", (unsigned long long)t->n_bytes);
    if (t->n_bytes > 0 && !is_hashed(t)) {
        snprintf(if_range, sizeof(if_range), "If-Range: %s", t->etag);
        headers = t->curl.slist_append(headers, if_range);
    }
    t->has_answer = t->has_changed = false;
    t->failed = SY_OK;
    t->moved_ns = sy_clock_now();
    set_options(t, t->n_bytes > 0 ? range : NULL, headers);
    got = t->curl.easy_perform(t->easy);
    t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    t->curl.slist_free_all(headers);
    if (t->failed)
        return t->failed;
    if (got == CURLE_OK && !t->has_answer)
        SY_TRY(begin_answer(t)); /* an empty file */
    if (got == CURLE_OK && t->fetch->stream)
        return sy_fetch_stream_check_whole(t->fetch->stream, t->shown, t->n_bytes);
    if (got == CURLE_OK)
        return SY_OK;
    if (code == 416 &&
        !is_streaming(t)) /* it was whole already, or the registry's is shorter: from the start */
        SY_TRY(start_over(t));
    if (got == CURLE_ABORTED_BY_CALLBACK)
        return sy_error_set(SY_EIO, "%s: nothing came for %.0f s, behind %llu bytes", t->shown,
                            t->fetch->stall_s, (unsigned long long)t->n_bytes);
    if (code == 404 || code == 410)
        return sy_error_set(SY_ENOTFOUND, "%s: the registry says %ld", t->shown, code);
    return sy_error_set(SY_EIO, "%s: %s", t->shown,
                        t->curl_error[0] ? t->curl_error : t->curl.easy_strerror(got));
}

static bool is_worth_again(const struct transfer *t, int status)
{
    long code = 0;

    t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    return status == SY_EIO && (!t->failed || t->has_changed) &&
           (code < 400 || code == 408 || code == 416 || code == 429 || code >= 500);
}

/* Whether the last connection said that the `had` bytes before it are not of what is there now: by another ETag, or by having fewer. */
static bool is_other_now(const struct transfer *t, uint64_t had, const char *etag)
{
    long code = 0;

    t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    return had > 0 && !is_streaming(t) &&
           (t->has_changed || (code == 416 && t->n_bytes == 0) ||
            (t->has_answer && etag[0] && strcmp(etag, t->etag) != 0));
}

/* One URL, until it has given all or is given up. Content that changes is read from its start, which is no connection in vain; content that changes with every
 * connection would never end. */
static int transfer_from(struct transfer *t, struct sy_fetch_result *result)
{
    int status, in_vain = 0, n_changes = 0;
    uint64_t most = t->n_bytes; /* progress goes beyond it */

    for (;;) {
        uint64_t had = t->n_bytes;
        char etag[MAX_ETAG_BYTES];

        memcpy(etag, t->etag, sizeof(etag));
        result->connections++;
        status = run_once(t);
        if (is_other_now(t, had, etag) && n_changes++ < MOST_CHANGES)
            most = 0;
        else if (t->n_bytes <= most)
            in_vain++;
        if (t->n_bytes > most)
            in_vain = 0;
        most = SY_MAX(most, t->n_bytes);
        if (status == SY_OK || !is_worth_again(t, status) || in_vain >= t->fetch->tries)
            return status;
        pause_ms(FIRST_PAUSE_MS << (in_vain < 5 ? in_vain : 5));
    }
}

/* Each in turn, once. */
static int transfer_all(struct transfer *t, struct sy_fetch_result *result)
{
    int status = SY_OK;

    t->fits_none = true;
    for (int i = 0; i < t->fetch->n_urls; i++) {
        uint64_t verified = is_streaming(t) ? sy_fetch_stream_verified(t->fetch->stream) : 0;

        if (i > 0)
            fprintf(stderr, "switchyard: %s; trying the next source\n", sy_error_text());
        choose_url(t, i);
        status = transfer_from(t, result);
        if (status == SY_OK || status == SY_EARG)
            return status;
        t->fits_none = t->fits_none && status == SY_ECORRUPT;
        if (is_streaming(t)) { /* another may have it right from there on */
            sy_fetch_stream_rewind(t->fetch->stream);
            t->n_bytes = sy_fetch_stream_verified(t->fetch->stream);
            t->fits_none = t->fits_none && t->n_bytes <= SY_MAX(verified, t->resumed);
        } else if (status == SY_ECORRUPT) {
            SY_TRY(start_over(t));
        }
    }
    return status;
}

/* ---- whole -------------------------------------------------------------------------------- */

static void remove_part(const struct transfer *t)
{
    unlink(t->part);
    unlink(t->etag_path);
}

static int finish_file(struct transfer *t, struct sy_fetch_result *result)
{
    unsigned char digest[HASH_BYTES];
    bool is_hashed = !t->fetch->stream || t->fetch->sha256;

    if (ftruncate(t->fd, (off_t)t->n_bytes)) /* a source that was given up may have sent more */
        return sy_error_set(SY_EIO, "cannot cut %s: %s", t->part, strerror(errno));
    if (t->fetch->stream && is_hashed)
        SY_TRY(hash_what_is_there(t));
    EVP_DigestFinal_ex(t->hash, digest, NULL);
    for (int i = 0; is_hashed && i < HASH_BYTES; i++)
        snprintf(result->sha256 + 2 * i, 3, "%02x", digest[i]);
    result->bytes = t->n_bytes;
    if (t->fetch->sha256 && strcasecmp(t->fetch->sha256, result->sha256) != 0) {
        remove_part(t);
        return sy_error_set(SY_ECORRUPT, "%s: its SHA-256 is %s, not %s", t->shown, result->sha256,
                            t->fetch->sha256);
    }
    if (fdatasync(t->fd) || rename(t->part, t->fetch->path))
        return sy_error_set(SY_EIO, "cannot finish %s: %s", t->fetch->path, strerror(errno));
    unlink(t->etag_path);
    return SY_OK;
}

/* Of a stream the verified layers stay for the next try. If they were resumed from an earlier one and the rest does not fit them, the registry has other
 * content now, under the same ETag or none: kept, they would make every later try fail. */
static bool is_useless(const struct transfer *t, int status, bool was_resumed)
{
    if (t->n_bytes == 0)
        return true;
    return is_streaming(t) ? t->fits_none && was_resumed : status == SY_ECORRUPT;
}

/* By a hole: a reader that has just heard of the head must still find a file of full length, and fail with the fetch's reason. */
static void drop_unverified(const struct transfer *t)
{
    off_t from = (off_t)sy_fetch_stream_verified(t->fetch->stream);
    off_t end = lseek(t->fd, 0, SEEK_END);

    if (fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, end - from) == 0)
        return;
    if (ftruncate(t->fd, from)) /* its length would say more than is there */
        unlink(t->part);
}

int sy_fetch_file(const struct sy_fetch *fetch, struct sy_fetch_result *result)
{
    struct transfer t = {.fetch = fetch, .fd = -1};
    int status;

    memset(result, 0, sizeof(*result));
    SY_TRY(check(fetch, &t));
    SY_TRY(sy_curl_open(&t.curl));
    t.hash = EVP_MD_CTX_new();
    t.easy = t.curl.easy_init();
    status = t.hash && t.easy ? open_part(&t) : sy_error_set(SY_ENOMEM_HOST, "no memory to fetch");
    result->resumed_bytes = t.n_bytes;
    if (status == SY_OK)
        status = transfer_all(&t, result);
    if (status == SY_OK)
        status = finish_file(&t, result);
    else if (status != SY_EBUSY && t.fd >= 0 && is_useless(&t, status, result->resumed_bytes > 0))
        remove_part(&t);
    else if (is_streaming(&t))
        drop_unverified(&t);
    if (t.easy)
        t.curl.easy_cleanup(t.easy);
    EVP_MD_CTX_free(t.hash);
    if (t.fd >= 0)
        close(t.fd);
    return status;
}
