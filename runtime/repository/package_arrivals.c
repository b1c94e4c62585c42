#include "runtime/repository/package_arrivals.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/package/package.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_cores.h"
#include "runtime/repository/load_waiters.h"

#define MAX_URL_BYTES 4096
#define ASK_US        20000             /* has it ended, does anybody want it still */
#define REASON_NS     (SY_NS_PER_S / 5) /* a fetch whose head is not readable says why by then */
#define TRIES         "2"
#define STALL_S       10
#define LIMIT_NS      (3600 * SY_NS_PER_S)
#define SHA256_KEY    "#sha256="

extern char **environ;

struct coming {
    struct coming *next;
    struct sy_arrivals *of;
    char path[PATH_MAX], part[PATH_MAX];
    char name[SY_CORE_MODEL_NAME], tenant[SY_CORE_TENANT_NAME];
    struct sy_core_model_options options;
    struct sy_package_arrival *arrival;
    bool is_added; /* the core has it, or had */
    pid_t pid;
    int fd; /* output of the fetch; -1: at its end */
    struct event *read_event, *ask_event;
    sy_ns ends_ns;
    bool too_long;
    int head_status; /* why its head could not be opened; SY_OK: it could, or was not tried */
    char head_error[400];
    char line[400], last[400];
    size_t n_line;
    struct sy_load_waiters *load;
};

struct sy_arrivals {
    struct event_base *base;
    const struct sy_core_handlers *handlers;
    void *core;
    char folder[PATH_MAX - 128], program[PATH_MAX];
    double stall_s;
    sy_ns limit_ns;
    struct coming *first;
    int n;
};

bool sy_arrivals_is_url(const char *word)
{
    return strncmp(word, "http://", 7) == 0 || strncmp(word, "https://", 8) == 0;
}

/* ---- one that comes ------------------------------------------------------------------------------------------- */

static void coming_free(struct coming *c)
{
    struct coming **at = &c->of->first;

    while (*at && *at != c)
        at = &(*at)->next;
    if (*at) {
        *at = c->next;
        c->of->n--;
    }
    if (c->read_event)
        event_free(c->read_event);
    if (c->ask_event)
        event_free(c->ask_event);
    if (c->fd >= 0)
        close(c->fd);
    sy_arrival_release(c->arrival);
    sy_load_waiters_release(c->load);
    free(c);
}

/* While the core adds the model, the result is the core's. */
static void tell(struct coming *c, int status, const char *why)
{
    if (!c->is_added || c->load->is_over)
        sy_load_waiters_end(c->load, status, why);
}

/* The core is through with adding it. What came may be gone by then. */
static void on_added(void *ctx, int status, const char *error)
{
    struct sy_load_waiters *load = ctx;

    sy_load_waiters_end(load, status, error);
    sy_load_waiters_release(load);
}

static int add_to_core(struct coming *c)
{
    struct sy_load_waiters *load = sy_load_waiters_hold(c->load);
    int status = c->of->handlers->model_add(c->of->core, c->path, &c->options, on_added, load);
    if (status < 0) {
        sy_load_waiters_release(load);
        return status;
    }
    c->is_added = true;
    return SY_OK;
}

/* The file by the name that it has now: a short one may be whole, and have its last, before its head was heard of. */
static int open_file(const struct coming *c, struct sy_package **out)
{
    int status = sy_package_open(c->part, out);

    return status == SY_ENOTFOUND ? sy_package_open(c->path, out) : status;
}

/* Its head is there. The package is known by the name that its file will have. A head that cannot be opened is no error here: the fetch may have failed since
 * and cut its file, and then what it says is the reason (over). */
static int open_head(struct coming *c)
{
    struct sy_package *package;
    char *path = strdup(c->path);

    SY_TRY_ALLOC(path, "no memory to load a model");
    c->head_status = open_file(c, &package);
    if (c->head_status < 0) {
        snprintf(c->head_error, sizeof(c->head_error), "%s", sy_error_text());
        free(path);
        return SY_OK;
    }
    free(package->path);
    package->path = path;
    package->arrival = sy_arrival_hold(c->arrival);
    c->options.package = package;
    int status = add_to_core(c);
    if (status < 0)
        sy_package_close(package);
    c->options.package = NULL;
    return status;
}

