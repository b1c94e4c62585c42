#include "workers/torch/script_job.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/shared_memory.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "workers/torch/script_link.h"
#include "workers/torch/script_page.h"

#define HELLO_TIMEOUT_MS 5000
#define USUAL_GRACE_MS   20
#define MOST_GRACE_MS    60000
#define USUAL_KILL_S     10
#define MOST_KILL_S      3600
/* of its run, once it has killed the script: it says how that ended */
#define FAREWELL_NS      (3 * SY_NS_PER_S)
#define STOP_ANSWER_NS   SY_NS_PER_S
#define CLOSE_SLICE_NS   SY_NS_PER_MS
#define TRAVEL_NS        (20 * SY_NS_PER_S) /* to the file or back, and what its bytes take at 50 MB/s */
#define NS_PER_FILE_BYTE 20
#define MOST_FILE_BYTES  (1ull << 40)

struct sy_script_job {
    int fd;
    struct sy_shared_memory memory;
    struct sy_script_page *page;
    struct sy_script_needs needs;
    sy_ns grace_ns, kill_after_ns, terminated_ns;
    bool given_up; /* canceled, and nobody ended it in time */
    bool is_open, is_over, stop_sent, is_stopped, said_lost;
    bool was_opened; /* by us: what an earlier worker stopped goes on then */
    sy_ns travel_ns; /* since when its tensors travel; 0: they do not */
    sy_ns opened_ns, closed_ns, stop_sent_ns, open_ns;
    sy_ns longest_close_ns;
    bool close_noted;
    int result; /* wait status; -1: not known */
    bool was_told;
};

/* ---- text, connection ------------------------------------------------------------------------- */

bool sy_script_job_is(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    bool is = json_is_object(json_object_get(json, "script"));
    json_decref(json);
    return is;
}

static int read_number(const json_t *script, const char *key, uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(script, key);
    if (!value)
        return SY_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most)
        return sy_error_set(SY_EARG, "job: script.%s is not a number from 0 to %llu", key,
                            (unsigned long long)most);
    *out = (uint64_t)json_integer_value(value);
    return SY_OK;
}

static int read_script(struct sy_script_job *job, const json_t *script)
{
    uint64_t grace_ms = USUAL_GRACE_MS, kill_after_s = USUAL_KILL_S;
    const char *path = json_string_value(json_object_get(script, "socket"));
    if (path && job->fd < 0)
        return sy_error_set(SY_ENOTFOUND,
                            "the job's script is not there (%s); 'switchyard run' of the same "
                            "machine and user starts one",
                            path);
    if (!path)
        return sy_error_set(SY_EARG, "job: script.socket is missing");
    SY_TRY(read_number(script, "memory_bytes", INT64_MAX, &job->needs.memory_bytes));
    job->needs.device_memory_bytes = job->needs.memory_bytes;
    SY_TRY(read_number(script, "device_memory_bytes", INT64_MAX, &job->needs.device_memory_bytes));
    SY_TRY(read_number(script, "total_steps", INT64_MAX, &job->needs.total_steps));
    SY_TRY(read_number(script, "grace_ms", MOST_GRACE_MS, &grace_ms));
    SY_TRY(read_number(script, "kill_after_s", MOST_KILL_S, &kill_after_s));
    job->kill_after_ns = kill_after_s * SY_NS_PER_S;
    job->grace_ns = grace_ms * SY_NS_PER_MS;
    return SY_OK;
}

static int map_page(struct sy_script_job *job)
{
    struct sy_script_packet packet;
    int file, got = sy_script_receive(job->fd, HELLO_TIMEOUT_MS, &packet, &file);
    SY_TRY(got);
    if (got == 0 || packet.word != SY_SCRIPT_HELLO || packet.value != SY_SCRIPT_LINK_VERSION ||
        file < 0) {
        if (got > 0 && file >= 0)
            close(file);
        return sy_error_set(SY_EPROTO, "the script's 'switchyard run' is of another version, or "
                                       "says nothing");
    }
    int seals =
        fcntl(file, F_GET_SEALS); /* else a process that truncates it kills this worker by SIGBUS */
    int status = seals >= 0 && (seals & F_SEAL_SHRINK)
                     ? sy_shared_memory_map(&job->memory, file, SY_SCRIPT_PAGE_BYTES, true)
                     : sy_error_set(SY_EPROTO, "the script's page is not sealed against shrinking");
    if (status < 0) {
        close(file);
        return status;
    }
    job->page = job->memory.base;
    if (job->page->magic != SY_SCRIPT_MAGIC)
        return sy_error_set(SY_EPROTO, "the script's page is of another version");
    return SY_OK;
}

