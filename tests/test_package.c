/* The package file: what is written can be read; every byte counts; every cut is named; a profile is set whole or not at all.
 * The weights that are expected come from the graph's constants, through an engine of our own that copies them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/package.h"
#include "loader/package_header.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/graph_builder.h"

#define PAGE 4096u

static char folder[] = "/tmp/sy-package-XXXXXX";
static char path[64], pristine[64];
static struct sy_graph *graph;

/* ---- a model, and an engine that packs constants as they are --------------------------------------------------- */

/* Conv (1 page of parameters), Relu (none), Gemm (3 pages). */
static struct sy_graph *small_graph(void)
{
    uint64_t seed = 11;
    struct sy_graph *g = gb_new("small");
    int x = gb_input(g, 4, (const int64_t[]){1, 1, 6, 6});
    int w = gb_constant(g, "w", 4, (const int64_t[]){4, 1, 3, 3}, &seed, -1, 1);
    int b = gb_constant(g, "b", 1, (const int64_t[]){4}, &seed, -1, 1);
    int c = gb_node(g, SY_OP_CONV, 3, (int[]){x, w, b}, 4, (const int64_t[]){1, 4, 4, 4});
    gb_ints(g, "kernel_shape", 2, (const int64_t[]){3, 3});
    int r = gb_node(g, SY_OP_RELU, 1, &c, 4, (const int64_t[]){1, 4, 4, 4});
    int f = gb_node(g, SY_OP_FLATTEN, 1, &r, 2, (const int64_t[]){1, 64});
    int v = gb_constant(g, "v", 2, (const int64_t[]){64, 40}, &seed, -1, 1);
    gb_output(g, gb_node(g, SY_OP_GEMM, 2, (int[]){f, v}, 2, (const int64_t[]){1, 40}));
    return g;
}

static int copy_describe(char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "copies for tests");
    return SY_OK;
}

static int copy_layout(const struct sy_graph *g, struct sy_layer *layer)
{
    const struct sy_node *node = &g->nodes[layer->node];
    layer->params = calloc((size_t)node->n_inputs, sizeof *layer->params);
    for (int i = 0; i < node->n_inputs; i++) {
        const struct sy_tensor *t = &g->tensors[node->inputs[i]];
        if (!t->data)
            continue;
        struct sy_param *param = &layer->params[layer->n_params++];
        *param = (struct sy_param){i, layer->bytes, t->data_bytes, 3, strdup("as")};
        layer->bytes = SY_ALIGN_UP(layer->bytes + t->data_bytes, SY_PARAM_ALIGN);
    }
    return SY_OK;
}

static int copy_pack(const struct sy_graph *g, const struct sy_layer *layer, void *to)
{
    for (int p = 0; p < layer->n_params; p++) {
        const struct sy_param *param = &layer->params[p];
        memcpy((char *)to + param->offset_bytes,
               g->tensors[g->nodes[layer->node].inputs[param->input]].data, param->bytes);
    }
    return SY_OK;
}

static int failing_pack(const struct sy_graph *g, const struct sy_layer *layer, void *to)
{
    (void)g, (void)to;
    return layer->node == 3 ? sy_error_set(SY_EUNSUPPORTED, "not this layer") : SY_OK;
}

static const struct sy_engine_ops copier = {.name = "copier",
                                            .describe = copy_describe,
                                            .layout_layer = copy_layout,
                                            .pack_layer = copy_pack};

/* ---- files ---------------------------------------------------------------------------------------------------- */

