#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/graph/graph_bind.h"
#include "loader/graph/string_tensor.h"
#include "loader/infer/explain.h"
#include "loader/package/package.h"
#include "loader/storage/storage.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/confined.h"
#include "runtime/cli/import_place.h"
#include "runtime/cli/import_precision.h"
#include "runtime/cli/torch_export.h"
#include "runtime/device/device.h"
#include "workers/engine/engines.h"
#include "workers/infer/profiler.h"

static int set_threads(const struct sy_engine_ops *engine, int *n_threads)
{
    int cores[CPU_SETSIZE], n = 0;
    cpu_set_t set;

    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set) && (*n_threads == 0 || n < *n_threads))
            cores[n++] = core;
    *n_threads = n;
    return engine->set_threads(cores, n);
}

static int engine_of(const char *device, const struct sy_engine_ops **out)
{
    struct sy_device_spec spec;

    SY_TRY(sy_device_spec_parse(device ? device : "host", &spec));
    return sy_engine_for_device(spec.kind, out);
}

/* A GPU that is not there is told before the minutes of packing. */
static int check_device(const struct sy_cli_import *options, const struct sy_engine_ops *engine)
{
    struct sy_device_spec spec;
    struct sy_device *device;

    if (!options->profile || !engine->attach)
        return SY_OK;
    SY_TRY(sy_device_spec_parse(options->device, &spec));
    SY_TRY(sy_device_open(&spec, &device));
    sy_device_close(device);
    return SY_OK;
}

static void show_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    fprintf(stderr, "\r%s: packed %.1f of %.1f MB", (const char *)ctx, (double)done_bytes / 1e6,
            (double)total_bytes / 1e6);
    if (done_bytes == total_bytes)
        fputc('\n', stderr);
}

static int profile_package(const char *path, const struct sy_engine_ops *engine, const char *device,
                           int n_threads)
{
    struct sy_profile profile;
    struct sy_package *package;
    int status;

    SY_TRY(sy_package_open(path, &package));
    status = sy_profile_measure(package, engine, device, n_threads, &profile);
    sy_package_close(package);
    if (status ==
        SY_EARG) { /* sizes that inputs of zeros lead to may be none that the model can have */
        fprintf(stderr, "not timed, it does not run on zeros: %s\n", sy_error_text());
        return SY_OK;
    }
    if (status == SY_EUNSUPPORTED) /* what is sized at run was tried here first */
        unlink(path);
    SY_TRY(status);
    status = sy_package_set_profile(path, &profile);
    sy_profile_finish(&profile);
    return status;
}

/* With the usual sizes. */
static int report_precision(const struct sy_graph *graph, const struct sy_engine_ops *engine,
                            const struct sy_cli_import *options)
{
    struct sy_graph *bound;
    struct sy_sizes sizes;
    sy_graph_usual_sizes(graph, &sizes);
    SY_TRY(sy_graph_bind(graph, &sizes, &bound));
    int status = sy_cli_report_precision(bound, engine, options->calibrate, options->n_calibrate);
    sy_graph_free(bound);
    return status;
}

/* ---- confined -------------------------------------------------------------------------------------------- */

struct import {
    const char *onnx, *name;
    const struct sy_cli_import *options;
    const struct sy_engine_ops *engine;
    struct sy_import_place place;
};

/* Before the process is confined: an engine may be a library that is loaded only now, and a device has files of its own. */
static int open_engine(void *ctx)
{
    struct import *import = ctx;
    SY_TRY(engine_of(import->options->device, &import->engine));
    return check_device(import->options, import->engine);
}