int sy_script_job_create(const char *text, int link, struct sy_script_job **out)
{
    struct sy_script_job *job = calloc(1, sizeof *job);
    if (!job) {
        if (link >= 0)
            close(link);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a script's job");
    }
    job->fd = link;
    job->memory.fd = -1;
    json_t *json = json_loads(text, 0, NULL);
    int status = read_script(job, json_object_get(json, "script"));
    json_decref(json);
    if (status == SY_OK)
        status = map_page(job);
    if (status < 0) {
        sy_script_job_destroy(job);
        return status;
    }
    job->is_open = true; /* whatever it was: this worker has not closed it */
    sy_script_job_close(job);
    *out = job;
    return SY_OK;
}

void sy_script_job_destroy(struct sy_script_job *job)
{
    if (!job)
        return;
    if (job->page && !job->is_over && !job->was_told)
        sy_script_job_close(job);
    if (job->fd >= 0)
        close(job->fd);
    sy_shared_memory_finish(&job->memory);
    free(job);
}

void sy_script_job_needs(const struct sy_script_job *job, struct sy_script_needs *out)
{
    *out = job->needs;
}

/* ---- the gate --------------------------------------------------------------------------------- */

static void set_gate(struct sy_script_job *job, uint32_t closed)
{
    uint32_t gate = atomic_load(&job->page->gate);
    if ((gate & 1) == closed)
        return;
    atomic_store(&job->page->gate, gate + 1);       /* G1 */
    if (!closed || atomic_load(&job->page->device)) /* G3: a thread of the script waits for both */
        sy_futex_wake(&job->page->gate);
}

static void say(struct sy_script_job *job, enum sy_script_word word)
{
    if (!job->is_over && sy_script_send(job->fd, word, 0, -1) < 0)
        job->is_over = true;
}

void sy_script_job_open(struct sy_script_job *job)
{
    if (job->is_open)
        return;
    job->is_open = true;
    job->opened_ns = sy_clock_now();
    sy_script_job_unspill(job); /* G4 */
    job->travel_ns = 0;
    set_gate(job, 0);
    if (job->stop_sent || !job->was_opened)
        say(job, SY_SCRIPT_CONTINUE);
    job->stop_sent = job->is_stopped = job->said_lost = false;
    job->was_opened = true;
}

void sy_script_job_close(struct sy_script_job *job)
{
    if (!job->is_open)
        return;
    job->is_open = job->close_noted = false;
    job->closed_ns = sy_clock_now();
    if (job->opened_ns)
        job->open_ns += job->closed_ns - job->opened_ns;
    job->opened_ns = 0;
    set_gate(job, 1);
}

/* G1, G3 */
static bool is_quiet(const struct sy_script_page *page)
{
    return atomic_load(&page->busy) == 0 &&
           (!atomic_load(&page->device) || atomic_load(&page->drained) == atomic_load(&page->gate));
}

/* Until an operator ends, or what operators launched; some wakes are missed, so briefly. */
static void wait_for_quiet(struct sy_script_page *page, sy_ns timeout_ns)
{
    uint32_t busy = atomic_load(&page->busy), drained = atomic_load(&page->drained);
    if (busy)
        sy_futex_wait(&page->busy, busy, SY_MIN(timeout_ns, CLOSE_SLICE_NS));
    else if (!is_quiet(page))
        sy_futex_wait(&page->drained, drained, SY_MIN(timeout_ns, CLOSE_SLICE_NS));
}