static unsigned char *read_file(const char *name, size_t *bytes)
{
    struct stat st;
    int fd = open(name, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    unsigned char *all = malloc((size_t)st.st_size + 1);
    assert_int_equal(read(fd, all, (size_t)st.st_size), st.st_size);
    close(fd);
    *bytes = (size_t)st.st_size;
    return all;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static int files_in_folder(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

/* Opens and verifies all weights, as a swap would: group by group. The package stays open on success. */
static int open_and_verify(const char *name, struct sy_package **out)
{
    SY_TRY(sy_package_open(name, out));
    size_t bytes;
    unsigned char *all = read_file(name, &bytes);
    int status = SY_OK;
    for (int i = 0; i < (*out)->n_layers && status == SY_OK; i++)
        status = sy_package_verify(*out, i, 1,
                                   all + (*out)->weights_offset + (*out)->layers[i].offset_bytes);
    free(all);
    if (status < 0)
        sy_package_close(*out);
    return status;
}

static void expect_good(const char *name)
{
    struct sy_package *package;
    if (open_and_verify(name, &package) < 0)
        fail_msg("%s", sy_error_text());
    sy_package_close(package);
}

static void expect_refused(int status, const char *words)
{
    struct sy_package *package = NULL;
    int got = open_and_verify(path, &package);
    if (got != status || !strstr(sy_error_text(), path) || !strstr(sy_error_text(), words))
        fail_msg("got %s \"%s\", expected %s with \"%s\" and \"%s\"", sy_status_name(got),
                 got < 0 ? sy_error_text() : "", sy_status_name(status), path, words);
}

static int start(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.sypkg", folder);
    snprintf(pristine, sizeof pristine, "%s/pristine.sypkg", folder);
    graph = small_graph();
    assert_int_equal(sy_package_write(pristine, "small", graph, &copier, NULL, NULL), SY_OK);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    unlink(path);
    unlink(pristine);
    sy_graph_free(graph);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left in it */
    return 0;
}

/* A good package at `path` before each test. */
static int fresh(void **state)
{
    size_t bytes;
    unsigned char *all = read_file(pristine, &bytes);
    (void)state;
    write_file(path, all, bytes);
    free(all);
    return 0;
}

static struct sy_package_header header_of(const unsigned char *all)
{
    struct sy_package_header header;
    memcpy(&header, all, sizeof header);
    return header;
}

/* ---- what is written ------------------------------------------------------------------------------------------ */

static void test_reads_what_was_written(void **state)
{
    (void)state;
    struct sy_package *p;
    size_t bytes;
    unsigned char *all = read_file(path, &bytes);
    assert_int_equal(open_and_verify(path, &p), SY_OK);
    assert_string_equal(p->name, "small");
    assert_string_equal(p->packed_for, "copies for tests");
    assert_string_equal(p->path, path);
    assert_int_equal(p->n_layers, 4);
    assert_int_equal(p->weights_bytes, 4 * PAGE); /* one page, none, none, 64*40*4 in three */
    assert_int_equal(bytes, p->weights_offset + p->weights_bytes);
    const unsigned char *weights = all + p->weights_offset;
    const struct sy_layer *conv = &p->layers[0], *gemm = &p->layers[3];
    assert_memory_equal(weights, graph->tensors[1].data, 4 * 9 * 4);
    assert_int_equal(conv->params[1].offset_bytes, 192); /* behind 144 bytes, aligned to 64 */
    assert_memory_equal(weights + 192, graph->tensors[2].data, 16);
    assert_int_equal(gemm->offset_bytes, PAGE);
    assert_memory_equal(
        weights + PAGE,
        graph->nodes[3].inputs[1] >= 0 ? graph->tensors[graph->nodes[3].inputs[1]].data : NULL,
        64 * 40 * 4);
    assert_memory_equal(conv->params[0].layout, "as", 3);
    assert_int_equal(p->graph->nodes[3].op, SY_OP_GEMM);
    assert_null(p->graph->tensors[1].data); /* it is in the weights */
    assert_int_equal(p->profile.n_threads, 0);
    assert_int_equal(sy_package_layer_ns(p, 0, 1), 0);
    /* all layers in one piece, and the last two */
    assert_int_equal(sy_package_verify(p, 0, 4, weights), SY_OK);
    assert_int_equal(sy_package_verify(p, 2, 2, weights + PAGE), SY_OK);
    assert_int_equal(sy_package_verify(p, 2, 2, weights), SY_ECORRUPT);
    sy_package_close(p);
    free(all);
}

static void test_same_model_same_bytes(void **state)
{
    (void)state;
    size_t n, m;
    unsigned char *a = read_file(pristine, &n), *b;
    assert_int_equal(sy_package_write(path, "small", graph, &copier, NULL, NULL), SY_OK);
    b = read_file(path, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

static int other_describe(char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "copies for others");
    return SY_OK;
}

static void test_packed_for_another_engine(void **state)
{
    (void)state;
    struct sy_package *p;
    struct sy_engine_ops other = copier;
    other.describe = other_describe;
    assert_int_equal(sy_package_open(path, &p), SY_OK);
    assert_int_equal(sy_package_check_engine(p, &copier), SY_OK);
    assert_int_equal(sy_package_check_engine(p, &other), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), path));
    assert_non_null(strstr(sy_error_text(), "copies for tests"));
    assert_non_null(strstr(sy_error_text(), "copies for others"));
    sy_package_close(p);
}

/* ---- damage --------------------------------------------------------------------------------------------------- */

static const char *section_of(const struct sy_package_header *h, size_t at)
{
    if (at < PAGE)
        return ": header: ";
    if (at < PAGE + h->meta_bytes)
        return ": meta: ";
    if (at < h->weights_offset)
        return ": padding: ";
    return at < h->weights_offset + PAGE ? ": weights of layer 0 (node0): "
                                         : ": weights of layer 3 (node3): ";
}

/* Every byte of the file, each with a bit pattern of its own. */
static void test_every_byte_counts(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = read_file(path, &bytes);
    struct sy_package_header h = header_of(all);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
#ifdef SY_SANITIZED
    const size_t step = 7;
#else
    const size_t step = 1;
#endif
    for (size_t at = 0; at < bytes; at += at < PAGE || at % 64 == 0 ? 1 : step) {
        unsigned char altered = all[at] ^ (unsigned char)(1u << at % 8 | (at * 37 & 0xffu));
        altered = altered == all[at] ? (unsigned char)~all[at] : altered;
        assert_int_equal(pwrite(fd, &altered, 1, (off_t)at), 1);
        expect_refused(SY_ECORRUPT, section_of(&h, at));
        assert_int_equal(pwrite(fd, &all[at], 1, (off_t)at), 1);
    }
    close(fd);
    expect_good(path);
    free(all);
}

static void expect_cut(const unsigned char *all, size_t at, const char *words)
{
    write_file(path, all, at);
    expect_refused(SY_ECORRUPT, words);
}

static void test_every_cut_is_named(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = read_file(path, &bytes);
    struct sy_package_header h = header_of(all);
    const size_t meta_end = PAGE + h.meta_bytes, weights = h.weights_offset;
    for (size_t at = 0; at < PAGE; at += at == 0 || at + 5 > PAGE ? 1 : 511)
        expect_cut(all, at, ": header: the file has ");
    for (size_t at = PAGE; at < meta_end; at += at < PAGE + 2 || at + 2 > meta_end ? 1 : 97)
        expect_cut(all, at, ": meta: the file has ");
    for (size_t at = meta_end; at < weights; at += at < meta_end + 2 || at + 2 > weights ? 1 : 97)
        expect_cut(all, at, ": padding: the file has ");
    for (size_t layer = weights; layer < bytes; layer += PAGE)
        for (int d = -1; d <= 1; d++)
            if (layer + (size_t)d >= weights)
                expect_cut(all, layer + (size_t)d, ": weights: the file has ");
    expect_cut(all, bytes - 1, ": weights: the file has ");
    free(all);
}

static void test_appended_bytes_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = read_file(path, &bytes), *more = calloc(1, bytes + PAGE);
    memcpy(more, all, bytes);
    memset(more + bytes, 'x', PAGE);
    for (size_t extra = 1; extra <= PAGE; extra += PAGE - 1) {
        write_file(path, more, bytes + extra);
        expect_refused(SY_ECORRUPT, ": weights: the file has ");
    }
    free(more);
    free(all);
}

/* The header's hash is right, its contents are not. */
static void with_header(const struct sy_package_header *header, int status, const char *words)
{
    struct sy_package_header h = *header;
    int fd = open(path, O_WRONLY);
    h.header_hash = sy_package_header_hash(&h);
    assert_int_equal(pwrite(fd, &h, sizeof h, 0), sizeof h);
    close(fd);
    expect_refused(status, words);
}

static void test_hostile_headers(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *all = read_file(path, &bytes);
    const struct sy_package_header good = header_of(all);
    struct sy_package_header h = good;
    char words[80];
    h.version = SY_PACKAGE_VERSION + 1;
    snprintf(words, sizeof words, "version %u, this program reads %u", SY_PACKAGE_VERSION + 1,
             SY_PACKAGE_VERSION);
    with_header(&h, SY_EUNSUPPORTED, words);
    h.version = SY_PACKAGE_VERSION - 1;
    with_header(&h, SY_EUNSUPPORTED, "import the model again");
    h = good, h.meta_bytes = UINT64_MAX - 4096;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.meta_bytes += 1;
    with_header(&h, SY_ECORRUPT, ": meta: ");
    h = good, h.meta_bytes = 0;
    with_header(&h, SY_ECORRUPT, ": meta: ");
    h = good, h.weights_offset = 1ull << 62;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.weights_offset = 0;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.weights_bytes = 0 - good.weights_offset;
    with_header(&h, SY_ECORRUPT, ": header: ");
    h = good, h.weights_offset += PAGE, h.weights_bytes -= PAGE; /* the first layer as padding */
    with_header(&h, SY_ECORRUPT, ": padding: ");
    h = good, h.weights_offset -= 1;
    with_header(&h, SY_ECORRUPT, ": header: ");
    free(all);
}

static void test_what_is_no_package(void **state)
{
    (void)state;
    struct sy_package *p = NULL;
    write_file(path, "", 0);
    expect_refused(SY_ECORRUPT, ": header: ");
    unlink(path);
    assert_int_equal(sy_package_open(path, &p), SY_ENOTFOUND);
    assert_int_equal(sy_package_open(folder, &p), SY_EARG);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sy_package_open(path, &p), SY_EARG); /* and does not wait for a writer */
    assert_null(p);
    unlink(path);
}

