# Example models, the demo, the example training jobs.
.PHONY: models demo train-examples ray-check

EXAMPLE_SRC := $(sort $(wildcard examples/models/*.c))
DEMO_SRC  := $(sort $(wildcard examples/demo/*.c))
EXAMPLE_OBJ := $(EXAMPLE_SRC:%.c=$(OBJ)/%.o)
DEMO_OBJ  := $(DEMO_SRC:%.c=$(OBJ)/%.o)

$(B)/make-models: $(EXAMPLE_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

$(B)/switchyard-demo: $(DEMO_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# The example models as ONNX files, made once, and imported into packages once.
MODELS   := resnet152 inception_v3 bert_base
models: binaries ## Build: the example models as ONNX files and packages
	$(Q)$(B)/make-models --out build/models $(MODELS) mnist_cnn
	$(Q)for m in $(MODELS); do \
	    $(B)/switchyard import build/models/$$m/1/model.onnx --name $$m --update || exit 1; done

demo: deps ## See it: serving and training side by side, shown live; DEVICE=emulated for a paced link
	@sh tests/install_deps.sh dataset-fashion-mnist
	@$(MAKE) --no-print-directory models $(B)/switchyard-demo
	$(Q)$(B)/switchyard-demo --binary $(B)/switchyard --models build/models --folder build/demo --device $(DEVICE)

# The example jobs, one after the other: each must reach its target. TRAIN_EXAMPLES='mlp cnn' for some of them.
TRAIN_EXAMPLES ?= mlp cnn vgg resnet18 languages_bag languages_bilstm languages_transformer generate
TRAIN_MODELS := mnist_cnn fashion_mlp fashion_vgg fashion_resnet18 text_bag text_bilstm text_transformer text_lstm
train-examples: deps ## See it: the example training jobs to their targets, curves in build/train-examples; TRAIN_EXAMPLES="mlp cnn"
	@sh tests/install_deps.sh dataset-fashion-mnist python3
	@$(MAKE) --no-print-directory binaries venv
	$(Q)$(B)/make-models --out build/models $(TRAIN_MODELS)
	$(Q)python3 examples/training/make_texts.py build/data
	$(Q)sh examples/training/run_examples.sh $(B)/switchyard build/train-examples $(TRAIN_EXAMPLES)

# Ray is 200 MB and has an environment of its own.
RAY_PYTHON := build/ray-venv/bin/python
build/ray-venv/made: examples/examples.mk
	@sh tests/install_deps.sh python3 python3-venv nginx-light
	$(call say,VENV,$(@D))
	$(Q)python3 -m venv $(@D)
	$(Q)$(RAY_PYTHON) -m pip install --quiet --disable-pip-version-check "ray[serve]==2.60.0"
	@touch $@

ray-check: deps ## Test: examples/ray on a local Ray cluster, nodes killed under load; figures in build/bench/fleet-ray.json
	@$(MAKE) --no-print-directory binaries build/ray-venv/made
	@mkdir -p $(B)/bench
	$(Q)$(RAY_PYTHON) examples/ray/check.py $(B) --json $(B)/bench/fleet-ray.json
