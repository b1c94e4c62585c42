/* Names of a result's classes, one per line of a file, for Triton's classification extension. Pure but for reading the file. */
#ifndef SY_LOADER_PACKAGE_CLASS_LABELS_H
#define SY_LOADER_PACKAGE_CLASS_LABELS_H

#define SY_CLASS_LABELS_MOST_BYTES (4u << 20) /* of a file */

struct sy_class_labels {
    struct sy_class_labels *next; /* labels of another output */
    int output;                   /* index in the graph's order */
    int n;
    const char **names; /* in `text` */
    char *text;
};

/* EARG: no such file, or larger than SY_CLASS_LABELS_MOST_BYTES; ENOMEM_HOST. Names the file. */
int sy_class_labels_read(const char *path, int output, struct sy_class_labels **out);
void sy_class_labels_free(struct sy_class_labels *list); /* frees the whole list; NULL is fine */
/* NULL: the class has no name. */
const char *sy_class_labels_name(const struct sy_class_labels *list, int output, long long index);

#endif
