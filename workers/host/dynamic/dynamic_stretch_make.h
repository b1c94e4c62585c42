/* Internal to dynamic_stretch.h: makes a program from nodes and the sizes of their inputs. */
#ifndef SY_WORKERS_HOST_DYNAMIC_DYNAMIC_STRETCH_MAKE_H
#define SY_WORKERS_HOST_DYNAMIC_DYNAMIC_STRETCH_MAKE_H

#include "workers/host/dynamic/dynamic_stretch.h"
#include "workers/host/program/body.h"

/* The nodes of a stretch: each input exists already or is made by another node of the stretch. */
struct sy_stretch_nodes {
    int n, *nodes;
    int n_inputs, *inputs; /* tensors that have values, each once */
};

/* A stretch with its program. */
struct sy_stretch_made {
    int n, *nodes;          /* the executed nodes, ascending; 0: no program is worth it */
    bool packs;             /* weights are packed once for all sizes of the stretch */
    struct sy_graph *graph; /* optimised */
    struct sy_body body;    /* of the graph */
    int *given;             /* per input of the graph: the frame's tensor */
    int *results;           /* per output */
};

int sy_stretch_find_nodes(const struct sy_at_frame *frame, struct sy_stretch_nodes *out);
void sy_stretch_nodes_finish(struct sy_stretch_nodes *nodes);
/* like: the same stretch with another size, whose packed weights and decision to pack are shared; NULL: none. Fails with ENOMEM only: n is 0 if no program can
 * be made. */
int sy_stretch_make(const struct sy_at_frame *frame, const struct sy_stretch_nodes *from,
                    struct sy_stretch_made *like, struct sy_stretch_made *out);
void sy_stretch_made_finish(struct sy_stretch_made *made);

#endif
