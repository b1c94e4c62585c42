/* CSV files, row by row into arrays. A file has a first line with names of columns, in any order; further columns are ignored;
 * lines that begin with # are skipped. Fields may stand in quotes (on one line), lines end in \r\n. All fail with EARG and file and line. */
#ifndef SY_SIM_SIM_CSV_H
#define SY_SIM_SIM_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/clock.h"

#define SY_CSV_MAX_COLUMNS 12 /* columns that are read */

struct sy_csv_column {
    const char *name;
    bool needed;
};

struct sy_csv {
    const char *path;
    FILE *file;
    const struct sy_csv_column *columns;
    int n_columns, place_of[SY_CSV_MAX_COLUMNS]; /* -1: not there */
    int n_header;                                /* fields of the first line */
    char *line;
    int n_lines;
    char *fields[SY_CSV_MAX_COLUMNS]; /* by column; "" if it is not there */
};

/* Fills one element, which is zeroed. */
typedef int sy_csv_row(const struct sy_csv *csv, void *element, void *ctx);

/* All rows; *out is the caller's to free. EIO, ENOMEM_HOST, and what `row` gives. */
int sy_csv_read_all(const char *path, const struct sy_csv_column *columns, int n_columns,
                    size_t size, sy_csv_row *row, void *ctx, void **out, uint64_t *n);
/* As sy_csv_read_all, at most a million rows; ETOOBIG: more. */
int sy_csv_read(const char *path, const struct sy_csv_column *columns, int n_columns, size_t size,
                sy_csv_row *row, void *ctx, void **out, int *n);
/* Sorts by the time (sy_ns) at `at` bytes in each element; equal times keep their order. A failure frees `all`. ENOMEM_HOST. */
int sy_csv_sort_or_free(void *all, uint64_t n, size_t size, size_t at, const char *path);

/* ---- one field, by column; `otherwise` if it is empty and not needed ---- */
/* 0..1e12 */
int sy_csv_number(const struct sy_csv *csv, int column, double otherwise, double *out);
/* A whole number from least (0) to most. */
int sy_csv_whole(const struct sy_csv *csv, int column, double otherwise, double most, double *out);
int sy_csv_whole_from(const struct sy_csv *csv, int column, double least, double otherwise,
                      double most, double *out);
/* As sy_csv_whole, from 1. */
int sy_csv_counted(const struct sy_csv *csv, int column, double otherwise, double most,
                   double *out);
/* A time in units of `unit_s` seconds, up to 30 years; 0 for an empty field. */
int sy_csv_duration(const struct sy_csv *csv, int column, double unit_s, sy_ns *out);
/* As sy_csv_duration, at least 1 ns. */
int sy_csv_lasting(const struct sy_csv *csv, int column, double unit_s, sy_ns *out);
/* A word of 1 to size - 1 bytes. */
int sy_csv_word(const struct sy_csv *csv, int column, char *out, size_t size);

#endif