/* ---- what the fetch says -------------------------------------------------------------------------------------- */

static void end_line(struct coming *c)
{
    static const char ours[] = "switchyard: ";
    const char *text = c->line;
    unsigned long long bytes;

    c->line[c->n_line] = '\0';
    c->n_line = 0;
    if (sscanf(c->line, "at %llu", &bytes) == 1) {
        sy_arrival_moved(c->arrival, bytes);
        return;
    }
    if (sscanf(c->line, "of %llu", &bytes) == 1) {
        int status = open_head(c);
        if (status < 0) {
            kill(c->pid, SIGKILL);
            tell(c, status, sy_error_text());
        }
        if (c->head_status < 0)
            c->ends_ns = SY_MIN(c->ends_ns, sy_clock_now() + REASON_NS);
        return;
    }
    sy_printable_make(c->line);
    if (strncmp(text, ours, sizeof(ours) - 1) == 0)
        text += sizeof(ours) - 1;
    if (!*text)
        return;
    snprintf(c->last, sizeof(c->last), "%s", text);
    sy_log_info("fetch", "event=said file=%s text=\"%s\"", c->path, text);
}

static void take_output(struct coming *c, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] == '\n')
            end_line(c);
        else if (c->n_line + 1 < sizeof(c->line))
            c->line[c->n_line++] = bytes[i];
}

/* ---- its end -------------------------------------------------------------------------------------------------- */

static void over(struct coming *c, int wait_status)
{
    struct sy_arrivals *a = c->of;
    bool whole = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
    int status = SY_EIO;
    char why[450];

    if (c->head_status < 0 && (whole || WIFSIGNALED(wait_status) || !*c->last)) {
        status = SY_ECORRUPT;
        snprintf(why, sizeof(why), "%s", c->head_error);
    } else if (c->too_long)
        snprintf(why, sizeof(why), "its package took longer than %.0f s to fetch",
                 (double)a->limit_ns / 1e9);
    else if (WIFSIGNALED(wait_status))
        snprintf(why, sizeof(why), "the fetch of its package was killed by signal %d",
                 WTERMSIG(wait_status));
    else
        snprintf(why, sizeof(why), "%s", *c->last ? c->last : "the fetch gave no reason");
    if (whole)
        sy_arrival_whole(c->arrival);
    else
        sy_arrival_failed(c->arrival, why);
    if (whole && !c->is_added && c->head_status == SY_OK)
        snprintf(why, sizeof(why), "the fetch ended without a package");
    whole = whole && c->is_added;
    if (whole)
        sy_log_info("fetch", "event=whole file=%s", c->path);
    else
        sy_log_warn("fetch", "event=failed file=%s why=\"%s\"", c->path, why);
    tell(c, whole ? SY_OK : status, whole ? NULL : why);
    coming_free(c);
    a->handlers->arrived(a->core);
}

static void ask(struct coming *c)
{
    struct timeval soon = {0, ASK_US};
    int wait_status;

    if (c->fd < 0 && waitpid(c->pid, &wait_status, WNOHANG) == c->pid) {
        over(c, wait_status);
        return;
    }
    if (sy_clock_now() > c->ends_ns && !c->too_long) {
        c->too_long = true;
        kill(c->pid, SIGKILL);
    }
    if (c->is_added && sy_arrival_is_abandoned(c->arrival)) /* A4 */
        kill(c->pid, SIGKILL);
    if (c->load->is_over && c->load->first) /* joined when the model was there already */
        sy_load_waiters_end(c->load, c->load->status, NULL);
    event_add(c->ask_event, &soon);
}

static void on_ask(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    ask(ctx);
}

static void on_output(evutil_socket_t fd, short what, void *ctx)
{
    struct coming *c = ctx;
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof(bytes));

    (void)what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        take_output(c, bytes, (size_t)n);
        c->of->handlers->arrived(c->of->core);
        return;
    }
    event_del(c->read_event);
    close(c->fd);
    c->fd = -1;
    ask(c);
}