/* ---- profiles -------------------------------------------------------------------------------------------------- */

static uint64_t times[2][4];

static struct sy_profile some_profile(uint64_t scale)
{
    struct sy_profile profile = {.n_threads = 2,
                                 .storage_bytes_per_s = 5 * scale,
                                 .batch = {1, 8},
                                 .layer_ns = {times[0], times[1]}};
    for (int i = 0; i < 4; i++) {
        times[0][i] = (uint64_t)(i + 1) * scale;
        times[1][i] = (uint64_t)(i + 1) * scale * 3;
    }
    return profile;
}

static int set_some_profile(void)
{
    struct sy_profile profile = some_profile(7);
    return sy_package_set_profile(path, &profile);
}

static void expect_same_but_profile(const struct sy_package *a, const struct sy_package *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->packed_for, b->packed_for);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->weights_bytes, b->weights_bytes);
    assert_memory_equal(a->layer_hash, b->layer_hash, (size_t)a->n_layers * 8);
    for (int i = 0; i < a->n_layers; i++) {
        assert_int_equal(a->layers[i].offset_bytes, b->layers[i].offset_bytes);
        assert_int_equal(a->layers[i].bytes, b->layers[i].bytes);
        assert_int_equal(a->layers[i].n_params, b->layers[i].n_params);
    }
    size_t n, m;
    void *x, *y;
    bool *keep = calloc((size_t)a->graph->n_tensors, 1);
    assert_int_equal(sy_graph_encode(a->graph, keep, &x, &n), SY_OK);
    assert_int_equal(sy_graph_encode(b->graph, keep, &y, &m), SY_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
    free(keep);
}