static int import_here(void *ctx)
{
    const struct import *import = ctx;
    const struct sy_cli_import *options = import->options;
    const struct sy_engine_ops *engine = import->engine;
    struct sy_graph *graph = NULL;
    int status, n_threads = options->n_threads;

    sy_storage_disable_ring();
    if (engine->allow_host_ops)
        engine->allow_host_ops(options->allow_host_ops);
    SY_TRY(set_threads(engine, &n_threads));
    SY_TRY_GOTO(sy_onnx_read_sized(import->onnx, options->dims, options->n_dims, &graph), done);
    SY_TRY_GOTO(sy_graph_infer(graph), done);
    SY_TRY_GOTO(sy_graph_optimize(graph), done);
    SY_TRY_GOTO(engine->fuses ? sy_graph_fuse(graph, engine->fuses) : SY_OK, done);
    graph->precision = options->precision;
    status = sy_package_write(import->place.inside, import->name, graph, engine,
                              isatty(2) ? show_progress : NULL, (void *)(uintptr_t)import->name);
    if (status == SY_OK && options->precision != SY_PRECISION_F32)
        status = report_precision(graph, engine, options);
done:
    sy_graph_free(graph);
    if (status < 0 || !options->profile)
        return status;
    return profile_package(import->place.inside, engine, options->device, n_threads);
}

static int explain_here(void *ctx)
{
    const struct import *import = ctx;
    struct sy_graph *graph;
    SY_TRY(
        sy_onnx_read_sized(import->onnx, import->options->dims, import->options->n_dims, &graph));
    int status = sy_graph_infer(graph);
    if (status == SY_OK)
        status = sy_explain_print(graph, stdout);
    sy_graph_free(graph);
    return status;
}

static void forget_place(void *ctx)
{
    sy_import_place_remove(&((struct import *)ctx)->place);
}

/* Files of the machine that libraries read, and may load late. */
static const char *const system_paths[] = {"/lib",
                                           "/lib64",
                                           "/usr/lib",
                                           "/usr/lib64",
                                           "/usr/local/lib",
                                           "/etc/ld.so.cache",
                                           "/etc/localtime",
                                           "/usr/share/zoneinfo",
                                           "/sys/devices/system",
                                           "/sys/fs/cgroup",
                                           "/proc/self",
                                           "/proc/cpuinfo",
                                           "/proc/meminfo",
                                           "/proc/sys/vm/overcommit_memory",
                                           "/dev/null"};

/* The folder of the model with its external data, that of the file which a link names, samples, and the place of its own. */
static int confine(struct import *import, int (*work)(void *ctx), const char *what)
{
    const struct sy_cli_import *options = import->options;
    struct sy_confined how = {.what = what,
                              .limit_ns = options->limit_ns,
                              .memory_bytes = options->memory_bytes,
                              .is_open = options->profile && options->device &&
                                         strncmp(options->device, "cuda", 4) == 0};
    char given[PATH_MAX], whole[PATH_MAX];
    struct stat st;

    for (size_t i = 0; i < SY_ARRAY_LEN(system_paths); i++)
        how.paths.read[how.paths.n_read++] = system_paths[i];
    snprintf(given, sizeof given, "%s", import->onnx);
    how.paths.read[how.paths.n_read++] = dirname(given);
    if (realpath(import->onnx, whole))
        how.paths.read[how.paths.n_read++] = dirname(whole);
    for (int i = 0; i < options->n_calibrate; i++) {
        const char *file = strchr(options->calibrate[i], '=');
        how.paths.read[how.paths.n_read++] = file ? file + 1 : options->calibrate[i];
    }
    how.paths.write = *import->place.folder ? import->place.folder : NULL;
    if (stat(import->onnx, &st) == 0)
        how.file_bytes = 2 * (uint64_t)st.st_size + (1u << 30);
    if (how.is_open)
        fprintf(stderr,
                "switchyard: with --device %s the import has its process to itself, but no "
                "sandbox: the GPU's driver needs more than one lets through\n",
                options->device);
    return sy_cli_confined(&how, open_engine, work, forget_place, import);
}

int sy_cli_import(const char *onnx, const char *package, const char *name,
                  const struct sy_cli_import *options)
{
    struct import import = {.onnx = onnx, .name = name, .options = options};
    if (access(onnx, R_OK) < 0)
        return sy_error_set(SY_EIO, "cannot open %s: %s", onnx, strerror(errno));
    SY_TRY(sy_import_place_make(package, &import.place));
    int status = confine(&import, import_here, "the import");
    if (status == SY_OK)
        status = sy_import_place_commit(&import.place);
    sy_import_place_remove(&import.place);
    return status;
}

static int explain_model(const char *onnx, const struct sy_cli_import *options)
{
    struct import import = {.onnx = onnx, .options = options};
    return confine(&import, explain_here, "the look at the model");
}