/* ---- its start ------------------------------------------------------------------------------------------------ */

/* The digits behind "#sha256=", or NULL; *wrong: there are others than 64 hexadecimal ones. */
static const char *sha256_of(const char *url, bool *wrong)
{
    const char *at = strstr(url, SHA256_KEY);

    if (!at)
        return NULL;
    at += strlen(SHA256_KEY);
    *wrong = strlen(at) != 64 || strspn(at, "0123456789abcdefABCDEF") != 64;
    return at;
}

static int check_urls(const char *const *urls, int n_urls)
{
    const char *first = NULL;

    if (n_urls < 1 || n_urls > SY_ARRIVALS_SOURCES)
        return sy_error_set(SY_EARG, "%d URLs of a package; 1 to %d", n_urls, SY_ARRIVALS_SOURCES);
    for (int i = 0; i < n_urls; i++) {
        int shown = (int)strcspn(urls[i], "?#");
        bool wrong = false;
        const char *sha256 = sha256_of(urls[i], &wrong);

        if (!sy_arrivals_is_url(urls[i]))
            return sy_error_set(SY_EARG, "%.*s is not an http:// or https:// URL", shown, urls[i]);
        if (strlen(urls[i]) >= MAX_URL_BYTES - 1 || strpbrk(urls[i], "\r\n"))
            return sy_error_set(SY_EARG, "%.*s: a URL is one line of at most %d bytes", shown,
                                urls[i], MAX_URL_BYTES - 2);
        if (wrong)
            return sy_error_set(SY_EARG, "%.*s: behind %s stand 64 hexadecimal digits", shown,
                                urls[i], SHA256_KEY);
        if (sha256 && first && strcasecmp(sha256, first) != 0)
            return sy_error_set(SY_EARG,
                                "the URLs name two SHA-256: they are sources of one content");
        first = sha256 ? sha256 : first;
    }
    return SY_OK;
}

static const char *sha256_of_all(const char *const *urls, int n_urls)
{
    const char *found = NULL;
    bool wrong;

    for (int i = 0; !found && i < n_urls; i++)
        found = sha256_of(urls[i], &wrong);
    return found;
}

/* FOLDER/LAST-PART-HASH.sypkg: what is known to be of one content has one place. */
static int name_file(struct coming *c, const char *url, const char *sha256)
{
    size_t n = strcspn(url, "?#"), from = n, length;
    char last[64];
    XXH64_hash_t hash = sha256 ? XXH3_64bits(sha256, 64) : XXH3_64bits(url, n);

    while (from > 0 && url[from - 1] != '/')
        from--;
    snprintf(last, sizeof(last), "%.*s", (int)(n - from), url + from);
    length = strlen(last);
    if (length > 6 && strcmp(last + length - 6, SY_PACKAGE_SUFFIX) == 0)
        last[length - 6] = '\0';
    for (char *at = last; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *at))
            *at = '_';
    n = (size_t)snprintf(c->path, sizeof(c->path), "%s/%s-%016" PRIx64 SY_PACKAGE_SUFFIX,
                         c->of->folder, last, (uint64_t)hash);
    if (n + 6 > sizeof(c->part))
        return sy_error_set(SY_EARG, "%s: the path is too long", c->of->folder);
    snprintf(c->part, sizeof(c->part), "%.*s.part", (int)n, c->path);
    return SY_OK;
}

static int write_urls(int fd, const char *const *urls, int n_urls)
{
    char line[MAX_URL_BYTES];

    evutil_make_socket_nonblocking(
        fd); /* at most 8 of 4 KiB: a pipe takes them, unless its user has too many */
    for (int i = 0; i < n_urls; i++) {
        int n = snprintf(line, sizeof(line), "%.*s\n", (int)(strcspn(urls[i], "#")), urls[i]);

        if (write(fd, line, (size_t)n) != n)
            return sy_error_set(SY_EIO, "cannot start a fetch: %s", strerror(errno));
    }
    return SY_OK;
}

