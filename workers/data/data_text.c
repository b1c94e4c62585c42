/* Text as bytes. A folder: a class a file or subfolder, cut into lines, files or windows. One file: windows of it, each byte's label
 * being the one that follows. In memory. */
#include <stdlib.h>
#include <string.h>

#include "loader/package/file_bytes.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/data/data_internal.h"

#define MAX_BYTES (1ull << 32)

struct piece {
    uint64_t begin; /* in the text */
    uint32_t bytes, class;
};

struct text_source {
    struct sy_data_source base;
    const struct sy_data_want *want;
    const struct sy_data_spec *spec;
    const char *path;
    uint64_t window;              /* bytes of a sample, at most */
    struct sy_data_names classes; /* of a folder */
    unsigned char *text;
    uint64_t text_bytes;
    struct piece *pieces;
};

static void text_close(struct sy_data_source *source)
{
    struct text_source *s = (struct text_source *)source;
    sy_data_names_free(&s->classes);
    free(s->text);
    free(s->pieces);
    free(s);
}

/* ---- samples ----------------------------------------------------------------------------------------- */

/* Index of the n-gram that begins here: the byte itself, or a hash into the vocabulary (0 is left to what is missing). */
static uint64_t gram(const struct text_source *s, const unsigned char *at, uint64_t left)
{
    uint64_t hash = 0, n = s->spec->ngram;
    if (n == 1)
        return at[0];
    for (uint64_t i = 0; i < n; i++)
        hash = sy_data_mix(hash + (i < left ? at[i] : 0u) + 0x9e3779b97f4a7c15ull);
    return 1 + hash % (s->spec->vocabulary - 1);
}

static void put_text(const struct text_source *s, const unsigned char *at, uint64_t bytes,
                     const struct sy_data_input *input, void *to)
{
    bool are_numbers = input->dtype == SY_DTYPE_F32;
    for (uint64_t i = 0; i < input->n; i++) {
        double value = i < bytes ? (double)gram(s, at + i, bytes - i) : 0.0;
        sy_data_put_input(input, i, are_numbers ? value / 255.0 : value, to);
    }
}

/* A mask ends where the text does, or where its input's room does. */
static void put_inputs(const struct text_source *s, const unsigned char *at, uint64_t bytes,
                       void *const *inputs)
{
    const struct sy_data_want *want = s->want;
    for (int k = 0; k < want->n_inputs; k++)
        if (!sy_data_put_given(sy_data_field_of(s->spec, want, k), &want->inputs[k],
                               SY_MIN(bytes, s->window), inputs[k]))
            put_text(s, at, bytes, &want->inputs[k], inputs[k]);
}

static int class_read(struct sy_data_source *source, uint64_t index, void *const *inputs,
                      void *labels)
{
    const struct text_source *s = (struct text_source *)source;
    const struct piece *piece = &s->pieces[index];
    put_inputs(s, s->text + piece->begin, piece->bytes, inputs);
    return sy_data_put_class(s->want, s->path, index, piece->class, labels);
}

static int next_read(struct sy_data_source *source, uint64_t index, void *const *inputs,
                     void *labels)
{
    const struct text_source *s = (struct text_source *)source;
    const unsigned char *at = s->text + index * s->window;
    put_inputs(s, at, s->window, inputs);
    for (uint64_t i = 0; i < s->window; i++)
        ((int32_t *)labels)[i] = at[i + 1];
    return SY_OK;
}

/* ---- one file: what comes next ------------------------------------------------------------------------- */

static int open_file(struct text_source *s, const char *path)
{
    const struct sy_data_want *want = s->want;
    size_t bytes;
    s->path = path;
    if (!want->are_classes || want->n_labels != s->window || s->spec->ngram != 1)
        return sy_error_set(
            SY_EARG,
            "text '%s': the next byte of each of %llu is learnt by cross entropy of "
            "as many rows of outputs, from bytes (ngram 1)",
            path, (unsigned long long)s->window);
    SY_TRY(sy_file_read_range(path, 0, UINT64_MAX, &s->text, &bytes));
    if (bytes > MAX_BYTES)
        return sy_error_set(SY_ETOOBIG, "text '%s' has %zu bytes; at most %llu", path, bytes,
                            MAX_BYTES);
    if (bytes <= s->window)
        return sy_error_set(SY_EARG, "text '%s' has %zu bytes, a sample takes %llu and one more",
                            path, bytes, (unsigned long long)s->window);
    for (size_t i = 0; i < bytes; i++)
        if (s->text[i] >= want->n_classes)
            return sy_error_set(SY_EARG,
                                "text '%s': byte %zu is %d, but the model has %lld outputs", path,
                                i, s->text[i], (long long)want->n_classes);
    s->base.read = next_read;
    s->base.n = (bytes - 1) / s->window;
    return SY_OK;
}

/* ---- folders: classes ---------------------------------------------------------------------------------- */

static int add_piece(struct text_source *s, uint64_t begin, uint64_t bytes, int64_t class)
{
    if ((s->base.n & (s->base.n - 1)) == 0) { /* doubles */
        uint64_t room = s->base.n ? 2 * s->base.n : 1;
        struct piece *grown = realloc(s->pieces, room * sizeof *grown);
        SY_TRY_ALLOC(grown, "no room for the samples of '%s'", s->path);
        s->pieces = grown;
    }
    bytes = SY_MIN(bytes, s->window + s->spec->ngram); /* nobody looks behind */
    s->pieces[s->base.n++] = (struct piece){begin, (uint32_t)bytes, (uint32_t) class};
    return SY_OK;
}

