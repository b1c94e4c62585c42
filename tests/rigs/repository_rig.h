/* A repository in a folder of its own, on a core that is a table here, with imports by this program.
 *
 * A model's source is a text: the content that it stands for, "c0" to "c7", or something else, which cannot be imported. Its package is one that was
 * made before and has that name: what a request would run on is seen by the name of the package that it gets. */
#ifndef SY_TESTS_RIGS_REPOSITORY_RIG_H
#define SY_TESTS_RIGS_REPOSITORY_RIG_H

#include <event2/event.h>

#include "runtime/repository/repository.h"

#define REPO_RIG_CONTENTS 8
#define REPO_RIG_MOST     16 /* places in the core's table, at most */

struct repo_rig_entry {
    struct sy_core_model_ref ref; /* first */
    bool used, ready, leaving, replaces;
    int n_held, ticks; /* until it is added */
    bool fails;
    char name[32];
    struct sy_package *package;
    sy_core_done done;
    void *ctx;
};

struct repo_rig {
    struct event_base *base;
    struct sy_repository *repository;
    struct repo_rig_entry entries[REPO_RIG_MOST];
    int places, most_used;
    int add_ticks; /* an add takes up to so many */
    int n_adds, n_removes;
    uint64_t *seed;
    int n_started, start_status;
    char start_error[512];
};

extern char repo_rig_folder[64]; /* of the test; the repository is REPO_RIG_FOLDER/models */

/* Makes the folder and the contents; removes all. */
void repo_rig_start(void);
void repo_rig_finish(void);
/* argv of an import: main() returns this where argv[1] is "import". */
int repo_rig_import(int argc, char **argv);

void repo_rig_init(struct repo_rig *rig, int places, uint64_t *seed);
/* With the folder as it is now; control, poll_ns and startup models as in `config`. */
void repo_rig_open(struct repo_rig *rig, const struct sy_repository_config *config);
void repo_rig_close(struct repo_rig *rig); /* the repository and what the core has */

/* The source of NAME/VERSION; NULL: that version is taken away. */
void repo_rig_write(const char *name, int version, const char *content);
void repo_rig_write_config(const char *name, const char *text); /* NULL: none */
void repo_rig_remove(const char *name);                         /* the model's folder */

/* One turn of the loop, and of the core. */
void repo_rig_turn(struct repo_rig *rig);
void repo_rig_until_started(struct repo_rig *rig);
/* Of a request; waits until it is served or refused. "" with *status on refusal. The model is held. */
const char *repo_rig_content(struct repo_rig *rig, const char *name, int64_t version, int *status,
                             struct sy_core_model_ref **out);
/* The same, released at once. */
const char *repo_rig_ask(struct repo_rig *rig, const char *name, int64_t version, int *status);
int repo_rig_load(struct repo_rig *rig, const char *name, const char *config); /* waits for it */
void repo_rig_release(struct repo_rig *rig, struct sy_core_model_ref *ref);
/* "READY", ... ; "": not listed. reason: of it, 600 bytes, or NULL. */
const char *repo_rig_state(struct repo_rig *rig, const char *name, int version, char *reason);

#endif
