/* ONNX's own test data through the host engine, or the one that it is linked with: each case in a process of its own, with limits, so that a crash or a hang is a
 * failure of that case only.
 *
 *   onnx_suite [--only TEXT] [--verbose] [--together] FOLDER...      FOLDER holds node/, simple/, ...: folders of cases; together: all in
 *                                                                   this process, for a GPU, whose opening takes longer than a case
 *
 * Prints failures, a table of refusals by reason, counts, and last "onnx: N passed, N refused, N failed". Exit 1 if a case failed. */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "tests/onnx_data/onnx_case.h"

enum { LIMIT_MS = 120000, MAX_REASONS = 1024, TEXT = 600 };

struct reason {
    char text[TEXT];
    int count;
};

struct tally {
    int counts[3], plain_passed, plain;
    struct reason *reasons;
    int n_reasons;
    const char *only;
    bool verbose, together;
};

struct report {
    int verdict;
    char text[TEXT];
};

static void run_child(const char *folder, double slack, int to)
{
    struct report report = {.verdict = ONNX_FAILED};
#ifndef SY_SANITIZED
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)4 << 30, (rlim_t)4 << 30});
#endif
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    report.verdict = onnx_case_run(folder, slack, report.text, sizeof report.text);
    _exit(write(to, &report, sizeof report) == sizeof report ? 0 : 1);
}

