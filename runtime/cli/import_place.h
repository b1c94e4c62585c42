/* Output folder of a confined import, of its own beside the package's place, PACKAGE.tmp-PID, so that it can touch no other file there. */
#ifndef SY_CLI_IMPORT_PLACE_H
#define SY_CLI_IMPORT_PLACE_H

#include <limits.h>

struct sy_import_place {
    const char *package;         /* borrowed: where it belongs */
    char folder[PATH_MAX];       /* "": not made */
    char inside[PATH_MAX + 256]; /* the same name in that folder */
};

/* Makes the folder; removes those of this package that processes left which are gone. `package` outlives *out. EIO names the path. */
int sy_import_place_make(const char *package, struct sy_import_place *out);
/* Moves the package to its place, durably. EIO. */
int sy_import_place_commit(const struct sy_import_place *place);
/* Removes the folder and what is in it. */
void sy_import_place_remove(const struct sy_import_place *place);

#endif