static void expect_same_weights(void)
{
    size_t n, m;
    unsigned char *a = read_file(pristine, &n), *b = read_file(path, &m);
    struct sy_package_header x = header_of(a), y = header_of(b);
    assert_int_equal(x.weights_bytes, y.weights_bytes);
    assert_memory_equal(a + x.weights_offset, b + y.weights_offset, x.weights_bytes);
    free(a);
    free(b);
}

static void test_profile_round_trip(void **state)
{
    (void)state;
    struct sy_package *before, *after;
    assert_int_equal(open_and_verify(pristine, &before), SY_OK);
    /* small numbers, then long ones, which take more room in the meta section, then small ones again */
    const uint64_t scales[] = {1, 1ull << 58, 100};
    for (size_t s = 0; s < SY_ARRAY_LEN(scales); s++) {
        struct sy_profile profile = some_profile(scales[s]);
        assert_int_equal(sy_package_set_profile(path, &profile), SY_OK);
        assert_int_equal(open_and_verify(path, &after), SY_OK);
        expect_same_but_profile(before, after);
        expect_same_weights();
        assert_true(before->content_hash != after->content_hash);
        assert_int_equal(after->weights_offset, before->weights_offset);
        assert_int_equal(after->profile.n_threads, 2);
        assert_int_equal(after->profile.storage_bytes_per_s, 5 * scales[s]);
        for (int b = 0; b < 2; b++) {
            assert_int_equal(after->profile.batch[b], b ? 8 : 1);
            assert_memory_equal(after->profile.layer_ns[b], times[b], sizeof times[b]);
        }
        sy_package_close(after);
    }
    assert_int_equal(sy_package_open(path, &after), SY_OK);
    assert_int_equal(sy_package_layer_ns(after, 1, 1), 200);
    assert_int_equal(sy_package_layer_ns(after, 1, 8), 600);
    assert_int_equal(sy_package_layer_ns(after, 1, 15), 1000); /* the line goes on */
    sy_package_close(after);
    sy_package_close(before);
    assert_int_equal(files_in_folder(), 2);
}