/* Whether the script has paused. Waits for its operators to end, for a limited time; then sends SIGSTOP even if they ended, since other code of the script
 * computes too. */
static bool stands(struct sy_script_job *job)
{
    sy_ns now = sy_clock_now();
    if (!job->stop_sent && !job->travel_ns && now - job->closed_ns >= job->grace_ns) {
        job->stop_sent = true;
        job->stop_sent_ns = now;
        say(job, SY_SCRIPT_STOP);
    }
    bool is_lost = job->stop_sent && now - job->stop_sent_ns >= STOP_ANSWER_NS;
    if (is_lost && !job->is_stopped && !job->said_lost && !is_quiet(job->page)) {
        sy_log_warn("worker", "event=script_not_stopped why=\"its 'switchyard run' does not "
                              "answer; requests run beside it\"");
        job->said_lost = true;
    }
    bool still = job->is_stopped || is_lost || is_quiet(job->page);
    if (still && !job->close_noted) {
        job->close_noted = true;
        job->longest_close_ns = SY_MAX(job->longest_close_ns, now - job->closed_ns);
    }
    return still;
}

/* ---- out and back ----------------------------------------------------------------------------- */

static void want(struct sy_script_job *job, uint32_t out)
{
    if (job->stop_sent || !job->was_opened) /* a process that is stopped does neither */
        say(job, SY_SCRIPT_CONTINUE);
    job->stop_sent = job->is_stopped = false;
    job->travel_ns =
        atomic_load(&job->page->spill_state) == SY_SCRIPT_SPILL_FAILED ? 0 : sy_clock_now();
    atomic_store(&job->page->spill_want, out);
    sy_futex_wake(&job->page->spill_want);
}

int sy_script_job_spill(struct sy_script_job *job)
{
    assert(!job->is_open);
    if (atomic_load(&job->page->spill_state) != SY_SCRIPT_SPILL_IN)
        return sy_error_set(SY_EUNSUPPORTED,
                            "the script's tensors are not spilled: that needs --class "
                            "opportunistic, --memory, the hook in C++, and no accelerator");
    want(job, 1);
    return SY_OK;
}

void sy_script_job_unspill(struct sy_script_job *job)
{
    if (atomic_load(&job->page->spill_want) || atomic_load(&job->page->spill_state) > 1)
        want(job, 0);
}

static enum sy_script_place failed(struct sy_script_job *job)
{
    uint32_t code = atomic_load(&job->page->spill_errno);
    job->travel_ns = 0;
    (void)sy_error_set(SY_EIO, "spilling the script's tensors: %s",
                       code == ETIMEDOUT ? "a thread of it blocks the signal that stops it"
                                         : strerror((int)code));
    return SY_SCRIPT_FAILED;
}

enum sy_script_place sy_script_job_place(struct sy_script_job *job)
{
    uint32_t out = atomic_load(&job->page->spill_want);
    uint32_t state = atomic_load(&job->page->spill_state);
    sy_ns most = TRAVEL_NS + SY_MIN(job->needs.memory_bytes, MOST_FILE_BYTES) * NS_PER_FILE_BYTE;
    if (out && state == SY_SCRIPT_SPILL_FAILED)
        return failed(job);
    bool arrived = (state == SY_SCRIPT_SPILL_OUT) == (out != 0); /* after FAILED they are in */
    if (!arrived && job->travel_ns && sy_clock_now() - job->travel_ns > most) {
        job->travel_ns = 0;
        (void)sy_error_set(SY_EPEER, "the script does not answer: its tensors are not %s",
                           out ? "spilled" : "back");
        return SY_SCRIPT_FAILED;
    }
    if (!arrived)
        return SY_SCRIPT_MOVING;
    job->travel_ns = 0;
    return out ? SY_SCRIPT_OUT : SY_SCRIPT_IN;
}

uint64_t sy_script_job_spilled_bytes(const struct sy_script_job *job)
{
    return atomic_load(&job->page->spilled_bytes);
}

/* ---- what happens ----------------------------------------------------------------------------- */