/* What the child said within the limit, or how it ended. */
static void await_child(pid_t child, int from, struct report *report)
{
    struct pollfd poll_from = {.fd = from, .events = POLLIN};
    int status = 0;
    bool late = poll(&poll_from, 1, LIMIT_MS) == 0;
    bool said = !late && read(from, report, sizeof *report) == (ssize_t)sizeof *report;
    if (late)
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (said)
        return;
    report->verdict = ONNX_FAILED;
    if (late)
        snprintf(report->text, sizeof report->text, "not done after %d ms", LIMIT_MS);
    else
        snprintf(report->text, sizeof report->text, "died: signal %d, exit status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                 WIFEXITED(status) ? WEXITSTATUS(status) : 0);
}

static void run_forked(const char *folder, double slack, struct report *report)
{
    int ends[2];
    *report = (struct report){.verdict = ONNX_FAILED, .text = "cannot make a process"};
    if (pipe(ends) < 0)
        return;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        run_child(folder, slack, ends[1]);
    close(ends[1]);
    if (child > 0)
        await_child(child, ends[0], report);
    close(ends[0]);
}

/* ---- reasons ------------------------------------------------------------------------------------ */

/* "Operator: what is missing" of a refusal "...(Operator, opset N): what" or "...: Operator (opset N): what", names left out. */
static void shorten(const char *text, char *out, size_t bytes)
{
    const char *opset = strstr(text, "opset "), *what = opset ? strstr(opset, "): ") : NULL;
    size_t used = 0;
    if (what) {
        const char *end = opset;
        while (end > text && strchr(" (,", end[-1]))
            end--;
        const char *name = end;
        while (name > text && !strchr(" (", name[-1]))
            name--;
        used = (size_t)snprintf(out, bytes, "%.*s: ", (int)(end - name), name);
        text = what + 3;
    } else if (strstr(text, "model.onnx")) {
        text = strstr(text, "model.onnx") + strlen("model.onnx");
        text += strspn(text, ": ");
    }
    bool quoted = false;
    for (; *text && used + 4 < bytes; text++) {
        quoted ^= *text == '\'';
        if (!quoted)
            out[used++] = *text;
        else if (*text == '\'')
            used += (size_t)snprintf(out + used, bytes - used, "'..");
    }
    out[used] = '\0';
}

static void count_reason(struct tally *t, const char *text)
{
    char key[TEXT];
    int i = 0;
    shorten(text, key, sizeof key);
    while (i < t->n_reasons && strcmp(t->reasons[i].text, key) != 0)
        i++;
    if (i == MAX_REASONS)
        return;
    if (i == t->n_reasons)
        memcpy(t->reasons[t->n_reasons++].text, key, sizeof key);
    t->reasons[i].count++;
}

static int by_count(const void *a, const void *b)
{
    const struct reason *x = a, *y = b;
    return x->count != y->count ? y->count - x->count : strcmp(x->text, y->text);
}

/* ---- folders ------------------------------------------------------------------------------------ */

/* Data that contradicts the specification, and ONNX Runtime; NULL: it does not. */
static const char *wrong_data(const char *name)
{
    static const char wraps[] =
        "its values wrap around (-235.7 becomes 20), QLinearMatMul saturates",
                      counts[] = "it divides by cells beyond the padding, which ceil_mode adds",
                      drawn[] = "its numbers were drawn by numpy, the seed does not say them",
                      unsaid[] = "it is of an epsilon of 0.01, the model says none: 1e-6",
                      corners[] = "its corners are those of 3.2 pixels, the result has 3";
    static const struct {
        const char *name, *why;
    } known[] = {
        {"test_qlinearmatmul_2D_int8_float16", wraps},
        {"test_qlinearmatmul_2D_int8_float32", wraps},
        {"test_qlinearmatmul_3D_int8_float16", wraps},
        {"test_qlinearmatmul_3D_int8_float32", wraps},
        {"test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True", counts},
        {"test_resize_downsample_scales_cubic_align_corners", corners},
        {"test_resize_downsample_scales_linear_align_corners", corners},
        {"test_adam_multiple", unsaid},
        {"test_bernoulli", drawn},
        {"test_training_dropout", drawn},
        {"test_training_dropout_default", drawn},
        {"test_training_dropout_default_mask", drawn},
        {"test_training_dropout_mask", drawn},
        {"test_bernoulli_double", drawn},
        {"test_bernoulli_double_expanded", drawn},
        {"test_bernoulli_expanded", drawn},
        {"test_bernoulli_seed", drawn},
        {"test_bernoulli_seed_expanded", drawn}};
    for (size_t i = 0; i < SY_ARRAY_LEN(known); i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].why;
    return NULL;
}

static void run_case(struct tally *t, const char *suite, const char *name, const char *folder)
{
    struct report report;
    double slack = strcmp(suite, "zoo") == 0             ? 1e-3
                   : strcmp(suite, "zoo-quantized") == 0 ? 3e-2
                                                         : 0;
    if (t->together)
        report.verdict = onnx_case_run(folder, slack, report.text, sizeof report.text);
    else
        run_forked(folder, slack, &report);
    const char *wrong = report.verdict == ONNX_FAILED ? wrong_data(name) : NULL;
    if (wrong) {
        report.verdict = ONNX_REFUSED;
        snprintf(report.text, sizeof report.text, "model.onnx: wrong data: %s", wrong);
    }
    t->counts[report.verdict]++;
    if (strcmp(suite, "node") == 0 && onnx_model_is_plain(folder)) {
        t->plain++;
        t->plain_passed += report.verdict == ONNX_PASSED;
    }
    if (report.verdict == ONNX_REFUSED)
        count_reason(t, report.text);
    if (report.verdict == ONNX_FAILED || (t->verbose && report.verdict == ONNX_REFUSED))
        printf("%s %s/%s: %s\n", report.verdict == ONNX_FAILED ? "FAILED " : "refused", suite, name,
               report.text);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_suite(struct tally *t, const char *root, const char *suite)
{
    char path[4096], folder[4096], model[4200];
    struct dirent **entries;
    snprintf(path, sizeof path, "%s/%s", root, suite);
    int before[3], n = scandir(path, &entries, is_visible, alphasort);
    memcpy(before, t->counts, sizeof before);
    for (int i = 0; i < n; i++) {
        snprintf(folder, sizeof folder, "%s/%s/%s", root, suite, entries[i]->d_name);
        snprintf(model, sizeof model, "%s/model.onnx", folder);
        if (access(model, R_OK) == 0 && (!t->only || strstr(entries[i]->d_name, t->only)))
            run_case(t, suite, entries[i]->d_name, folder);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    printf("%-20s %4d passed %4d refused %4d failed\n", suite, t->counts[0] - before[0],
           t->counts[1] - before[1], t->counts[2] - before[2]);
}

int main(int argc, char **argv)
{
    static const char *const suites[] = {"node", "pytorch-converted", "pytorch-operator", "simple",
                                         "zoo",  "zoo-quantized"};
    struct tally t = {.reasons = calloc(MAX_REASONS, sizeof *t.reasons)};
    if (!t.reasons)
        return 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0)
            t.verbose = true;
        else if (strcmp(argv[i], "--together") == 0)
            t.together = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            t.only = argv[++i];
        else
            for (size_t s = 0; s < SY_ARRAY_LEN(suites); s++)
                run_suite(&t, argv[i], suites[s]);
    }
    qsort(t.reasons, (size_t)t.n_reasons, sizeof *t.reasons, by_count);
    printf("refused:\n");
    for (int i = 0; i < t.n_reasons; i++)
        printf("%5d  %s\n", t.reasons[i].count, t.reasons[i].text);
    printf("node cases of float32, int64, int32 and bool: %d of %d passed\n", t.plain_passed,
           t.plain);
    printf("onnx: %d passed, %d refused, %d failed\n", t.counts[0], t.counts[1], t.counts[2]);
    free(t.reasons);
    return t.counts[ONNX_FAILED] > 0 || t.counts[0] + t.counts[1] == 0;
}