/* A package with less room in front of the weights than a profile may need: they move, bit for bit. */
static void test_profile_moves_the_weights(void **state)
{
    (void)state;
    char name[4096] = "";
    size_t bytes = 0;
    unsigned char *all = NULL;
    struct sy_package_header h = {.meta_bytes = 0};
    for (size_t n = 3000; n < 4000; n++) { /* the longest meta section that fits one page */
        name[n - 1] = 'n';
        if (n == 3000)
            memset(name, 'n', n);
        assert_int_equal(sy_package_write(path, name, graph, &copier, NULL, NULL), SY_OK);
        free(all);
        all = read_file(path, &bytes);
        h = header_of(all);
        if (h.weights_offset == 3 * PAGE)
            break;
    }
    assert_true(h.weights_offset == 3 * PAGE && h.meta_bytes <= PAGE);
    memmove(all + 2 * PAGE, all + 3 * PAGE, h.weights_bytes);
    h.weights_offset = 2 * PAGE;
    h.header_hash = sy_package_header_hash(&h);
    memcpy(all, &h, sizeof h);
    write_file(path, all, bytes - PAGE);
    free(all);
    expect_good(path);
    assert_int_equal(set_some_profile(), SY_OK);
    expect_good(path);
    expect_same_weights();
    all = read_file(path, &bytes);
    h = header_of(all);
    assert_int_equal(h.weights_offset, 3 * PAGE);
    free(all);
}

/* What could not be read again is not written: the old package stays. */
static void test_unreadable_profile_is_refused(void **state)
{
    (void)state;
    struct sy_profile profile = some_profile(1);
    profile.n_threads = -1;
    assert_int_equal(sy_package_set_profile(path, &profile), SY_EARG);
    profile = some_profile(1), profile.batch[1] = 1ll << 40;
    assert_int_equal(sy_package_set_profile(path, &profile), SY_EARG);
    profile = some_profile(1), times[1][2] = UINT64_MAX;
    assert_int_equal(sy_package_set_profile(path, &profile), SY_EARG);
    char *name = calloc(1, 5001);
    memset(name, 'n', 5000);
    assert_int_equal(sy_package_write(path, name, graph, &copier, NULL, NULL), SY_EARG);
    free(name);
    expect_good(path);
    expect_same_weights();
    assert_int_equal(files_in_folder(), 2);
}

static void test_profile_of_a_damaged_package(void **state)
{
    (void)state;
    struct sy_profile profile = some_profile(1);
    assert_int_equal(truncate(path, 2 * PAGE + 17), 0);
    assert_int_equal(sy_package_set_profile(path, &profile), SY_ECORRUPT);
    unlink(path);
    assert_int_equal(sy_package_set_profile(path, &profile), SY_ENOTFOUND);
    assert_int_equal(files_in_folder(), 1);
}

/* ---- writes that fail ------------------------------------------------------------------------------------------ */

static int with_file_limit(rlim_t bytes, int (*write_it)(void))
{
    struct rlimit old, now;
    getrlimit(RLIMIT_FSIZE, &old);
    now = old, now.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    int status = write_it();
    setrlimit(RLIMIT_FSIZE, &old);
    return status;
}

static int write_package(void)
{
    return sy_package_write(path, "small", graph, &copier, NULL, NULL);
}

