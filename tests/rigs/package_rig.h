/* A small model, an engine that packs its constants as they are, and a folder with its package, for tests of the package file. */
#ifndef SY_TESTS_RIGS_PACKAGE_RIG_H
#define SY_TESTS_RIGS_PACKAGE_RIG_H

#include <stddef.h>

#include "loader/package/package.h"
#include "loader/package/package_header.h"

extern char pr_folder[];                  /* where they are */
extern char pr_path[64], pr_pristine[64]; /* the package that a test may spoil, and its original */
extern struct sy_graph *pr_graph;         /* the model of both */
extern const struct sy_engine_ops pr_copier;

/* Conv (1 page of parameters), Relu (none), Gemm (3 pages). Free with sy_graph_free. */
struct sy_graph *pr_small_graph(void);

/* malloc'd, the caller's. */
unsigned char *pr_read_file(const char *name, size_t *bytes);
void pr_write_file(const char *name, const void *bytes, size_t n);
int pr_files_in_folder(void);
struct sy_package_header pr_header_of(const unsigned char *all);

/* Opens and verifies all weights, as a swap would: group by group. The package stays open on success. */
int pr_open_and_verify(const char *name, struct sy_package **out);
void pr_expect_good(const char *name);
/* pr_path is refused so, by a text with its name and these words. */
void pr_expect_refused(int status, const char *words);

/* cmocka's: of a group of tests; and a good package at pr_path before each. */
int pr_start(void **state);
int pr_finish(void **state);
int pr_fresh(void **state);

#endif
