/* CSV (RFC 4180) over bytes in memory: one row at a time, quoted fields with doubled quotes, LF or CRLF. Private to data_csv.c. */
#ifndef SY_WORKERS_DATA_CSV_ROWS_H
#define SY_WORKERS_DATA_CSV_ROWS_H

#include <stdint.h>

#define SY_CSV_MAX_FIELDS 65536u

struct sy_csv_rows {
    const char *path;
    char *at, *end; /* position in the text, which is overwritten: fields are unquoted in place */
    char separator;
    uint64_t line; /* where the row begins, from 1 */
    /* fields of the row, zero-terminated; the array is owned, the texts are in the bytes */
    char **fields;
    uint64_t n, room;
    uint64_t n_lines_read;
};

/* The next row; 1, or 0 at the end. Empty lines are skipped. ECORRUPT names the line of a quote without an end; ETOOBIG, ENOMEM_HOST.
 * text[bytes] must be writable. */
int sy_csv_rows_next(struct sy_csv_rows *rows);
void sy_csv_rows_finish(struct sy_csv_rows *rows);

#endif