static bool older_than(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec != b->st_mtim.tv_sec ? a->st_mtim.tv_sec < b->st_mtim.tv_sec
                                                  : a->st_mtim.tv_nsec < b->st_mtim.tv_nsec;
}

bool sy_cli_is_imported(const char *onnx, const char *package, const char *device)
{
    const struct sy_engine_ops *engine;
    struct sy_package *opened;
    struct stat source, made;
    int status;

    if (engine_of(device, &engine) < 0)
        return false;
    if (stat(package, &made) < 0) {
        sy_error_set(SY_ENOTFOUND, "it has no package yet");
        return false;
    }
    if (stat(onnx, &source) == 0 && older_than(&made, &source)) {
        sy_error_set(SY_EUNSUPPORTED, "it is newer than %s", package);
        return false;
    }
    status = sy_package_open(package, &opened);
    if (status < 0)
        return status != SY_EUNSUPPORTED;
    status = sy_package_check_engine(opened, engine);
    sy_package_close(opened);
    return status == SY_OK;
}

enum sy_precision sy_cli_kept_precision(const char *package, const char *device)
{
    const struct sy_engine_ops *engine;
    struct sy_package *opened;
    enum sy_precision there;
    char text[256];

    if (access(package, F_OK) < 0 || engine_of(device, &engine) < 0 ||
        sy_package_open(package, &opened) < 0)
        return SY_PRECISION_F32;
    there = opened->graph->precision;
    sy_package_close(opened);
    if (sy_package_packed_for(engine, there, text, sizeof(text)) == SY_OK)
        return there;
    fprintf(stderr, "switchyard: %s was in %s, it becomes f32: %s\n", package,
            sy_precision_name(there), sy_error_text());
    return SY_PRECISION_F32;
}

/* An update keeps the precision of the package that is there, unless another is asked for. */
static bool needs_import(const char *onnx, const char *package, bool has_precision,
                         struct sy_cli_import *import)
{
    enum sy_precision kept;

    if (!sy_cli_is_imported(onnx, package, import->device)) {
        if (!has_precision)
            import->precision = sy_cli_kept_precision(package, import->device);
        return true;
    }
    kept = sy_cli_kept_precision(package, import->device);
    return has_precision && import->precision != kept;
}

/* The model's name: NAME for NAME/VERSION/model.onnx, the layout of `serve --models`; else the file's name without its extension. */
static void default_model_name(const char *onnx, const char *base, int stem, char *name,
                               size_t name_bytes)
{
    char whole[PATH_MAX];
    char *version, *folder;
    if (stem == 5 && strncmp(base, "model", 5) == 0 && realpath(onnx, whole)) {
        *strrchr(whole, '/') = '\0';
        version = strrchr(whole, '/');
        if (version && version[1] && strspn(version + 1, "0123456789") == strlen(version + 1)) {
            *version = '\0';
            folder = strrchr(whole, '/');
            if (folder && folder[1]) {
                snprintf(name, name_bytes, "%s", folder + 1);
                return;
            }
        }
    }
    snprintf(name, name_bytes, "%.*s", stem, base);
}

/* dir/model.onnx -> dir/model.sypkg, and the model's name, where they are not given. */
static int default_names(const char *onnx, char *path, size_t path_bytes, char *name,
                         size_t name_bytes)
{
    const char *slash = strrchr(onnx, '/'), *base = slash ? slash + 1 : onnx,
               *dot = strrchr(base, '.');
    int stem = dot ? (int)(dot - base) : (int)strlen(base);

    if (!*path)
        snprintf(path, path_bytes, "%.*s%.*s" SY_PACKAGE_SUFFIX, (int)(base - onnx), onnx, stem,
                 base);
    if (!*name)
        default_model_name(onnx, base, stem, name, name_bytes);
    return stem > 0;
}

static void print_sizes(const char *path)
{
    struct sy_package *package;

    if (sy_package_open(path, &package) < 0)
        return; /* its users say why */
    for (int i = 0; i < package->graph->n_symbols; i++)
        if (!sy_graph_is_own_size(package->graph, i))
            fprintf(stderr,
                    "%s: each request chooses its %s, usually %lld; --dim %s=SIZE fixes it\n",
                    package->name, package->graph->symbols[i].name,
                    (long long)package->graph->symbols[i].usual, package->graph->symbols[i].name);
    sy_package_close(package);
}

