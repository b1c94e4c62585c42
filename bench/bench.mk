# Benches and the goals that run them. Each says in its JSON what it was measured beside.
.PHONY: benches bench bench-engine bench-train bench-sched bench-serve bench-zoo bench-decoder bench-corun gpu-bench bench-fleet bench-remote bench-report

# bench/NAME.c has a main; bench/NAME_*.c belongs to NAME.
BENCH_SRC := $(sort $(filter-out bench/%_rig.c bench/%_child.c,$(wildcard bench/*.c)))
BENCH_LIB_SRC := $(sort $(wildcard bench/*_rig.c bench/*_child.c))
BENCH_LIB_OBJ := $(BENCH_LIB_SRC:%.c=$(OBJ)/%.o)
BENCH_BIN := $(BENCH_SRC:bench/%.c=$(B)/bench/%)

benches: $(BENCH_BIN)

$(B)/bench/%: $(OBJ)/bench/%.o $(OBJ)/bench/gbench.o $(BENCH_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDSAN) -o $@ $^ $(LIBS) -lbenchmark -pthread

bench: deps ## Measure: all benches, JSON in build/bench/results
	@sh tests/install_deps.sh dataset-fashion-mnist
	@$(MAKE) --no-print-directory models benches
	$(Q)$(B)/make-models --out build/models identity
	$(Q)$(B)/switchyard import build/models/identity/1/model.onnx --update
	$(Q)mkdir -p $(B)/bench/results
	$(Q)for b in $(BENCH_BIN); do \
	    $$b --benchmark_out=$(B)/bench/results/$$(basename $$b).json --benchmark_out_format=json || exit 1; done

# The host engine beside ONNX Runtime and PyTorch, which are installed into a virtual environment of their own, in their current
# versions: `rm -r build/venv-bench` renews them. BENCH_ARGS='--runs 5 resnet50' for less.
ENGINE_MODELS := resnet50 resnet152 inception_v3 mobilenet_v2 bert_base lstm_text
bench-engine: deps ## Measure: the host engine beside ONNX Runtime and PyTorch; BENCH_ARGS="--runs 5 resnet50"
	@sh tests/install_deps.sh python3 python3-venv
	@$(MAKE) --no-print-directory binaries build/venv-bench/made
	$(Q)$(B)/make-models --out build/bench/models $(ENGINE_MODELS)
	$(Q)build/venv-bench/bin/python bench/engine.py $(B) build/bench/models $(BENCH_ARGS)
build/venv-bench/made: bench/requirements.txt
	$(call say,VENV,build/venv-bench)
	$(Q)[ -x build/venv-bench/bin/pip ] || python3 -m venv build/venv-bench
	$(Q)build/venv-bench/bin/pip install --quiet --disable-pip-version-check --upgrade -r $<
	@touch $@

# TCP and TLS beside the Unix socket and iperf3, over loopback: build/bench/remote.json.
bench-remote: deps ## Measure: a server of another machine, over loopback, beside iperf3
	@sh tests/install_deps.sh iperf3 iproute2 openssl
	@$(MAKE) --no-print-directory venv binaries
	$(Q)build/venv/bin/python bench/remote/remote.py $(B) $(BENCH_REMOTE_ARGS)

# Ours and PyTorch's steps, interleaved: build/bench/train.json. BENCH_TRAIN_ARGS='--only cnn --rounds 3'.
BENCH_TRAIN_MODELS := resnet50 bert_classifier bert_sequence fashion_mlp mnist_cnn text_bilstm
bench-train: deps ## Measure: training steps beside PyTorch: build/bench/train.json; BENCH_TRAIN_ARGS="--only cnn --rounds 3"
	@sh tests/install_deps.sh python3 python3-venv
	@$(MAKE) --no-print-directory binaries build/venv-bench/made $(B)/bench/train_steps
	$(Q)$(B)/make-models --out build/models $(BENCH_TRAIN_MODELS)
	$(Q)build/venv-bench/bin/python bench/train/train.py $(B)/bench/train_steps build/models build/bench/train.json $(BENCH_TRAIN_ARGS)

# Load generators of bench-serve; grpc_load wants libnghttp2.
SERVE_LOADS := $(addprefix $(B)/bench/,http_load grpc_load native_shared)
$(filter %_load,$(SERVE_LOADS)): $(B)/bench/%: $(OBJ)/bench/serve/%.o $(OBJ)/bench/serve/load_core.o $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(if $(findstring grpc,$@),-lnghttp2) -lm -pthread
$(B)/bench/native_shared: $(OBJ)/bench/serve/native_shared.o $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread
$(B)/bench/train_steps: $(OBJ)/bench/train/train_steps.o $(OBJ)/runtime/cli/train/local_job.o $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# The rows of the scheduler's table on real servers of this build: build/bench/sched-ROW.json. BENCH_SCHED_ARGS=--quick for a look;
# `python3 bench/sched/rows.py ROW --help` for one of them.
bench-sched: deps ## Measure: shares, deadlines, switches, residency on real servers; BENCH_SCHED_ARGS=--quick
	@sh tests/install_deps.sh python3
	@$(MAKE) --no-print-directory binaries $(B)/bench/spill
	$(Q)$(B)/bench/spill --benchmark_out=$(B)/bench/sched-spill.json --benchmark_out_format=json
	$(Q)python3 bench/sched/rows.py --build $(B) $(BENCH_SCHED_ARGS) all

# Serving, each row beside its baseline: build/bench/serve.json, and its table in bench/RESULTS.md. BENCH_SERVE_ARGS='--only http --quick'.
bench-serve: deps ## Measure: HTTP, gRPC, shared memory, a storm, beside baselines: build/bench/serve.json; BENCH_SERVE_ARGS="--only http --quick"
	@sh tests/install_deps.sh python3 python3-venv wrk nghttp2-client libnghttp2-dev procps
	@$(MAKE) --no-print-directory binaries $(SERVE_LOADS) $(B)/bench/ready
	$(Q)python3 bench/serve/serve.py --build $(B) $(BENCH_SERVE_ARGS)
	@$(MAKE) --no-print-directory bench-report

# Token time of a decoder in a session beside ONNX Runtime.
bench-decoder: deps ## Measure: GPT-2 small token by token beside ONNX Runtime: build/bench/decoder.json; BENCH_DECODER_ARGS="--batch 1 --tokens 20"
	@$(MAKE) --no-print-directory binaries venv
	$(Q)build/venv/bin/python bench/decoder.py --build $(B) $(BENCH_DECODER_ARGS)

# The models of tests/zoo beside ONNX Runtime: build/bench/zoo.json, zoo.svg, and the zoo's part of bench/RESULTS.md.
bench-zoo: deps ## Measure: public models beside ONNX Runtime: build/bench/zoo.json; BENCH_ZOO_ARGS="--half look --only densenet --quick"
	@sh tests/install_deps.sh libonnx-testdata
	@$(MAKE) --no-print-directory binaries $(B)/tests/onnx_suite build/zoo-venv/made
	$(Q)$(ZOO_PYTHON) bench/zoo/zoo_bench.py --build $(B) $(BENCH_ZOO_ARGS)
	@$(MAKE) --no-print-directory bench-report

# Fleets: routing by nginx, packages by HTTP, the simulator at ten thousand devices; `make ray-check` before it for Ray's rows. bench/fleet.md is the simulator's.
bench-fleet: deps ## Measure: a fleet's routing, fetching, simulation: build/bench/fleet.json, bench/fleet.md; BENCH_FLEET_ARGS=--quick
	@sh tests/install_deps.sh python3 nginx-light wrk curl
	@$(MAKE) --no-print-directory binaries $(B)/bench/simulator $(B)/bench/slow_link
	$(Q)python3 bench/fleet/fleet.py $(B) $(BENCH_FLEET_ARGS)
	$(Q)python3 bench/fleet/fleet_md.py $(B) bench/fleet.md $(BENCH_FLEET_ARGS)
	@$(MAKE) --no-print-directory bench-report

$(B)/bench/slow_link: $(OBJ)/bench/fleet/slow_link.o $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# Parts of benches that have not run here stay as they are. No prerequisites: the benches make it when they have ended.
bench-report: ## Measure: write bench/RESULTS.md anew, from build/bench and bench/results
	$(Q)python3 bench/results_md.py $(B)/bench bench/RESULTS.md

# Numbers of a GPU beside PyTorch's, with the python3 that has it.
gpu-bench: deps ## Measure: a GPU beside PyTorch: bench/results/DEVICE-DATE.json, and its part of RESULTS.md; GPU_BENCH_ARGS="--device cuda:1 --part swaps"
	@$(MAKE) --no-print-directory CUDA=1 binaries $(B)/bench/swap
	@python3 bench/gpu_bench.py $(B) bench/results $(GPU_BENCH_ARGS); status=$$?; $(MAKE) --no-print-directory bench-report; exit $$status

# Training and models at the same time, in slices of one core each, beside taking turns on both: build/bench/corun.json.
bench-corun: deps ## Measure: computing at the same time, in slices; build/bench/corun.json
	@$(MAKE) --no-print-directory binaries
	$(Q)python3 bench/corun.py $(B) $(BENCH_ARGS)
	@$(MAKE) --no-print-directory bench-report

# PyTorch jobs beside requests: steps, waits, shares, each beside its baseline in the same run. BENCH_TORCH_ARGS='--quick' for less.
.PHONY: bench-torch
bench-torch: deps ## Measure: PyTorch scripts as jobs: build/bench/torch.json; BENCH_TORCH_ARGS="--quick --part lstm"
	@$(MAKE) --no-print-directory binaries build/venv-torch/made
	@mkdir -p build/bench
	$(Q)build/venv-torch/bin/python bench/torch_jobs.py --build $(B) --out build/bench/torch.json $(BENCH_TORCH_ARGS)
	@$(MAKE) --no-print-directory bench-report
