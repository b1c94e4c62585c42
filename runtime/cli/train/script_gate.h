/* The gate of a script page (workers/torch/script_page.h) for a training process of our own: `switchyard train` under `switchyard run` pauses for a
 * server's requests between two operators, as a PyTorch script does. Several ranks share one page: all of them pause, or none.
 *
 * A rank that dies while it computes is still counted: the starter of the next ranks calls sy_script_gate_reset, and until then a pause ends after the
 * grace time (G2). */
#ifndef SY_CLI_SCRIPT_GATE_H
#define SY_CLI_SCRIPT_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/torch/script_page.h"
#include "workers/train/ranks.h"

struct sy_script_gate {
    struct sy_script_page *page; /* NULL: this process is nobody's job */
    struct sy_rank_gate gate;    /* for ranks: G1 by enter and leave below */
};

/* The page that the environment names, if it names one: else nothing stops this process, and all below does nothing. ENOTFOUND, ECORRUPT name it. */
int sy_script_gate_open(struct sy_script_gate *gate);
void sy_script_gate_close(struct sy_script_gate *gate);
/* Around what computes; on a GPU its work has ended before leave. enter sleeps while the gate is closed. Any thread. */
void sy_script_gate_enter(struct sy_script_gate *gate);
void sy_script_gate_leave(struct sy_script_gate *gate);
/* Whoever entered is to leave. */
bool sy_script_gate_is_closed(const struct sy_script_gate *gate);
/* This process speaks for the job: it looks at the gate by itself, and these are its steps. */
void sy_script_gate_show(struct sy_script_gate *gate, uint64_t step, uint64_t total_steps,
                         double loss);
/* No process of the job computes: those that did are dead. */
void sy_script_gate_reset(struct sy_script_gate *gate);

#endif
