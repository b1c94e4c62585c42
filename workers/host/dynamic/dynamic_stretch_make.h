/* Inside of dynamic_stretch.h: from nodes and the sizes of their inputs to a program. */
#ifndef SY_WORKERS_HOST_DYNAMIC_DYNAMIC_STRETCH_MAKE_H
#define SY_WORKERS_HOST_DYNAMIC_DYNAMIC_STRETCH_MAKE_H

#include "workers/host/dynamic/dynamic_stretch.h"
#include "workers/host/program/body.h"

/* Nodes of a stretch to make: each input exists already or is made by another node of the stretch. */
struct sy_stretch_nodes {
    int n, *nodes;
    int n_inputs, *inputs; /* tensors that have values, each once */
};

/* A stretch made ready. */
struct sy_stretch_made {
    int n, *nodes;          /* that it runs, ascending; 0: nothing worth it */
    bool packs;             /* weights are packed once, for all sizes of the stretch */
    struct sy_graph *graph; /* optimised */
    struct sy_body body;    /* of the graph */
    int *given;             /* per input of the graph: the frame's tensor */
    int *results;           /* per output */
};

int sy_stretch_find_nodes(const struct sy_at_frame *frame, struct sy_stretch_nodes *out);
void sy_stretch_nodes_finish(struct sy_stretch_nodes *nodes);
/* like: of another size of the same stretch, whose packed weights are shared and whose choice to pack is kept; NULL: none. ENOMEM only: what cannot be made has n 0. */
int sy_stretch_make(const struct sy_at_frame *frame, const struct sy_stretch_nodes *from,
                    struct sy_stretch_made *like, struct sy_stretch_made *out);
void sy_stretch_made_finish(struct sy_stretch_made *made);

#endif