static int import_model(const char *model, const char *path, const char *name,
                        const struct sy_cli_import *import, struct sy_torch_export *exported,
                        const char *python)
{
    int status = exported ? sy_torch_export_run(model, python, exported) : SY_OK;
    if (status == SY_OK)
        status = sy_cli_import(exported ? exported->onnx : model, path, name, import);
    if (exported)
        sy_torch_export_finish(exported);
    return status;
}

/* The command line. */
struct import_words {
    const char *model, *python;
    char path[4096], name[256];
    struct sy_cli_import import;
    bool update, has_precision, explain;
};

static int set_output(void *command, const char *value)
{
    struct import_words *w = command;

    snprintf(w->path, sizeof w->path, "%s", value);
    return SY_OK;
}

static int set_name(void *command, const char *value)
{
    struct import_words *w = command;

    snprintf(w->name, sizeof w->name, "%s", value);
    return SY_OK;
}

static int set_precision(void *command, const char *value)
{
    struct import_words *w = command;

    w->has_precision = true;
    return sy_precision_from_name(value, &w->import.precision);
}

static int set_limit(void *command, const char *value)
{
    int64_t seconds;

    SY_TRY(sy_cli_integer(value, 1, 1 << 30, &seconds));
    ((struct import_words *)command)->import.limit_ns = (sy_ns)seconds * SY_NS_PER_S;
    return SY_OK;
}

static int add_dim(void *command, const char *value)
{
    struct sy_cli_import *import = &((struct import_words *)command)->import;
    static const char apart[] = "=apart";
    size_t n = strlen(value), tail = sizeof(apart) - 1;

    if (n <= tail || strcmp(value + n - tail, apart) != 0)
        return sy_cli_dim(value, import->dims, &import->n_dims);
    if (import->n_dims == SY_CLI_MAX_DIMS)
        return sy_error_set(SY_EARG, "at most %d", SY_CLI_MAX_DIMS);
    ((char *)(uintptr_t)value)[n - tail] = '\0'; /* as sy_cli_dim */
    import->dims[import->n_dims++] = (struct sy_onnx_dim){value, SY_ONNX_APART};
    return SY_OK;
}

static int add_calibration(void *command, const char *value)
{
    struct sy_cli_import *import = &((struct import_words *)command)->import;

    if (import->n_calibrate == SY_CLI_MAX_CALIBRATE)
        return sy_error_set(SY_EARG, "more than %d inputs", SY_CLI_MAX_CALIBRATE);
    import->calibrate[import->n_calibrate++] = value;
    return SY_OK;
}