static int cut(struct text_source *s, uint64_t begin, uint64_t end, int64_t class)
{
    enum sy_text_split split = s->spec->split;
    uint64_t window = s->window;
    if (split == SY_SPLIT_FILES)
        return end > begin ? add_piece(s, begin, end - begin, class) : SY_OK;
    while (begin < end) {
        uint64_t left = end - begin, bytes = left < window ? left : window;
        if (split == SY_SPLIT_LINES) {
            const unsigned char *line_end = memchr(s->text + begin, '\n', left);
            bytes = line_end ? (uint64_t)(line_end - s->text) - begin : left;
        }
        if (bytes)
            SY_TRY(add_piece(s, begin, bytes, class));
        begin += bytes + (split == SY_SPLIT_LINES);
    }
    return SY_OK;
}

static int add_file(struct text_source *s, const char *path, int64_t class)
{
    unsigned char *bytes;
    size_t n;
    SY_TRY(sy_file_read_range(path, 0, UINT64_MAX, &bytes, &n));
    uint64_t begin = s->text_bytes;
    unsigned char *grown =
        n > MAX_BYTES - begin ? NULL : realloc(s->text, begin + n + s->spec->ngram);
    if (grown) {
        memcpy(grown + begin, bytes, n);
        s->text = grown;
        s->text_bytes += n;
    }
    free(bytes);
    return grown ? cut(s, begin, begin + n, class)
                 : sy_error_set(SY_ETOOBIG,
                                "text '%s': no room for %zu bytes after %llu (at most %llu)", path,
                                n, (unsigned long long)begin, MAX_BYTES);
}

static int add_folder(struct text_source *s, const char *folder, int64_t class)
{
    struct sy_data_names files;
    SY_TRY(sy_data_list(folder, SY_DATA_FILES_BELOW, &files));
    int status = SY_OK;
    for (uint64_t i = 0; status == SY_OK && i < files.n; i++) {
        char *path = sy_data_path(folder, files.names[i]);
        status =
            path ? add_file(s, path, class) : sy_error_set(SY_ENOMEM_HOST, "no room for a path");
        free(path);
    }
    sy_data_names_free(&files);
    return status;
}

static int add_class(struct text_source *s, const char *folder, bool are_folders, uint64_t at,
                     const struct sy_data_names *known)
{
    const char *name = s->classes.names[at];
    int64_t class = known ? sy_data_names_find(known, name) : (int64_t)at;
    if (class < 0)
        return sy_error_set(SY_EARG, "text '%s' has class '%s', which the training set lacks",
                            folder, name);
    uint64_t before = s->base.n;
    char *path = sy_data_path(folder, name);
    int status = !path         ? sy_error_set(SY_ENOMEM_HOST, "no room for a path")
                 : are_folders ? add_folder(s, path, class)
                               : add_file(s, path, class);
    free(path);
    if (status == SY_OK && s->base.n == before)
        return sy_error_set(SY_EARG, "text '%s': class '%s' has no sample in it", folder, name);
    return status;
}

/* Files that lie beside the classes' folders have no class. */
static int warn_of_strays(const char *folder)
{
    struct sy_data_names found;
    SY_TRY(sy_data_list(folder, SY_DATA_FILES, &found));
    if (found.n)
        sy_log_warn("data", "folder=%s left_out=%llu first=%s why=\"in no class's folder\"", folder,
                    (unsigned long long)found.n, found.names[0]);
    sy_data_names_free(&found);
    return SY_OK;
}

static int open_folder(struct text_source *s, const char *folder, const struct sy_data_names *known)
{
    bool are_folders = true;
    s->path = folder;
    SY_TRY(sy_data_list(folder, SY_DATA_FOLDERS, &s->classes));
    if (s->classes.n) {
        SY_TRY(warn_of_strays(folder));
    } else {
        are_folders = false;
        SY_TRY(sy_data_list(folder, SY_DATA_FILES, &s->classes));
    }
    uint64_t most = sy_data_max_classes(s->want);
    if (!known && (s->classes.n < 2 || s->classes.n > most))
        return sy_error_set(
            SY_EARG,
            "text '%s' has %llu classes (files or subfolders), the model's outputs tell 2 "
            "to %llu",
            folder, (unsigned long long)s->classes.n, (unsigned long long)most);
    for (uint64_t i = 0; i < s->classes.n; i++)
        SY_TRY(add_class(s, folder, are_folders, i, known));
    s->base.read = class_read;
    return s->base.n ? SY_OK : sy_error_set(SY_EARG, "text '%s' has no sample in it", folder);
}

int sy_data_text_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                      struct sy_data_source *training, struct sy_data_source **out)
{
    int which = training != NULL;
    struct text_source *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no room for a text");
    s->base.close = text_close;
    s->want = want;
    s->spec = spec;
    s->window = sy_data_longest(spec, want);
    int status = s->window == 0 ? sy_error_set(SY_EARG, "none of 'data.inputs' is 'text'")
                 : spec->inputs[0]
                     ? open_file(s, spec->inputs[which])
                     : open_folder(s, spec->folder[which],
                                   which ? &((struct text_source *)training)->classes : NULL);
    if (status < 0) {
        text_close(&s->base);
        return status;
    }
    *out = &s->base;
    return SY_OK;
}