static void take(struct sy_script_job *job, const struct sy_script_packet *packet)
{
    if (packet->word == SY_SCRIPT_STOPPED && job->stop_sent)
        job->is_stopped = true;
    if (packet->word == SY_SCRIPT_ENDED) {
        job->is_over = job->was_told = true;
        job->result = packet->value;
    }
}

static void take_packets(struct sy_script_job *job, int timeout_ms)
{
    struct sy_script_packet packet;
    int file, got;
    while (!job->is_over && (got = sy_script_receive(job->fd, timeout_ms, &packet, &file)) != 0) {
        timeout_ms = 0;
        if (got < 0) {
            job->is_over = true;
            return;
        }
        if (file >= 0)
            close(file);
        take(job, &packet);
    }
}

/* J3. Its run may be stopped itself (Ctrl-Z): then nobody ends the script before that goes on. */
static bool is_given_up(const struct sy_script_job *job)
{
    return !job->is_over && job->terminated_ns &&
           sy_clock_now() - job->terminated_ns >= job->kill_after_ns + FAREWELL_NS;
}

enum sy_script_state sy_script_job_look(struct sy_script_job *job, sy_ns timeout_ns)
{
    take_packets(job, 0);
    if (!job->is_over && timeout_ns && (job->is_open || stands(job)))
        take_packets(job, (int)(timeout_ns / SY_NS_PER_MS));
    else if (!job->is_over && timeout_ns)
        wait_for_quiet(job->page, timeout_ns);
    if (is_given_up(job))
        job->given_up = job->is_over = true;
    if (job->is_over)
        return SY_SCRIPT_OVER;
    return !job->is_open && stands(job) ? SY_SCRIPT_STILL : SY_SCRIPT_RUNNING;
}

bool sy_script_job_is_given_up(const struct sy_script_job *job)
{
    return job->given_up;
}

int sy_script_job_result(const struct sy_script_job *job)
{
    if (job->given_up)
        return sy_error_set(SY_EPEER,
                            "canceled, and its 'switchyard run' did not end the script within %llu "
                            "s: is that stopped (Ctrl-Z)? It ends the script when it goes on (fg, "
                            "kill -CONT)",
                            (unsigned long long)((job->kill_after_ns + FAREWELL_NS) / SY_NS_PER_S));
    if (!job->was_told)
        return sy_error_set(SY_EPEER,
                            "the script's 'switchyard run' is gone, and the script with it");
    if (job->result < 0)
        return SY_OK; /* it joined by itself: nobody can tell how it ended */
    if (atomic_load(&job->page->is_over_memory))
        return sy_error_set(SY_EPEER, "the script was killed: its processes together had more "
                                      "memory than --process-memory allows");
    if (WIFSIGNALED(job->result))
        return sy_error_set(SY_EPEER, "the script was killed by signal %d (%s)",
                            WTERMSIG(job->result), strsignal(WTERMSIG(job->result)));
    if (WEXITSTATUS(job->result) != 0)
        return sy_error_set(SY_EPEER, "the script ended with exit status %d",
                            WEXITSTATUS(job->result));
    return SY_OK;
}

void sy_script_job_progress(const struct sy_script_job *job, struct sy_script_progress *out)
{
    uint64_t bits = atomic_load(&job->page->loss_bits);
    *out = (struct sy_script_progress){
        .step = atomic_load(&job->page->step),
        .total_steps = atomic_load(&job->page->total_steps),
        .used_bytes = atomic_load(&job->page->used_bytes),
        .open_ns = job->open_ns + (job->opened_ns ? sy_clock_now() - job->opened_ns : 0),
        .longest_close_ns = job->longest_close_ns,
        .hook = (int)atomic_load(&job->page->hook)};
    memcpy(&out->loss, &bits, sizeof out->loss);
}

void sy_script_job_terminate(struct sy_script_job *job)
{
    sy_script_job_open(job);
    if (!job->terminated_ns)
        job->terminated_ns = sy_clock_now();
    say(job, SY_SCRIPT_TERMINATE);
}

void sy_script_job_detach(struct sy_script_job *job)
{
    sy_script_job_open(job);
    say(job, SY_SCRIPT_DETACH);
    job->was_told = true;
}
