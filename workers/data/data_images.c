/* Images in a folder per class, resized to what the network takes. Headers are checked at the start; pixels are decoded when they are
 * wanted, and kept when all of them fit in KEPT_BYTES. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/data/data_internal.h"
#include "workers/data/image_reader.h"

#define KEPT_BYTES (1ull << 30)

struct images_source {
    struct sy_data_source base;
    const struct sy_data_want *want;
    const struct sy_data_spec *spec;
    const char *folder;
    struct sy_data_names classes, files; /* files: "class/name" paths */
    uint32_t *class_of;                  /* of each file */
    uint32_t channels, height, width;
    float table[256];
    uint64_t bytes; /* of an image as the network takes it */
    uint8_t *kept;  /* [n, bytes], NULL: too many; pages that nobody asked for yet cost nothing */
    bool *is_kept;
    uint8_t *room;       /* one sample */
    uint64_t n_left_out; /* files of other names, or of no class */
    char left_out[416];  /* the first of them */
};

static void images_close(struct sy_data_source *source)
{
    struct images_source *s = (struct images_source *)source;
    sy_data_names_free(&s->classes);
    sy_data_names_free(&s->files);
    free(s->class_of);
    free(s->kept);
    free(s->is_kept);
    free(s->room);
    free(s);
}

static int decode(const struct images_source *s, uint64_t index, uint8_t *to)
{
    struct sy_image image;
    SY_TRY(sy_image_read(s->files.names[index], s->channels, &image));
    int status = sy_image_resize(&image, s->width, s->height, to);
    sy_image_finish(&image);
    return status;
}

static int images_read(struct sy_data_source *source, uint64_t index, void *const *inputs,
                       void *labels)
{
    struct images_source *s = (struct images_source *)source;
    uint8_t *pixels = s->kept ? s->kept + index * s->bytes : s->room;
    if (!s->kept || !s->is_kept[index])
        SY_TRY(decode(s, index, pixels));
    if (s->kept)
        s->is_kept[index] = true;
    for (int k = 0; k < s->want->n_inputs; k++)
        if (!sy_data_put_given(sy_data_field_of(s->spec, s->want, k), &s->want->inputs[k], 0,
                               inputs[k]))
            for (uint64_t i = 0; i < s->bytes; i++)
                ((float *)inputs[k])[i] = s->table[pixels[i]];
    return sy_data_put_class(s->want, s->folder, index, s->class_of[index], labels);
}

static int add_image(struct images_source *s, const char *folder, const char *name, uint32_t class)
{
    struct sy_image header;
    char *path = sy_data_path(folder, name);
    int status;
    SY_TRY_ALLOC(path, "no room for a path in '%s'", folder);
    SY_TRY_GOTO(sy_image_read_header(path, &header), done);
    SY_TRY_GOTO(sy_data_names_add(&s->files, s->folder, path), done);
    s->class_of[s->files.n - 1] = class;
done:
    free(path);
    return status;
}

static void leave_out(struct images_source *s, const char *folder, const char *name)
{
    if (s->n_left_out++ == 0)
        snprintf(s->left_out, sizeof s->left_out, "%.200s/%.200s", folder, name);
}

static int add_class(struct images_source *s, const char *name, uint32_t class)
{
    struct sy_data_names found = {0};
    char *folder = sy_data_path(s->folder, name);
    int status = folder ? sy_data_list(folder, SY_DATA_FILES_BELOW, &found)
                        : sy_error_set(SY_ENOMEM_HOST, "no room for a path");
    uint32_t *grown =
        status < 0 ? NULL : realloc(s->class_of, (s->files.n + found.n + 1) * sizeof *grown);
    if (grown)
        s->class_of = grown;
    else if (status == SY_OK)
        status = sy_error_set(SY_ENOMEM_HOST, "no room for the images of '%s'", folder);
    uint64_t before = s->files.n;
    for (uint64_t i = 0; status == SY_OK && i < found.n; i++) {
        if (sy_image_has_name(found.names[i]))
            status = add_image(s, folder, found.names[i], class);
        else
            leave_out(s, folder, found.names[i]);
    }
    if (status == SY_OK && s->files.n == before)
        status = sy_error_set(SY_EARG, "image folder '%s' has no .jpg or .png in it", folder);
    free(folder);
    sy_data_names_free(&found);
    return status;
}

