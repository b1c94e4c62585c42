/* Reading ONNX, inferring shapes, optimizing: bytes are refused or become a graph that can be written and read again. */
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph.h"
#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/nets/onnx_bytes.h"

static void check_codec(const struct sy_graph *graph)
{
    struct sy_graph *again = NULL;
    void *bytes = NULL;
    size_t n = 0;
    bool *keep = calloc((size_t)graph->n_tensors + 1, sizeof *keep);
    FUZZ_CHECK(keep);
    for (int t = 0; t < graph->n_tensors; t++)
        keep[t] = true;
    FUZZ_CHECK(sy_graph_encode(graph, keep, &bytes, &n) == SY_OK);
    FUZZ_CHECK(sy_graph_decode(bytes, n, &again) == SY_OK);
    FUZZ_CHECK(again->n_nodes == graph->n_nodes && again->n_tensors == graph->n_tensors);
    sy_graph_free(again);
    free(bytes);
    free(keep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sy_graph *graph = NULL;
    if (sy_onnx_read(fuzz_file(data, size), &graph) < 0) {
        FUZZ_CHECK(!graph);
        return 0;
    }
    FUZZ_CHECK(sy_graph_check(graph) == SY_OK);
    if (sy_graph_infer(graph) == SY_OK) {
        FUZZ_CHECK(sy_graph_check(graph) == SY_OK);
        FUZZ_CHECK(sy_graph_optimize(graph) == SY_OK);
        FUZZ_CHECK(sy_graph_check(graph) == SY_OK);
        check_codec(graph);
    }
    sy_graph_free(graph);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------ */

static struct ob graph, node;
static const float numbers[64] = {1, -1, 0.5f, 2};

static void add(const char *op, const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, op, inputs, outputs);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void begin(const int64_t *in, int in_rank, const int64_t *out, int out_rank)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, in_rank, in);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, out_rank, out);
}