static void test_full_disk(void **state)
{
    (void)state;
    size_t bytes;
    free(read_file(path, &bytes));
    for (rlim_t limit = 0; limit < bytes; limit += limit % PAGE ? 1 : PAGE - 1) {
        assert_int_equal(with_file_limit(limit, set_some_profile), SY_EIO);
        assert_non_null(strstr(sy_error_text(), path));
        assert_int_equal(with_file_limit(limit, write_package), SY_EIO);
        assert_int_equal(files_in_folder(), 2);
        expect_good(path);
        expect_same_weights();
    }
    unlink(path);
    assert_int_equal(with_file_limit(PAGE, write_package), SY_EIO);
    assert_int_equal(files_in_folder(), 1); /* no half package under the name either */
    assert_int_equal(with_file_limit(bytes, write_package), SY_OK);
    expect_good(path);
}

static void test_engine_that_fails(void **state)
{
    (void)state;
    struct sy_engine_ops failing = copier;
    failing.pack_layer = failing_pack;
    assert_int_equal(sy_package_write(path, "other", graph, &failing, NULL, NULL), SY_EUNSUPPORTED);
    assert_int_equal(files_in_folder(), 2);
    expect_good(path);
    expect_same_weights();
}

/* This program again, as a process with SY_FAULT set: it sets the profile, or writes the package. Its wait status. */
static int run_child(const char *what, const char *fault)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        setenv("SY_FAULT", fault, 1);
        execl("/proc/self/exe", "test_package", what, path, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int child_main(const char *what, const char *at)
{
    snprintf(path, sizeof path, "%s", at);
    graph = small_graph();
    int status = strcmp(what, "--profile") == 0 ? set_some_profile() : write_package();
    sy_graph_free(graph);
    return status == SY_OK ? 0 : status == SY_EIO ? 1 : 2;
}

static void remove_temporaries(void)
{
    char name[400];
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strstr(entry->d_name, ".tmp-")) {
            snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
            unlink(name);
        }
    closedir(dir);
}

/* The k-th call of one operation fails, for every k until nothing fails any more. */
static void fail_each(const char *what, const char *op, const char *how)
{
    for (int k = 1; k < 50; k++) {
        char fault[80];
        snprintf(fault, sizeof fault, "%s:%d:%s", op, k, how);
        int status = run_child(what, fault);
        bool done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (strcmp(how, "KILL") == 0) {
            assert_true(done || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
            remove_temporaries(); /* a killed process cannot */
        } else if (!done) {
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        }
        assert_int_equal(files_in_folder(), 2);
        expect_good(path);
        expect_same_weights();
        if (done) {
            assert_true(k > 1); /* the operation is there */
            return;
        }
    }
    fail_msg("%s is called without end", op);
}

static void test_every_operation_fails(void **state)
{
    (void)state;
    static const char *const ops[] = {"file_create", "file_write", "file_sync", "file_rename",
                                      "folder_sync"};
    for (size_t i = 0; i < SY_ARRAY_LEN(ops); i++) {
        fail_each("--profile", ops[i], "EIO");
        fail_each("--profile", ops[i], "KILL");
        fail_each("--write", ops[i], "EIO");
        fail_each("--write", ops[i], "KILL");
    }
    fail_each("--profile", "file_read", "EIO");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reads_what_was_written, fresh),
        cmocka_unit_test_setup(test_same_model_same_bytes, fresh),
        cmocka_unit_test_setup(test_packed_for_another_engine, fresh),
        cmocka_unit_test_setup(test_every_byte_counts, fresh),
        cmocka_unit_test_setup(test_every_cut_is_named, fresh),
        cmocka_unit_test_setup(test_appended_bytes_are_refused, fresh),
        cmocka_unit_test_setup(test_hostile_headers, fresh),
        cmocka_unit_test_setup(test_what_is_no_package, fresh),
        cmocka_unit_test_setup(test_profile_round_trip, fresh),
        cmocka_unit_test_setup(test_profile_moves_the_weights, fresh),
        cmocka_unit_test_setup(test_unreadable_profile_is_refused, fresh),
        cmocka_unit_test_setup(test_profile_of_a_damaged_package, fresh),
        cmocka_unit_test_setup(test_full_disk, fresh),
        cmocka_unit_test_setup(test_engine_that_fails, fresh),
        cmocka_unit_test_setup(test_every_operation_fails, fresh),
    };
    if (argc == 3)
        return child_main(argv[1], argv[2]);
    return cmocka_run_group_tests(tests, start, finish);
}