static int check_shape(struct images_source *s)
{
    const struct sy_data_input *image = NULL;
    for (int k = 0; k < s->want->n_inputs; k++) {
        const struct sy_data_input *input = &s->want->inputs[k];
        if (sy_data_field_of(s->spec, s->want, k)->from != SY_FROM_SAMPLE)
            continue;
        if (image)
            return sy_error_set(SY_EARG, "'%s' and '%s' are the image; one input can be",
                                image->name, input->name);
        image = input;
    }
    if (!image || image->rank != 3 || image->dtype != SY_DTYPE_F32 ||
        (image->dims[0] != 1 && image->dims[0] != 3) || image->dims[1] > SY_IMAGE_MAX_SIDE ||
        image->dims[2] > SY_IMAGE_MAX_SIDE)
        return sy_error_set(
            SY_EUNSUPPORTED,
            "images of '%s' need an input of float32 [batch, 1 or 3, height, width]", s->folder);
    s->channels = (uint32_t)image->dims[0];
    s->height = (uint32_t)image->dims[1];
    s->width = (uint32_t)image->dims[2];
    s->bytes = image->n;
    return SY_OK;
}

/* Images that lie beside the classes' folders have no class. */
static int leave_out_strays(struct images_source *s)
{
    struct sy_data_names found;
    SY_TRY(sy_data_list(s->folder, SY_DATA_FILES, &found));
    for (uint64_t i = 0; i < found.n; i++)
        if (sy_image_has_name(found.names[i]))
            leave_out(s, s->folder, found.names[i]);
    sy_data_names_free(&found);
    return SY_OK;
}

static int add_classes(struct images_source *s, const struct sy_data_names *known)
{
    uint64_t most = sy_data_max_classes(s->want);
    SY_TRY(sy_data_list(s->folder, SY_DATA_FOLDERS, &s->classes));
    if (!known && (s->classes.n < 2 || s->classes.n > most))
        return sy_error_set(
            SY_EARG,
            "image folder '%s' has %llu subfolders (classes), the model's outputs tell 2 "
            "to %llu",
            s->folder, (unsigned long long)s->classes.n, (unsigned long long)most);
    for (uint64_t i = 0; i < s->classes.n; i++) {
        const char *name = s->classes.names[i];
        int64_t class = known ? sy_data_names_find(known, name) : (int64_t)i;
        if (class < 0)
            return sy_error_set(SY_EARG,
                                "image folder '%s' has class '%s', which the training set lacks",
                                s->folder, name);
        SY_TRY(add_class(s, name, (uint32_t) class));
    }
    s->base.n = s->files.n;
    SY_TRY(leave_out_strays(s));
    if (s->n_left_out)
        sy_log_warn("data",
                    "folder=%s left_out=%llu first=%s why=\"in no class's folder, or not called "
                    ".jpg, .jpeg or .png\"",
                    s->folder, (unsigned long long)s->n_left_out, s->left_out);
    return SY_OK;
}

static int make_room(struct images_source *s)
{
    if (s->base.n <= KEPT_BYTES / s->bytes) {
        s->kept = calloc(s->base.n, s->bytes);
        s->is_kept = calloc(s->base.n, sizeof *s->is_kept);
        if (s->kept && s->is_kept)
            return SY_OK;
        free(s->kept); /* then without */
        s->kept = NULL;
    }
    s->room = malloc(s->bytes);
    return s->room ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no room for an image");
}

int sy_data_images_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                        struct sy_data_source *training, struct sy_data_source **out)
{
    int status;
    const struct images_source *first = (struct images_source *)training;
    struct images_source *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no room for data set '%s'", spec->folder[0]);
    s->base.read = images_read;
    s->base.close = images_close;
    s->want = want;
    s->spec = spec;
    s->folder = spec->folder[training != NULL];
    for (int i = 0; i < 256; i++)
        s->table[i] = (float)((i / 255.0 - spec->mean) / spec->std);
    SY_TRY_GOTO(check_shape(s), fail);
    SY_TRY_GOTO(add_classes(s, first ? &first->classes : NULL), fail);
    SY_TRY_GOTO(make_room(s), fail);
    *out = &s->base;
    return SY_OK;
fail:
    images_close(&s->base);
    return status;
}