static int set_model(void *command, const char *word)
{
    struct import_words *w = command;

    if (w->model)
        return sy_error_set(SY_EARG, "import takes one model, not also %s", word);
    w->model = word;
    return SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"output", "FILE.sypkg", "where to; default: beside the model (also -o)"},
     SY_CLI_SET(set_output)},
    {{"name", "NAME", "the model's name; default: the file's, or NAME of NAME/1/model.onnx"},
     SY_CLI_SET(set_name)},
    {{"no-profile", NULL, "do not time the layers: groups are then planned from sizes alone"},
     SY_CLI_OFF(struct import_words, import.profile)},
    {{"update", NULL, "do nothing if an up-to-date package is there"},
     SY_CLI_SWITCH(struct import_words, update)},
    {{"threads", "N", "compute threads of the profile; default: all cores that may be used"},
     SY_CLI_INT(struct import_words, import.n_threads, 1, 1024)},
    {{"device", "SPEC",
      "whose engine packs, and is timed: host (default), emulated, cuda[:N]. With --no-profile "
      "a "
      "package for a GPU is made without one"},
     SY_CLI_TEXT(struct import_words, import.device)},
    {{"precision", "f32|bf16|f16",
      "bf16, f16: weights take half the bytes and products are computed in it, summed in f32; "
      "on the host bf16 only, and a CPU without AVX512_BF16 or AMX computes in f32 with such "
      "weights. Default: f32; with --update, that of the package"},
     SY_CLI_SET(set_precision)},
    {{"calibrate", "[NAME=]FILE.npy",
      "samples of an input, on which the error against f32 is reported, instead of random ones; "
      "once for each input"},
     SY_CLI_SET(add_calibration)},
    {{"dim", "NAME=SIZE",
      "a number for a dimension that requests could choose, as a sequence's length: by its name "
      "in the file, or as INPUT.INDEX; once for each. It is then the same for all requests. "
      "NAME=apart: dimensions of that name may differ, but where the model needs them equal. "
      "INPUT.rank=N: how many dimensions an input has whose file does not say it"},
     SY_CLI_SET(add_dim)},
    {{"allow-host-ops", NULL,
      "with --device cuda: operators that its engine lacks are computed on the host, in "
      "between, "
      "instead of being refused"},
     SY_CLI_SWITCH(struct import_words, import.allow_host_ops)},
    {{"explain", NULL,
      "write no package; print which nodes are sized at run (their results' sizes depend on "
      "data), why, and what decides; or that nothing is. With --dim as the import would have "
      "it"},
     SY_CLI_SWITCH(struct import_words, explain)},
    {{"limit", "SECONDS", "an import that takes longer is ended; default 3600"},
     SY_CLI_SET(set_limit)},
    {{"memory", "SIZE",
      "memory that the import may take, as 8G; default: three quarters of the machine's, or of "
      "its "
      "cgroup's"},
     SY_CLI_BYTES(struct import_words, import.memory_bytes)},
    {{"python", "PROGRAM", "of a PyTorch model: the interpreter that has it; default python3"},
     SY_CLI_TEXT(struct import_words, python)}};

static const struct sy_cli_fields words = {
    "import MODEL.onnx|MODEL.pt2|SCRIPT.py:FUNCTION [options]\n\n"
    "A PyTorch model goes through torch.onnx first, in a process of its own: "
    "a program of torch.export (.pt2), or the value of FUNCTION(), "
    "(model, example_inputs) or (model, example_inputs, {options of "
    "torch.onnx.export}). A .pt2 or a script runs with your rights, and what it prints comes on "
    "stderr: import only those that you trust.\n\nReads the model, infers shapes, "
    "fuses, packs the weights for the device and times each layer. "
    "Dimensions that the file leaves open stay open: each request "
    "chooses them.\n\nAn ONNX file is not trusted: it is read in a process "
    "of its own, which has no network, reads the model's folder "
    "alone, and writes into a folder of its own; a failure "
    "there is reported as a refusal.",
    fields, SY_ARRAY_LEN(fields), set_model};

/* NULL, or why these words do not go together. */
static const char *contradiction(const struct import_words *w, bool is_torch)
{
    if (w->explain && is_torch)
        return "--explain reads an ONNX file; import the model first";
    if (!w->explain && w->import.n_calibrate > 0 && w->import.precision == SY_PRECISION_F32 &&
        (w->has_precision || !w->update))
        return "--calibrate compares another precision with f32: give --precision";
    return NULL;
}

int sy_cmd_import(int argc, char **argv)
{
    static struct sy_torch_export exported;
    struct import_words w = {.import = {.device = "host", .profile = true}};
    int result = sy_cli_read(&words, argc, argv, &w);

    if (result != SY_CLI_END)
        return result;
    bool is_torch = w.model && sy_torch_export_names(w.model, &exported);
    if (!w.model || !default_names(is_torch ? exported.nominal : w.model, w.path, sizeof w.path,
                                   w.name, sizeof w.name))
        return sy_cli_usage("import which model? see switchyard import --help");
    const char *why = contradiction(&w, is_torch);
    if (why)
        return sy_cli_usage("%s", why);
    if (w.explain)
        return explain_model(w.model, &w.import) < 0 ? sy_cli_fail_status() : 0;
    if (!(w.update && !needs_import(is_torch ? exported.source : w.model, w.path, w.has_precision,
                                    &w.import)) &&
        import_model(w.model, w.path, w.name, &w.import, is_torch ? &exported : NULL, w.python) < 0)
        return sy_cli_fail_status();
    print_sizes(w.path);
    printf("%s\n", w.path);
    return 0;
}
