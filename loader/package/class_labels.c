#include "loader/package/class_labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

static int read_text(const char *path, char **out, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    char *text = file ? malloc(SY_CLASS_LABELS_MOST_BYTES + 1) : NULL;

    if (!file)
        return sy_error_set(SY_EARG, "cannot read the labels %s: %s", path, strerror(errno));
    if (!text) {
        fclose(file);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the labels %s", path);
    }
    *bytes = fread(text, 1, SY_CLASS_LABELS_MOST_BYTES + 1, file);
    int failed = ferror(file);
    fclose(file);
    if (failed || *bytes > SY_CLASS_LABELS_MOST_BYTES) {
        free(text);
        return sy_error_set(SY_EARG, "the labels %s: %s", path,
                            failed ? "cannot be read" : "more than 4 MiB");
    }
    text[*bytes] = '\0';
    *out = text;
    return SY_OK;
}

static int count_lines(const char *text, size_t bytes)
{
    int n = 0;

    for (size_t i = 0; i < bytes; i++)
        n += text[i] == '\n';
    return n + (bytes > 0 && text[bytes - 1] != '\n');
}

/* A zero byte ends a name, like a line's end. */
static void cut_lines(struct sy_class_labels *labels, char *end)
{
    char *at = labels->text;

    for (int i = 0; i < labels->n; i++) {
        char *line = at, *stop = memchr(at, '\n', (size_t)(end - at));

        stop = stop ? stop : end;
        *stop = '\0';
        if (stop > line && stop[-1] == '\r')
            stop[-1] = '\0';
        labels->names[i] = line;
        at = stop + 1;
    }
}

int sy_class_labels_read(const char *path, int output, struct sy_class_labels **out)
{
    struct sy_class_labels *labels = calloc(1, sizeof(*labels));
    size_t bytes = 0;
    int status;

    SY_TRY_ALLOC(labels, "no memory for the labels %s", path);
    labels->output = output;
    SY_TRY_GOTO(read_text(path, &labels->text, &bytes), fail);
    labels->n = count_lines(labels->text, bytes);
    labels->names = calloc((size_t)labels->n + 1, sizeof(*labels->names));
    if (!labels->names) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the labels %s", path);
        goto fail;
    }
    cut_lines(labels, labels->text + bytes);
    *out = labels;
    return SY_OK;
fail:
    sy_class_labels_free(labels);
    return status;
}

void sy_class_labels_free(struct sy_class_labels *list)
{
    while (list) {
        struct sy_class_labels *next = list->next;

        free(list->names);
        free(list->text);
        free(list);
        list = next;
    }
}

const char *sy_class_labels_name(const struct sy_class_labels *list, int output, long long index)
{
    while (list && list->output != output)
        list = list->next;
    return list && index >= 0 && index < list->n && *list->names[index] ? list->names[index] : NULL;
}