static int spawn(struct coming *c, const char *sha256, int in, int out)
{
    char stall[32], digest[65];
    const char *argv[] = {"switchyard", "fetch",   "-",   "--progress", "--output",
                          c->path,      "--stall", stall, "--tries",    TRIES,
                          NULL,         NULL,      NULL};
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);

    snprintf(stall, sizeof(stall), "%.3f", c->of->stall_s);
    if (sha256) {
        snprintf(digest, sizeof(digest), "%.64s", sha256);
        argv[10] = "--sha256";
        argv[11] = digest;
    }
    if (failed)
        return sy_error_set(SY_ENOMEM_HOST, "cannot start a fetch: %s", strerror(failed));
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    sy_thread_cores_widen();
    failed = posix_spawn(&c->pid, c->of->program, &actions, NULL, (char *const *)(uintptr_t)argv,
                         environ);
    sy_thread_cores_narrow();
    posix_spawn_file_actions_destroy(&actions);
    return failed ? sy_error_set(SY_EIO, "cannot start %s: %s", c->of->program, strerror(failed))
                  : SY_OK;
}

static int start_fetch(struct coming *c, const char *const *urls, int n_urls)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, status = SY_OK;

    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        status = sy_error_set(SY_EIO, "cannot make a pipe: %s", strerror(errno));
    c->fd = out[0];
    if (status == SY_OK) {
        evutil_make_socket_nonblocking(c->fd);
        c->read_event = event_new(c->of->base, c->fd, EV_READ | EV_PERSIST, on_output, c);
        c->ask_event = event_new(c->of->base, -1, 0, on_ask, c);
        if (!c->read_event || !c->ask_event || event_add(c->read_event, NULL))
            status = sy_error_set(SY_ENOMEM_HOST, "no memory for a fetch's events");
    }
    if (status == SY_OK)
        status = write_urls(in[1], urls, n_urls);
    if (status == SY_OK)
        status = spawn(c, sha256_of_all(urls, n_urls), in[0], out[1]);
    for (int i = 0; i < 2; i++)
        if (in[i] >= 0)
            close(in[i]);
    if (out[1] >= 0)
        close(out[1]);
    return status;
}

static void copy_options(struct coming *c, const struct sy_core_model_options *options)
{
    snprintf(c->name, sizeof(c->name), "%s", options->name ? options->name : "");
    snprintf(c->tenant, sizeof(c->tenant), "%s", options->tenant ? options->tenant : "");
    c->options = (struct sy_core_model_options){.name = c->name,
                                                .tenant = *c->tenant ? c->tenant : NULL,
                                                .version = options->version,
                                                .replaces = options->replaces};
}

static int start(struct coming *c, const char *const *urls, int n_urls)
{
    const char *sha256 = sha256_of_all(urls, n_urls);
    int status;

    if (sha256 && access(c->path, R_OK) == 0) {
        status = add_to_core(c);
        if (status == SY_OK)
            coming_free(c);
        return status;
    }
    status = sy_arrival_create(&c->arrival);
    if (status == SY_OK)
        status = start_fetch(c, urls, n_urls);
    if (status == SY_OK)
        ask(c);
    return status;
}

/* One that comes to the same file and has not failed, nor was its model unloaded; NULL: none. */
static struct coming *find_under_way(const struct coming *like)
{
    for (struct coming *c = like->of->first; c; c = c->next) {
        bool fails = c->too_long || (c->load->is_over && c->load->status < 0);
        bool unloaded = c->is_added && sy_arrival_is_abandoned(c->arrival);

        if (strcmp(c->path, like->path) == 0 && !fails && !unloaded)
            return c;
    }
    return NULL;
}

/* A5 */
static int join(struct coming *c, const struct coming *wanted, sy_core_done done, void *ctx)
{
    const struct sy_core_model_options *its = &c->options, *asked = &wanted->options;

    if (strcmp(c->name, wanted->name) != 0 || strcmp(c->tenant, wanted->tenant) != 0 ||
        its->version != asked->version || its->replaces != asked->replaces)
        return sy_error_set(SY_EBUSY,
                            "this package is being fetched by a load with another name, version or "
                            "tenant; load it again when it is whole");
    return sy_load_waiters_add(c->load, done, ctx);
}

