#include "tests/nets/onnx_bytes.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nets/graph_builder.h"

static void put(struct ob *to, const void *bytes, size_t n)
{
    assert(to->n + n <= sizeof to->bytes);
    if (n > 0)
        memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
}

static void number(struct ob *to, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(to, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

void ob_varint(struct ob *to, int field, uint64_t value)
{
    number(to, (uint64_t)field << 3);
    number(to, value);
}

void ob_bytes(struct ob *to, int field, const void *bytes, size_t n)
{
    number(to, (uint64_t)field << 3 | 2);
    number(to, n);
    put(to, bytes, n);
}

void ob_text(struct ob *to, int field, const char *text)
{
    ob_bytes(to, field, text, strlen(text));
}

void ob_float(struct ob *to, int field, float value)
{
    number(to, (uint64_t)field << 3 | 5);
    put(to, &value, sizeof value);
}

void ob_message(struct ob *to, int field, const struct ob *message)
{
    ob_bytes(to, field, message->bytes, message->n);
}

void ob_input(struct ob *graph, int field, const char *name, int elem_type, int rank,
              const int64_t *dims)
{
    static struct ob shape, tensor, type, info;
    shape.n = tensor.n = type.n = info.n = 0;
    for (int i = 0; i < rank; i++) {
        static struct ob dim;
        dim.n = 0;
        if (dims[i] == -1)
            ob_text(&dim, 2, "N");
        else if (dims[i] < -1 && dims[i] > -7)
            ob_text(&dim, 2, (char[]){'L', (char)('0' - dims[i]), 0});
        else if (dims[i] != OB_NAMELESS)
            ob_varint(&dim, 1, (uint64_t)dims[i]);
        ob_message(&shape, 1, &dim);
    }
    ob_varint(&tensor, 1, (uint64_t)elem_type);
    ob_message(&tensor, 2, &shape);
    ob_message(&type, 1, &tensor);
    ob_text(&info, 1, name);
    ob_message(&info, 2, &type);
    ob_message(graph, field, &info);
}

void ob_graph(struct ob *graph)
{
    graph->n = 0;
    ob_text(graph, 2, "g");
}

void ob_initializer(struct ob *graph, const char *name, int elem_type, int rank,
                    const int64_t *dims, const void *raw, size_t raw_bytes)
{
    static struct ob tensor;
    tensor.n = 0;
    for (int i = 0; i < rank; i++)
        ob_varint(&tensor, 1, (uint64_t)dims[i]);
    ob_varint(&tensor, 2, (uint64_t)elem_type);
    ob_text(&tensor, 8, name);
    ob_bytes(&tensor, 9, raw, raw_bytes);
    ob_message(graph, 5, &tensor);
}

void ob_int64s(struct ob *graph, const char *name, int n, const int64_t *values)
{
    int64_t dims[1] = {n};
    ob_initializer(graph, name, 7, n > 0, dims, values, (size_t)(n > 0 ? n : 1) * sizeof *values);
}

void ob_uniform(struct ob *graph, const char *name, float *to, int rank, const int64_t *dims,
                uint64_t *seed)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    for (size_t i = 0; i < n; i++)
        to[i] = (float)gb_uniform(seed, -0.5, 0.5);
    ob_initializer(graph, name, 1, rank, dims, to, n * sizeof *to);
}

void ob_external(struct ob *graph, const char *name, const char *location, const char *offset,
                 const char *length)
{
    static struct ob tensor, entry;
    const char *const pairs[][2] = {{"location", location}, {"offset", offset}, {"length", length}};
    tensor.n = 0;
    ob_varint(&tensor, 1, 4);
    ob_varint(&tensor, 2, 1);
    ob_text(&tensor, 8, name);
    for (int i = 0; i < 3; i++) {
        entry.n = 0;
        ob_text(&entry, 1, pairs[i][0]);
        ob_text(&entry, 2, pairs[i][1]);
        ob_message(&tensor, 13, &entry);
    }
    ob_varint(&tensor, 14, 1);
    ob_message(graph, 5, &tensor);
}

void ob_node(struct ob *node, const char *op, const char *const *inputs, const char *const *outputs)
{
    node->n = 0;
    for (; *inputs; inputs++)
        ob_text(node, 1, *inputs);
    for (int i = 0; outputs[i]; i++)
        ob_text(node, 2, outputs[i]);
    ob_text(node, 3, outputs[0]);
    ob_text(node, 4, op);
}

void ob_add(struct ob *graph, const char *op, const char *const *inputs, const char *const *outputs)
{
    static struct ob node;
    ob_node(&node, op, inputs, outputs);
    ob_message(graph, OB_GRAPH_NODE, &node);
}

void ob_attr_int(struct ob *node, const char *name, int64_t value)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    ob_varint(&attr, 3, (uint64_t)value);
    ob_varint(&attr, 20, 2);
    ob_message(node, 5, &attr);
}

void ob_attr_float(struct ob *node, const char *name, float value)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    ob_float(&attr, 2, value);
    ob_varint(&attr, 20, 1);
    ob_message(node, 5, &attr);
}

void ob_attr_ints(struct ob *node, const char *name, int n, const int64_t *values)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        ob_varint(&attr, 8, (uint64_t)values[i]);
    ob_varint(&attr, 20, 7);
    ob_message(node, 5, &attr);
}

void ob_attr_text(struct ob *node, const char *name, const char *value)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    ob_text(&attr, 4, value);
    ob_varint(&attr, 20, 3);
    ob_message(node, 5, &attr);
}

void ob_attr_graph(struct ob *node, const char *name, const struct ob *value)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    ob_message(&attr, 6, value);
    ob_varint(&attr, 20, 5);
    ob_message(node, 5, &attr);
}

void ob_save(const char *path, const struct ob *graph, int opset)
{
    static struct ob model, import;
    model.n = import.n = 0;
    ob_varint(&import, 2, (uint64_t)opset);
    ob_varint(&model, 1, 7);
    ob_message(&model, 7, graph);
    ob_message(&model, 8, &import);
    FILE *file = fopen(path, "wb");
    assert(file);
    assert(fwrite(model.bytes, 1, model.n, file) == model.n);
    assert(fclose(file) == 0);
}

char ob_folder[] = "/tmp/sy-models-XXXXXX";
char ob_path[sizeof ob_folder + 16];

int ob_open_folder(void **state)
{
    (void)state;
    if (!mkdtemp(ob_folder))
        return -1;
    snprintf(ob_path, sizeof ob_path, "%s/model.onnx", ob_folder);
    return 0;
}

int ob_close_folder(void **state)
{
    (void)state;
    unlink(ob_path);
    return rmdir(ob_folder);
}
