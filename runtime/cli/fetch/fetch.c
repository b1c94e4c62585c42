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

#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"
#include "runtime/cli/fetch/fetch_curl.h"

#define MAX_PATH_BYTES 4096
#define MAX_ETAG_BYTES 256
#define HASH_BYTES     32
#define BUFFER_BYTES   (512L << 10)
#define FIRST_PAUSE_MS 250 /* between two tries without progress; doubles */

struct transfer {
    const struct sy_fetch *fetch;
    struct sy_curl curl;
    CURL *easy;
    EVP_MD_CTX *hash; /* of what is in the file */
    int fd;
    uint64_t n_bytes;  /* in the file */
    uint64_t begun_at; /* where this answer's first byte belongs */
    bool has_answer;   /* its status was looked at */
    int failed;        /* what a callback found */
    char shown[512];   /* the URL without what may be secret */
    char part[MAX_PATH_BYTES], etag_path[MAX_PATH_BYTES + 8];
    char etag[MAX_ETAG_BYTES], etag_now[MAX_ETAG_BYTES];
    char curl_error[CURL_ERROR_SIZE];
};

static bool is_hex(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdefABCDEF") == 64;
}

static int check(const struct sy_fetch *fetch, struct transfer *t)
{
    if (strncmp(fetch->url, "http://", 7) != 0 && strncmp(fetch->url, "https://", 8) != 0)
        return sy_error_set(SY_EARG, "%s is no http:// or https:// URL", t->shown);
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
    EVP_DigestInit_ex(t->hash, EVP_sha256(), NULL);
    return SY_OK;
}

static int hash_what_is_there(struct transfer *t)
{
    char *buffer = malloc(BUFFER_BYTES);
    ssize_t n = -1;

    while (buffer && (n = read(t->fd, buffer, BUFFER_BYTES)) > 0) {
        EVP_DigestUpdate(t->hash, buffer, (size_t)n);
        t->n_bytes += (uint64_t)n;
    }
    free(buffer);
    return n == 0 ? SY_OK : sy_error_set(SY_EIO, "cannot read %s: %s", t->part, strerror(errno));
}

static void read_etag(struct transfer *t)
{
    FILE *file = fopen(t->etag_path, "r");

    if (file && !fgets(t->etag, sizeof(t->etag), file))
        t->etag[0] = '\0';
    if (file)
        fclose(file);
}

/* One process at a time writes to it. */
static int open_part(struct transfer *t)
{
    snprintf(t->part, sizeof(t->part), "%s.part", t->fetch->path);
    snprintf(t->etag_path, sizeof(t->etag_path), "%s.etag", t->part);
    t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (t->fd < 0)
        return sy_error_set(SY_EIO, "cannot make %s: %s", t->part, strerror(errno));
    if (flock(t->fd, LOCK_EX | LOCK_NB))
        return sy_error_set(SY_EBUSY, "%s is being fetched by another process", t->part);
    EVP_DigestInit_ex(t->hash, EVP_sha256(), NULL);
    read_etag(t);
    return t->etag[0] ? hash_what_is_there(t) : start_over(t);
}

/* Of an answer that begins: which content it is of. Weak ones name no bytes. */
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

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t length = size * n, end = length;

    if (length > 5 && strncasecmp(line, "HTTP/", 5) == 0)
        t->etag_now[0] = '\0'; /* of a redirect, too, each answer has its own */
    if (length <= 5 || strncasecmp(line, "etag:", 5) != 0)
        return length;
    for (line += 5, end -= 5; end > 0 && *line == ' '; line++)
        end--;
    while (end > 0 && (line[end - 1] == '\r' || line[end - 1] == '\n'))
        end--;
    if (end < sizeof(t->etag_now))
        snprintf(t->etag_now, sizeof(t->etag_now), "%.*s", (int)end, line);
    return length;
}

/* 206 goes on where the file ends; 200 is the whole file again. */
static int begin_answer(struct transfer *t)
{
    long code = 0;

    t->has_answer = true;
    t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code != 206 && t->n_bytes > 0)
        SY_TRY(start_over(t));
    if (code != 206)
        keep_etag(t);
    t->begun_at = t->n_bytes;
    return SY_OK;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t length = size * n;

    if (!t->has_answer)
        t->failed = begin_answer(t);
    if (!t->failed && t->n_bytes + length > t->fetch->max_bytes)
        t->failed = sy_error_set(SY_EARG, "%s: more than %llu bytes (--max-bytes)", t->shown,
                                 (unsigned long long)t->fetch->max_bytes);
    if (!t->failed)
        t->failed = sy_write_fully(t->fd, t->part, bytes, length, t->n_bytes);
    if (t->failed)
        return 0;
    EVP_DigestUpdate(t->hash, bytes, length);
    t->n_bytes += length;
    return length;
}