static int create_coming(struct sy_arrivals *a, const char *const *urls, int n_urls,
                         const struct sy_core_model_options *options, struct coming **out)
{
    struct coming *c = calloc(1, sizeof(*c));

    SY_TRY_ALLOC(c, "no memory to load a model");
    c->of = a;
    c->fd = -1;
    c->ends_ns = sy_clock_now() + a->limit_ns;
    copy_options(c, options);
    int status = name_file(c, urls[0], sha256_of_all(urls, n_urls));
    if (status < 0) {
        free(c);
        return status;
    }
    *out = c;
    return SY_OK;
}

static int begin(struct coming *c, const char *const *urls, int n_urls, sy_core_done done,
                 void *ctx)
{
    struct sy_arrivals *a = c->of;

    if (a->n >= SY_ARRIVALS_MAX)
        return sy_error_set(SY_EBUSY, "%d packages are on their way already", a->n);
    SY_TRY(sy_load_waiters_create(&c->load));
    SY_TRY(sy_load_waiters_add(c->load, done, ctx));
    c->next = a->first;
    a->first = c;
    a->n++;
    return start(c, urls, n_urls);
}

int sy_arrivals_add(struct sy_arrivals *a, const char *const *urls, int n_urls,
                    const struct sy_core_model_options *options, sy_core_done done, void *ctx)
{
    struct coming *c, *other;

    SY_TRY(check_urls(urls, n_urls));
    if (options->name && strlen(options->name) >= SY_CORE_MODEL_NAME)
        return sy_error_set(SY_EARG, "a model's name of %zu bytes; at most %d",
                            strlen(options->name), SY_CORE_MODEL_NAME - 1);
    if (options->tenant && strlen(options->tenant) >= SY_CORE_TENANT_NAME)
        return sy_error_set(SY_EARG, "a tenant's name of %zu bytes; at most %d",
                            strlen(options->tenant), SY_CORE_TENANT_NAME - 1);
    SY_TRY(create_coming(a, urls, n_urls, options, &c));
    other = find_under_way(c);
    int status = other ? join(other, c, done, ctx) : begin(c, urls, n_urls, done, ctx);
    if (other || status < 0)
        coming_free(c);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------------------------ */

int sy_arrivals_create(struct event_base *base, const struct sy_arrivals_config *config,
                       const struct sy_core_handlers *handlers, void *core,
                       struct sy_arrivals **out)
{
    struct stat st;
    struct sy_arrivals *a;

    if (stat(config->folder, &st) || !S_ISDIR(st.st_mode) || access(config->folder, W_OK))
        return sy_error_set(SY_ENOTFOUND, "%s is not a folder that packages can be written to",
                            config->folder);
    a = calloc(1, sizeof(*a));
    SY_TRY_ALLOC(a, "no memory for packages on their way");
    a->base = base;
    a->handlers = handlers;
    a->core = core;
    a->stall_s = config->stall_s > 0 ? config->stall_s : STALL_S;
    a->limit_ns = config->limit_ns ? config->limit_ns : LIMIT_NS;
    snprintf(a->program, sizeof(a->program), "%s",
             config->program ? config->program : "/proc/self/exe");
    if (strlen(config->folder) >= sizeof(a->folder)) {
        free(a);
        return sy_error_set(SY_EARG, "the folder's path is longer than %zu bytes",
                            sizeof(a->folder) - 1);
    }
    strcpy(a->folder, config->folder);
    *out = a;
    return SY_OK;
}

void sy_arrivals_stop(struct sy_arrivals *a)
{
    for (struct coming *c = a ? a->first : NULL; c; c = c->next)
        tell(c, SY_EBUSY, "the runtime stopped before the package had come");
}

void sy_arrivals_destroy(struct sy_arrivals *a)
{
    while (a && a->first) {
        struct coming *c = a->first;

        kill(c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
        coming_free(c);
    }
    free(a);
}
