#!/usr/bin/env python3
"""Makes packing-42.csv: Salus' packing experiment, 14 models x 3 replicas at batch 1, for `switchyard simulate --models`.

Taken from the paper (Fig. 10): what a request to each takes alone on one P100, as far as the text or the figure says it:
inception4 35 ms, resnet152 26, resnet101 19, resnet50 11, vgg 6 to 9. The others are set by their published operations beside
those. Sizes are the published parameter counts x 4 bytes. Groups: as many as the planner makes of a model of that size at
12 GB/s. Each replica is a model of its own, with weights of its own, as in the experiment.
"""

# model: parameters in millions, ms alone, groups
MODELS = {
    "vgg11": (132.9, 6, 8), "vgg16": (138.4, 8, 10), "vgg19": (143.7, 9, 11), "resnet50": (25.6, 11, 10),
    "resnet101": (44.5, 19, 16), "resnet152": (60.2, 26, 20), "googlenet": (6.6, 8, 4), "alexnet": (61.1, 3, 4),
    "overfeat": (145.9, 6, 6), "inception3": (27.2, 18, 12), "inception4": (42.7, 35, 16), "speech": (6.0, 12, 3),
    "seq2seq": (13.0, 10, 4), "superres": (0.1, 3, 1),
}

with open("examples/traces/packing-42.csv", "w", encoding="ascii") as out:
    out.write("# made by make_packing_42.py\nmodel,mb,compute_ms,groups\n")
    for replica in range(1, 4):
        for model, (millions, ms, groups) in MODELS.items():
            out.write(f"{model}_{replica},{4 * millions:.1f},{ms},{groups}\n")