/* Convolution, batch norm, a residual, pooling, and shape arithmetic around a Reshape. */
static void convolutional(void)
{
    begin((const int64_t[]){-1, 2, 6, 6}, 4, (const int64_t[]){-1, 8}, 2);
    ob_initializer(&graph, "w", 1, DIMS(2, 2, 3, 3), numbers, 144);
    ob_initializer(&graph, "s", 1, DIMS(2), numbers + 2, 8);
    ob_initializer(&graph, "half", 1, 0, NULL, numbers + 2, 4);
    ob_int64s(&graph, "zero", 0, (const int64_t[]){0});
    ob_int64s(&graph, "axes", 1, (const int64_t[]){0});
    ob_int64s(&graph, "rest", 1, (const int64_t[]){-1});
    ob_node(&node, "Conv", NAMES("x", "w", "s"), NAMES("c"));
    ob_attr_ints(&node, "pads", DIMS(1, 1, 1, 1));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("BatchNormalization", NAMES("c", "s", "s", "s", "s"), NAMES("b"));
    add("Relu", NAMES("b"), NAMES("r"));
    add("Add", NAMES("r", "x"), NAMES("a"));
    ob_node(&node, "MaxPool", NAMES("a"), NAMES("p"));
    ob_attr_ints(&node, "kernel_shape", DIMS(3, 3));
    ob_attr_ints(&node, "strides", DIMS(3, 3));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("Shape", NAMES("p"), NAMES("shape"));
    ob_node(&node, "Gather", NAMES("shape", "zero"), NAMES("n"));
    ob_attr_int(&node, "axis", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("Unsqueeze", NAMES("n", "axes"), NAMES("n1"));
    ob_node(&node, "Concat", NAMES("n1", "rest"), NAMES("target"));
    ob_attr_int(&node, "axis", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("Reshape", NAMES("p", "target"), NAMES("flat"));
    add("Mul", NAMES("flat", "half"), NAMES("y"));
}

/* MatMul, bias, Gelu by hand, Softmax, Split, Transpose, Slice. */
static void matrices(void)
{
    begin((const int64_t[]){-1, 3, 8}, 3, (const int64_t[]){-1, 3, 4}, 3);
    ob_initializer(&graph, "w", 1, DIMS(8, 8), numbers, 256);
    ob_initializer(&graph, "b", 1, DIMS(8), numbers, 32);
    ob_initializer(&graph, "root", 1, 0, NULL, numbers + 3, 4);
    ob_initializer(&graph, "one", 1, 0, NULL, numbers, 4);
    ob_initializer(&graph, "half", 1, 0, NULL, numbers + 2, 4);
    ob_int64s(&graph, "parts", 2, (const int64_t[]){4, 4});
    ob_int64s(&graph, "from", 1, (const int64_t[]){0});
    ob_int64s(&graph, "to", 1, (const int64_t[]){100});
    ob_int64s(&graph, "axis", 1, (const int64_t[]){1});
    add("MatMul", NAMES("x", "w"), NAMES("m"));
    add("Add", NAMES("m", "b"), NAMES("h"));
    add("Div", NAMES("h", "root"), NAMES("d"));
    add("Erf", NAMES("d"), NAMES("e"));
    add("Add", NAMES("e", "one"), NAMES("f"));
    add("Mul", NAMES("h", "f"), NAMES("g"));
    add("Mul", NAMES("g", "half"), NAMES("gelu"));
    ob_node(&node, "Split", NAMES("gelu", "parts"), NAMES("s1", "s2"));
    ob_attr_int(&node, "axis", 2);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "Transpose", NAMES("s1"), NAMES("t"));
    ob_attr_ints(&node, "perm", DIMS(0, 2, 1));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("MatMul", NAMES("s2", "t"), NAMES("k"));
    add("Softmax", NAMES("k"), NAMES("q"));
    add("MatMul", NAMES("q", "s2"), NAMES("v"));
    add("Slice", NAMES("v", "from", "to", "axis"), NAMES("y"));
}

/* Folding: constants made of constants. */
static void foldable(void)
{
    begin((const int64_t[]){-1, 4}, 2, (const int64_t[]){-1, 4}, 2);
    ob_int64s(&graph, "four", 1, (const int64_t[]){4});
    ob_int64s(&graph, "start", 0, (const int64_t[]){0});
    ob_int64s(&graph, "limit", 0, (const int64_t[]){4});
    ob_int64s(&graph, "step", 0, (const int64_t[]){1});
    add("ConstantOfShape", NAMES("four"), NAMES("zeros"));
    add("Range", NAMES("start", "limit", "step"), NAMES("range"));
    ob_node(&node, "Cast", NAMES("range"), NAMES("floats"));
    ob_attr_int(&node, "to", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("Add", NAMES("zeros", "floats"), NAMES("sum"));
    add("Pow", NAMES("sum", "sum"), NAMES("power"));
    add("Expand", NAMES("power", "four"), NAMES("wide"));
    ob_node(&node, "ReduceMean", NAMES("wide"), NAMES("mean"));
    ob_attr_ints(&node, "axes", DIMS(0));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    add("Sub", NAMES("x", "mean"), NAMES("y"));
}

/* BERT's: ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add behind a sum, then a scaled product with a bias. */
static void normalized(void)
{
    begin((const int64_t[]){-1, 3, 4}, 3, (const int64_t[]){-1, 3, 4}, 3);
    ob_initializer(&graph, "g", 1, DIMS(4), numbers, 16);
    ob_initializer(&graph, "w", 1, DIMS(4, 4), numbers, 64);
    ob_initializer(&graph, "two", 1, 0, NULL, numbers + 3, 4);
    ob_initializer(&graph, "eps", 1, 0, NULL, numbers + 2, 4);
    add("Relu", NAMES("x"), NAMES("r"));
    add("Add", NAMES("r", "x"), NAMES("s"));
    for (int i = 0; i < 2; i++) {
        ob_node(&node, "ReduceMean", i ? NAMES("p") : NAMES("s"), i ? NAMES("v") : NAMES("m"));
        ob_attr_ints(&node, "axes", DIMS(-1));
        ob_message(&graph, OB_GRAPH_NODE, &node);
        if (i)
            break;
        add("Sub", NAMES("s", "m"), NAMES("d"));
        add("Pow", NAMES("d", "two"), NAMES("p"));
    }
    add("Add", NAMES("v", "eps"), NAMES("ve"));
    add("Sqrt", NAMES("ve"), NAMES("q"));
    add("Div", NAMES("d", "q"), NAMES("n"));
    add("Mul", NAMES("n", "g"), NAMES("ng"));
    add("Add", NAMES("ng", "g"), NAMES("l"));
    add("MatMul", NAMES("l", "w"), NAMES("k"));
    add("Mul", NAMES("k", "eps"), NAMES("ks"));
    add("Add", NAMES("ks", "g"), NAMES("kb"));
    add("Tanh", NAMES("kb"), NAMES("y"));
}

#define MAX_MODELS 1500

static char *models[MAX_MODELS];
static int n_models;

static int is_small(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)where;
    const char *slash = strrchr(path, '/');
    if (kind == FTW_F && strcmp(slash + 1, "model.onnx") == 0 && info->st_size < 4096 &&
        n_models < MAX_MODELS)
        models[n_models++] = strdup(path);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ONNX's own test models, where they are installed: one of nearly every operator. Every third, or they would be all there is. */
static size_t small_model(int i, uint8_t *to, size_t room)
{
    if (i == 0) {
        nftw("/usr/share/libonnx-testdata/data", is_small, 8, FTW_PHYS);
        qsort(models, (size_t)n_models, sizeof *models, by_name);
    }
    FILE *file = 3 * i < n_models ? fopen(models[3 * i], "rb") : NULL;
    if (!file)
        return 0;
    size_t n = fread(to, 1, room, file);
    fclose(file);
    return n;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static void (*const makers[])(void) = {convolutional, matrices, foldable, normalized};
    static const int opsets[] = {13, 9, 18};
    static struct ob model, import;
    if (i >= 12)
        return small_model(i - 12, to, room);
    makers[i % 4]();
    model.n = import.n = 0;
    ob_varint(&import, 2, (uint64_t)opsets[i / 4]);
    ob_varint(&model, 1, 7);
    ob_message(&model, 7, &graph);
    ob_message(&model, 8, &import);
    return fuzz_give(model.bytes, model.n, to, room);
}

__attribute__((destructor)) static void forget_models(void)
{
    while (n_models > 0)
        free(models[--n_models]);
}