static void set_options(struct transfer *t, const char *range, struct curl_slist *headers)
{
#define SET(option, value) t->curl.easy_setopt(t->easy, CURLOPT_##option, value)
    SET(URL, t->fetch->url);
    SET(PROTOCOLS_STR, "http,https");
    SET(REDIR_PROTOCOLS_STR, "http,https");
    SET(FOLLOWLOCATION, 1L);
    SET(MAXREDIRS, 5L);
    SET(FAILONERROR, 1L);
    SET(NOSIGNAL, 1L);
    SET(CONNECTTIMEOUT, 10L);
    SET(LOW_SPEED_LIMIT, 1L);
    SET(LOW_SPEED_TIME, (long)(t->fetch->stall_s + 0.999));
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
    struct curl_slist *headers = NULL;
    long code = 0;
    CURLcode got;

    if (t->n_bytes > 0 && !t->etag[0])
        SY_TRY(start_over(t)); /* whose bytes they are nobody can say */
    if (t->n_bytes > 0) {
        snprintf(range, sizeof(range), "%llu-", (unsigned long long)t->n_bytes);
        snprintf(if_range, sizeof(if_range), "If-Range: %s", t->etag);
        headers = t->curl.slist_append(NULL, if_range);
    }
    t->has_answer = false;
    t->failed = SY_OK;
    set_options(t, t->n_bytes > 0 ? range : NULL, headers);
    got = t->curl.easy_perform(t->easy);
    t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    t->curl.slist_free_all(headers);
    if (t->failed)
        return t->failed;
    if (got == CURLE_OK && !t->has_answer)
        return begin_answer(t); /* an empty file */
    if (got == CURLE_OK)
        return SY_OK;
    if (code == 416) /* it was whole already, or the registry's is shorter: from the start */
        SY_TRY(start_over(t));
    if (code == 404 || code == 410)
        return sy_error_set(SY_ENOTFOUND, "%s: the registry says %ld", t->shown, code);
    return sy_error_set(SY_EIO, "%s: %s", t->shown,
                        t->curl_error[0] ? t->curl_error : t->curl.easy_strerror(got));
}

static bool is_worth_again(const struct transfer *t, int status)
{
    long code = 0;

    t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    return status == SY_EIO && !t->failed &&
           (code < 400 || code == 408 || code == 416 || code == 429 || code >= 500);
}

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

static int transfer_all(struct transfer *t, struct sy_fetch_result *result)
{
    int status, in_vain = 0;

    for (;;) {
        uint64_t before = t->n_bytes;

        result->connections++;
        status = run_once(t);
        in_vain = t->n_bytes > before ? 0 : in_vain + 1;
        if (status == SY_OK || !is_worth_again(t, status) || in_vain >= t->fetch->tries)
            return status;
        pause_ms(FIRST_PAUSE_MS << (in_vain < 5 ? in_vain : 5));
    }
}

/* ---- whole -------------------------------------------------------------------------------- */

static int finish_file(struct transfer *t, struct sy_fetch_result *result)
{
    unsigned char digest[HASH_BYTES];

    EVP_DigestFinal_ex(t->hash, digest, NULL);
    for (int i = 0; i < HASH_BYTES; i++)
        snprintf(result->sha256 + 2 * i, 3, "%02x", digest[i]);
    result->bytes = t->n_bytes;
    if (t->fetch->sha256 && strcasecmp(t->fetch->sha256, result->sha256) != 0) {
        unlink(t->part);
        unlink(t->etag_path);
        return sy_error_set(SY_ECORRUPT, "%s: its SHA-256 is %s, not %s", t->shown, result->sha256,
                            t->fetch->sha256);
    }
    if (fdatasync(t->fd) || rename(t->part, t->fetch->path))
        return sy_error_set(SY_EIO, "cannot finish %s: %s", t->fetch->path, strerror(errno));
    unlink(t->etag_path);
    return SY_OK;
}

int sy_fetch_file(const struct sy_fetch *fetch, struct sy_fetch_result *result)
{
    struct transfer t = {.fetch = fetch, .fd = -1};
    int status;

    memset(result, 0, sizeof(*result));
    snprintf(t.shown, sizeof(t.shown), "%.*s", (int)strcspn(fetch->url, "?#"), fetch->url);
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
    if (t.easy)
        t.curl.easy_cleanup(t.easy);
    EVP_MD_CTX_free(t.hash);
    if (t.fd >= 0)
        close(t.fd);
    return status;
}
