#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/access/access_internal.h"

void sy_token_digest(const char *secret, size_t n, unsigned char out[32])
{
    SHA256((const unsigned char *)secret, n, out);
}

const struct sy_token *sy_token_list_find(const struct sy_token_list *list,
                                          const unsigned char digest[32])
{
    const struct sy_token *found = NULL;

    for (int i = 0; i < list->n; i++)
        if (CRYPTO_memcmp(list->tokens[i].digest, digest, 32) == 0)
            found = &list->tokens[i];
    return found;
}

int sy_token_list_add(struct sy_token_list *list, const char *name, const char *secret, size_t n,
                      unsigned rights, const char *tenant)
{
    struct sy_token *tokens, token = {.rights = rights};

    if (list->n == SY_TOKENS_MOST)
        return sy_error_set(SY_EARG, "more than %d tokens", SY_TOKENS_MOST);
    sy_token_digest(secret, n, token.digest);
    if (sy_token_list_find(list, token.digest))
        return sy_error_set(SY_EARG, "the token of \"%s\" occurs twice", name);
    tokens = realloc(list->tokens, (size_t)(list->n + 1) * sizeof *tokens);
    SY_TRY_ALLOC(tokens, "no memory for tokens");
    snprintf(token.name, sizeof token.name, "%s", name);
    snprintf(token.tenant, sizeof token.tenant, "%s", tenant);
    list->tokens = tokens;
    tokens[list->n++] = token;
    return SY_OK;
}

void sy_token_list_finish(struct sy_token_list *list)
{
    free(list->tokens);
    *list = (struct sy_token_list){NULL, 0};
}

/* NAME TOKEN RIGHTS [tenant=TENANT] */
static int parse_words(struct sy_token_list *list, char *words[5], int n)
{
    const char *tenant = "";
    unsigned rights;

    if (n < 3 || n > 4)
        return sy_error_set(SY_EARG, "%d words; NAME TOKEN RIGHTS [tenant=TENANT] are expected", n);
    if (strlen(words[0]) >= SY_ACCESS_NAME)
        return sy_error_set(SY_EARG, "a name of more than %d bytes", SY_ACCESS_NAME - 1);
    size_t bytes = strlen(words[1]);
    if (bytes < SY_TOKEN_LEAST || bytes > SY_TOKEN_MOST)
        return sy_error_set(SY_EARG,
                            "a token of %zu characters; %d to %d are possible ('openssl rand -hex "
                            "32' makes one)",
                            bytes, SY_TOKEN_LEAST, SY_TOKEN_MOST);
    SY_TRY(sy_access_parse_rights(words[2], &rights));
    if (n == 4) {
        if (strncmp(words[3], "tenant=", 7) != 0)
            return sy_error_set(SY_EARG, "\"%.60s\" is not tenant=TENANT", words[3]);
        tenant = words[3] + 7;
        if (!*tenant || strlen(tenant) >= SY_CORE_TENANT_NAME)
            return sy_error_set(SY_EARG, "a tenant's name has 1 to %d bytes",
                                SY_CORE_TENANT_NAME - 1);
        rights &= ~SY_RIGHTS_SHARED; /* A4 */
    }
    return sy_token_list_add(list, words[0], words[1], strlen(words[1]), rights, tenant);
}

static int parse_line(struct sy_token_list *list, char *line)
{
    char *words[5], *word;
    int n = 0;

    while ((word = strsep(&line, " \t\r")))
        if (*word && n < 5)
            words[n++] = word;
    return n == 0 || *words[0] == '#' ? SY_OK : parse_words(list, words, n);
}

int sy_token_list_parse(struct sy_token_list *list, const char *text, size_t n)
{
    int number = 0, status = SY_OK;

    for (size_t at = 0; at < n && status == SY_OK;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t bytes = end ? (size_t)(end - (text + at)) : n - at;
        char line[1024];

        number++;
        if (bytes >= sizeof line)
            status = sy_error_set(SY_EARG, "more than %zu bytes", sizeof line - 1);
        else if (memchr(text + at, '\0', bytes))
            status = sy_error_set(SY_EARG, "a byte of 0");
        if (status == SY_OK) {
            memcpy(line, text + at, bytes);
            line[bytes] = '\0';
            status = parse_line(list, line);
            OPENSSL_cleanse(line, sizeof line);
        }
        at += bytes + 1;
    }
    return status < 0 ? sy_error_prefix(status, "line %d", number) : SY_OK;
}

static int read_all(int fd, const char *path, char *to, size_t *used)
{
    struct stat info;
    ssize_t n = 1;

    if (fstat(fd, &info) != 0)
        return sy_error_set(SY_EIO, "--token-file %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return sy_error_set(SY_EARG, "--token-file %s is not an ordinary file", path);
    if (info.st_mode & (S_IWGRP | S_IWOTH))
        return sy_error_set(SY_EARG, "--token-file %s: others may write it; chmod 600", path);
    if (info.st_mode & S_IROTH)
        sy_log_warn("access",
                    "event=token_file path=\"%s\" why=\"everybody can read it; chmod "
                    "600\"",
                    path);
    for (*used = 0; n > 0 && *used <= SY_TOKEN_FILE_BYTES;) {
        n = read(fd, to + *used, SY_TOKEN_FILE_BYTES + 1 - *used);
        if (n > 0)
            *used += (size_t)n;
        else if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            return sy_error_set(SY_EIO, "--token-file %s: %s", path, strerror(errno));
    }
    return *used > SY_TOKEN_FILE_BYTES
               ? sy_error_set(SY_ETOOBIG, "--token-file %s has more than %u bytes", path,
                              SY_TOKEN_FILE_BYTES)
               : SY_OK;
}

int sy_token_file_read(const char *path, struct sy_token_list *list)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), status;
    char *text = malloc(SY_TOKEN_FILE_BYTES + 1);
    size_t used = 0;

    if (fd < 0 || !text)
        status = fd < 0 ? sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO,
                                       "--token-file %s: %s", path, strerror(errno))
                        : sy_error_set(SY_ENOMEM_HOST, "no memory for tokens");
    else
        status = read_all(fd, path, text, &used);
    if (status == SY_OK) {
        status = sy_token_list_parse(list, text, used);
        if (status < 0)
            status = sy_error_prefix(status, "--token-file %s", path);
    }
    if (text)
        OPENSSL_cleanse(text, used);
    free(text);
    if (fd >= 0)
        close(fd);
    return status;
}
