#include "tests/nets/model_lines.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/onnx_bytes.h"

enum { MOST = 16 };

struct line {
    struct ob graph, node;
    const char *inputs[MOST], *outputs[MOST];
    int n_inputs, n_outputs, opset;
};

static void stop(const char *what)
{
    fprintf(stderr, "model line: %s\n", what);
    abort();
}

struct type {
    char letter;
    int onnx;
    size_t bytes;
};

static const struct type *find_type(char letter)
{
    static const struct type types[] = {{'f', 1, 4}, {'d', 11, 8}, {'h', 10, 2}, {'i', 7, 8},
                                        {'j', 6, 4}, {'u', 2, 1},  {'c', 3, 1},  {'b', 9, 1}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].letter == letter)
            return &types[i];
    stop("a type that is none");
    return NULL;
}

/* Numbers between brackets, any of the three kinds; "N" is -1. */
static int numbers(const char *text, double *reals, int64_t *wholes)
{
    char copy[512], *rest = copy, *word;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", text + 1);
    copy[strcspn(copy, "]})")] = 0;
    while (*copy && (word = strsep(&rest, ","))) {
        if (n == MOST)
            stop("too many numbers");
        wholes[n] = strcmp(word, "N") == 0 ? -1 : strtoll(word, NULL, 10);
        reals[n++] = strtod(word, NULL);
    }
    return n;
}

static void put_values(const struct type *type, const double *reals, const int64_t *wholes, int n,
                       unsigned char *to)
{
    for (int i = 0; i < n; i++) {
        float real = (float)reals[i];
        if (type->letter == 'f')
            memcpy(to + 4 * i, &real, 4);
        else if (type->letter == 'd')
            memcpy(to + 8 * i, &reals[i], 8);
        else
            memcpy(to + type->bytes * (size_t)i, &wholes[i], type->bytes);
    }
}

/* `text` starts behind NAME=. */
static void constant(struct line *line, const char *name, const char *text)
{
    static unsigned char data[32768];
    double reals[MOST];
    int64_t wholes[MOST];
    const struct type *type = find_type(*text++);
    int64_t two = 2;
    memset(data, 0, sizeof data);
    if (*text == '!') {
        ob_initializer(&line->graph, name, type->onnx, 1, &two, data, 0);
        return;
    }
    int n = numbers(text, reals, wholes);
    size_t bytes = type->bytes;
    if (*text == '[') {
        for (int i = 0; i < n; i++) /* larger than this: claimed, not there */
            bytes = wholes[i] < 0 || wholes[i] > 32768 || bytes * (size_t)wholes[i] > sizeof data
                        ? 0
                        : bytes * (size_t)wholes[i];
        ob_initializer(&line->graph, name, type->onnx, n, wholes, data, bytes);
        return;
    }
    put_values(type, reals, wholes, n, data);
    int64_t count = n;
    ob_initializer(&line->graph, name, type->onnx, *text == '{', &count, data, bytes * (size_t)n);
}

static void operand(struct line *line, char *word)
{
    double reals[MOST];
    int64_t wholes[MOST];
    size_t n = strcspn(word, ":=");
    char kind = word[n];
    if (line->n_inputs == MOST - 1)
        stop("too many inputs");
    word[n] = 0;
    line->inputs[line->n_inputs++] = strcmp(word, "-") == 0 ? "" : word;
    if (kind == ':') {
        const struct type *type = find_type(word[n + 1]);
        int rank = numbers(word + n + 2, reals, wholes);
        ob_input(&line->graph, OB_GRAPH_INPUT, word, type->onnx, rank, wholes);
    } else if (kind == '=') {
        constant(line, word, word + n + 1);
    }
}

static void attr_floats(struct ob *node, const char *name, int n, const double *values)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        ob_float(&attr, 7, (float)values[i]);
    ob_varint(&attr, 20, 6);
    ob_message(node, 5, &attr);
}

static void attr_float(struct ob *node, const char *name, double value)
{
    static struct ob attr;
    attr.n = 0;
    ob_text(&attr, 1, name);
    ob_float(&attr, 2, (float)value);
    ob_varint(&attr, 20, 1);
    ob_message(node, 5, &attr);
}

static void attribute(struct ob *node, char *word)
{
    double reals[MOST];
    int64_t wholes[MOST];
    size_t end = strlen(word);
    char *name = word + 1, *value = strchr(word, '=');
    if (!value)
        stop(word);
    *value++ = 0;
    bool is_real =
        word[end - 1] == 'f' || (end > 2 && word[end - 2] == 'f' && word[end - 1] == ']');
    if (*value == '\'') {
        word[end - 1] = 0;
        ob_attr_text(node, name, value + 1);
    } else if (*value == '[') {
        int n = numbers(value, reals, wholes);
        if (is_real)
            attr_floats(node, name, n, reals);
        else
            ob_attr_ints(node, name, n, wholes);
    } else if (is_real) {
        attr_float(node, name, strtod(value, NULL));
    } else {
        ob_attr_int(node, name, strtoll(value, NULL, 10));
    }
}

void model_line_save(const char *path, const char *text)
{
    static struct line line;
    static const int64_t any = -1;
    char copy[1024], *rest = copy, *word, *attributes[MOST], *op;
    int n_attributes = 0;
    snprintf(copy, sizeof copy, "%s", text);
    line.graph.n = 0;
    line.n_inputs = line.n_outputs = 0;
    ob_text(&line.graph, 2, "g");
    op = strsep(&rest, " ");
    char *at = strchr(op, '@');
    line.opset = at ? atoi(at + 1) : 13;
    if (at)
        *at = 0;
    while ((word = strsep(&rest, " "))) {
        if (!*word)
            continue;
        if (n_attributes == MOST || line.n_outputs == MOST - 1)
            stop("too many attributes or outputs");
        if (*word == '.')
            attributes[n_attributes++] = word;
        else if (strncmp(word, "->", 2) == 0)
            line.outputs[line.n_outputs++] = word + 2;
        else
            operand(&line, word);
    }
    if (line.n_outputs == 0)
        line.outputs[line.n_outputs++] = "y";
    line.inputs[line.n_inputs] = line.outputs[line.n_outputs] = NULL;
    ob_node(&line.node, op, line.inputs, line.outputs);
    for (int i = 0; i < n_attributes; i++)
        attribute(&line.node, attributes[i]);
    ob_message(&line.graph, OB_GRAPH_NODE, &line.node);
    ob_input(&line.graph, OB_GRAPH_OUTPUT, line.outputs[0], 1, 1, &any);
    ob_save(path, &line.graph, line.opset);
}
