#include "tests/rigs/package_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/graph_builder.h"

char pr_folder[] = "/tmp/sy-package-XXXXXX";
char pr_path[64], pr_pristine[64];
struct sy_graph *pr_graph;

/* ---- a model, and an engine that packs constants as they are --------------------------------------------------- */

struct sy_graph *pr_small_graph(void)
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

const struct sy_engine_ops pr_copier = {.name = "copier",
                                        .describe = copy_describe,
                                        .layout_layer = copy_layout,
                                        .pack_layer = copy_pack};

/* ---- files ---------------------------------------------------------------------------------------------------- */

unsigned char *pr_read_file(const char *name, size_t *bytes)
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

void pr_write_file(const char *name, const void *bytes, size_t n)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

int pr_files_in_folder(void)
{
    int n = 0;
    DIR *dir = opendir(pr_folder);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

int pr_open_and_verify(const char *name, struct sy_package **out)
{
    SY_TRY(sy_package_open(name, out));
    size_t bytes;
    unsigned char *all = pr_read_file(name, &bytes);
    int status = SY_OK;
    for (int i = 0; i < (*out)->n_layers && status == SY_OK; i++)
        status = sy_package_verify(*out, i, 1,
                                   all + (*out)->weights_offset + (*out)->layers[i].offset_bytes);
    free(all);
    if (status < 0)
        sy_package_close(*out);
    return status;
}

void pr_expect_good(const char *name)
{
    struct sy_package *package;
    if (pr_open_and_verify(name, &package) < 0)
        fail_msg("%s", sy_error_text());
    sy_package_close(package);
}

void pr_expect_refused(int status, const char *words)
{
    struct sy_package *package = NULL;
    int got = pr_open_and_verify(pr_path, &package);
    if (got != status || !strstr(sy_error_text(), pr_path) || !strstr(sy_error_text(), words))
        fail_msg("got %s \"%s\", expected %s with \"%s\" and \"%s\"", sy_status_name(got),
                 got < 0 ? sy_error_text() : "", sy_status_name(status), pr_path, words);
}

int pr_start(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_non_null(mkdtemp(pr_folder));
    snprintf(pr_path, sizeof pr_path, "%s/m.sypkg", pr_folder);
    snprintf(pr_pristine, sizeof pr_pristine, "%s/pristine.sypkg", pr_folder);
    pr_graph = pr_small_graph();
    assert_int_equal(sy_package_write(pr_pristine, "small", pr_graph, &pr_copier, NULL, NULL),
                     SY_OK);
    return 0;
}

int pr_finish(void **state)
{
    (void)state;
    unlink(pr_path);
    unlink(pr_pristine);
    sy_graph_free(pr_graph);
    assert_int_equal(rmdir(pr_folder), 0); /* nothing else was left in it */
    return 0;
}

int pr_fresh(void **state)
{
    size_t bytes;
    unsigned char *all = pr_read_file(pr_pristine, &bytes);
    (void)state;
    pr_write_file(pr_path, all, bytes);
    free(all);
    return 0;
}

struct sy_package_header pr_header_of(const unsigned char *all)
{
    struct sy_package_header header;
    memcpy(&header, all, sizeof header);
    return header;
}
