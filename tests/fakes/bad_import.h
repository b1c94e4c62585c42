/* One model file that nobody should have written, imported in a process of its own with 1 GiB of memory and little time. */
#ifndef SY_TESTS_FAKES_BAD_IMPORT_H
#define SY_TESTS_FAKES_BAD_IMPORT_H

#include "tests/rigs/bounded_child.h"

/* Where the model goes, and the folder around it: in memory, if the machine has such a file system. For cmocka's group. */
extern char bad_import_folder[64], bad_import_path[96];
int bad_import_open(void **state);
int bad_import_close(void **state);

/* How it ended (stages: tests/rigs/whole_import.h); fails the test if it died, or refused without a reason. `what` names it then. */
struct child_end bad_import(const char *what);
/* Refused before a program is made, with both words (NULL: any) in one line that a terminal can show. */
void bad_import_refused(const char *what, const char *word, const char *word2);
/* Imported, and run to its end. */
void bad_import_runs(const char *what);

#endif
