# Test binaries, fuzz targets, checks with stock clients, and the goals that run them.
.PHONY: cover-targets fuzz-coverage fuzz-merge fuzz-diff venv tests test call-circles test-engine test-onnx test-zoo zoo test-train fuzz gpu-tests gpu-check dist lint check test-torch test-perf-analyzer

# tests/FOLDER/test_NAME.c is build/tests/test_NAME: names are unique. What several tests share lies in fakes, nets and rigs.
TEST_SRC  := $(sort $(wildcard tests/*/test_*.c tests/*/*/test_*.c))
TEST_NAMES := $(basename $(notdir $(TEST_SRC)))
TEST_LIB_SRC := $(sort $(wildcard tests/fakes/*.c tests/nets/*.c tests/rigs/*.c))
vpath test_%.c $(sort $(dir $(TEST_SRC)))
# Of the engines alone: once more of the CUDA engine's on the CPU, and on a GPU.
ENGINE_NAMES := $(filter test_engine%,$(TEST_NAMES))
GRADIENT_NAMES := $(filter test_train_gradients%,$(TEST_NAMES))
TEST_LIB_OBJ := $(TEST_LIB_SRC:%.c=$(OBJ)/%.o)

# The kernels one by one, with as many threads a block as on a GPU.
KERNEL_TEST_BIN := $(addprefix $(B)/tests/,$(filter test_cuda_kernels%,$(TEST_NAMES)))
KERNEL_TEST_OBJ := $(CUDA_KERNEL_SRC:%.cu=$(OBJ)/on_cpu/256/%.o) $(OBJ)/tests/on_cpu/cpu_launch.o $(OBJ)/tests/on_cpu/kernel_rig.o $(OBJ)/tests/on_cpu/generic_trial.o $(patsubst %.c,$(OBJ)/%.o,$(wildcard workers/cuda/math/generic*.c))
# The host engine's and trainer's tests once more, of the CUDA engine's on the CPU.
FAKE_CUDA_BIN := $(patsubst test_%,$(B)/tests/fake_cuda_%,$(ENGINE_NAMES) $(filter test_dynamic%,$(TEST_NAMES)) test_trainer test_train_run $(GRADIENT_NAMES))

# And on a GPU, through the plugin: made for gpu-check and dist only.
GPU_BIN := $(patsubst test_%,$(B)/tests/test_gpu_%,$(ENGINE_NAMES) test_trainer $(GRADIENT_NAMES))

CUDA_TEST_BIN := $(addprefix $(B)/tests/test_cuda_,parts in_flight device slices pinned failing_calls)

TEST_BIN  := $(addprefix $(B)/tests/,$(TEST_NAMES)) $(FAKE_CUDA_BIN)
# tests/fuzz/fuzz_NAME.c is a target; fuzz_main.c drives each in the tests, clang's libFuzzer behind fuzz_guided.c in `make fuzz`.
FUZZ_DRIVERS := $(addprefix tests/fuzz/fuzz_,main.c feedback.c front.c guided.c support.c)
FUZZ_LIB_SRC := tests/fuzz/fuzz_support.c tests/fuzz/fuzz_front.c $(if $(filter 1,$(FUZZ)),tests/fuzz/fuzz_guided.c,tests/fuzz/fuzz_main.c tests/fuzz/fuzz_feedback.c)
FUZZ_SRC  := $(sort $(filter-out $(FUZZ_DRIVERS),$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_LIB_OBJ := $(FUZZ_LIB_SRC:%.c=$(OBJ)/%.o)
FUZZ_BIN  := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/fuzz/%)
FUZZ_SECONDS ?= 60
# The thread sanitizer runs what has threads, or processes that have some. These have none but OpenMP's, which it cannot see into: they
# would take most of its time and show nothing.
ONE_THREAD := test_engine% fake_cuda_engine% fake_cuda_dynamic% fake_cuda_train_gradients% fake_cuda_trainer test_train_gradients% test_train_split test_recurrence \
              test_cuda_kernels% test_cuda_engine test_cuda_trainer test_cuda_beside_host test_cuda_candidates test_cuda_control test_cuda_operators test_cuda_node_help \
              test_fusions test_folding test_control test_expand test_foreign_layouts test_dynamic% test_open_sizes test_open_batches test_graph test_onnx_reader test_onnx_functions test_sparse_tensors test_package \
              test_package_changes test_safetensors test_bad_models test_bad_graphs test_mutated_models test_simulation test_size_expr test_shape_cases test_sequence_ends test_body_weights \
              test_gradient_node test_text_grams test_state_operators test_contrib_operators test_small_types test_row_independence test_string_tensor test_sim% test_sched% test_policy test_policy_decisions test_predictor test_interference test_fill test_slice_plan test_replay \
              test_lanes test_residency% test_pool test_idx test_npy test_pbtxt test_model_config test_warmup_files test_front_stats test_text_pattern test_tree_weights test_trees test_attend test_channel_parts \
              test_channels_last test_conv_chain test_grid_volumes test_growing_concat test_kept_weights test_int8% test_late_curve test_packed_product test_product_norm test_blocked_product test_depthwise \
              test_attention_columns test_float_curves test_kernel_% test_norm_rows test_number_rows test_pool_rows test_reblock test_short_rows test_winograd test_train_optimizers test_train_step test_train_inputs test_trainer
TEST_RUN  := $(TEST_BIN)
# With the address sanitizer the tests end with a short run of each fuzz target, always the same inputs.
ifneq ($(findstring address,$(SAN)),)
TEST_RUN  += $(FUZZ_BIN)
endif
ifneq ($(findstring thread,$(SAN)),)
TEST_RUN  := $(filter-out $(ONE_THREAD:%=$(B)/tests/%),$(TEST_BIN))
endif

# It stands in front of the C library's clock and waits, which the sanitizers' own runtimes call before anything is set up.
ifneq ($(SAN),)
TEST_RUN  := $(filter-out $(B)/tests/test_simulation,$(TEST_RUN))
endif

$(OBJ)/tests/main/test_%.o: test_%.c | $(GEN_HDR)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_) -MMD -MP -c $< -o $@

# The yardstick computes by definition, in loops: it is not what is tested, and no sanitizer looks into it.
$(OBJ)/tests/nets/naive_%.o: CFLAGS_ := $(filter-out -fsanitize=%,$(CFLAGS_)) -O3

# The library and the tests' helpers, once for all tests: linked into each they would be gigabytes.
TEST_SO := $(B)/tests/libswitchyard-tests.so
$(TEST_SO): $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -Wl,-soname,$(@F) -o $@ $(TEST_LIB_OBJ) -Wl,--whole-archive $(B)/libswitchyard.a -Wl,--no-whole-archive $(LIBS) -lcmocka -pthread
# The CUDA engine on the CPU, once too.
CUDA_ON_CPU_SO := $(B)/tests/libcuda-on-cpu.so
$(CUDA_ON_CPU_SO): $(CUDA_ON_CPU_OBJ) $(CUDA_PART_OBJ) $(TEST_SO)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -Wl,-soname,$(@F) -o $@ $(CUDA_ON_CPU_OBJ) $(CUDA_PART_OBJ) -pthread
# jemalloc in front of the C library, as in the program: both would allocate otherwise.
define link_test
$(call say,LD,$@)
@mkdir -p $(@D)
$(Q)$(CC) $(LDSAN) -o $@ $(filter-out $(TEST_SO) $(CUDA_ON_CPU_SO),$^) $(filter $(CUDA_ON_CPU_SO),$^) $(TEST_SO) \
    -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../tests' -Wl,--no-as-needed -ljemalloc -Wl,--as-needed $(LIBS) -lcmocka -pthread
endef

$(B)/tests/%: $(OBJ)/tests/main/%.o $(TEST_SO)
	$(link_test)

ifneq ($(FUZZ),1)
$(B)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(FUZZ_LIB_OBJ) $(TEST_SO) | $(B)/fuzz/unpacked
	$(link_test)
# Corpora, each beside its target.
$(B)/fuzz/unpacked: $(wildcard tests/fuzz/*.py tests/fuzz/corpus/* tests/fuzz/corpus/*/*)
	@mkdir -p $(@D)
	$(Q)python3 tests/fuzz/corpora.py unpack $(FUZZ_BIN) && touch $@
else
# libFuzzer without its main; GNU's OpenMP, which the kernels call. By clang++: C++'s new must be the sanitizer's, too, not jemalloc's.
FUZZ_LIBS = $(wildcard $(shell clang -print-runtime-dir)/libclang_rt.fuzzer_no_main*x86_64.a $(shell clang -print-runtime-dir)/libclang_rt.fuzzer_no_main.a)
$(B)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(FUZZ_LIB_OBJ) $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDSAN) -Wl,--wrap=__sanitizer_cov_trace_pc -o $@ $^ $(FUZZ_LIBS) $(filter-out -fopenmp,$(LIBS)) -l:libgomp.so.1 -lcmocka -pthread
endif

$(B)/tests/test_link_probe: $(OBJ)/runtime/cli/doctor/link_probe.o
$(B)/tests/test_link_record: $(OBJ)/runtime/cli/doctor/link_record.o
$(B)/tests/test_train_curve: $(OBJ)/runtime/cli/train/train_curve.o
$(B)/tests/test_size_expr: $(OBJ)/runtime/cli/inputs/size_text.o
$(B)/tests/test_sample_token: $(OBJ)/runtime/cli/inputs/sample_token.o $(OBJ)/runtime/cli/inputs/token_text.o
$(B)/tests/test_random_inputs: $(OBJ)/runtime/cli/inputs/random_inputs.o $(OBJ)/runtime/cli/inputs/size_text.o
$(B)/tests/test_local_job: $(OBJ)/runtime/cli/train/local_job.o
$(B)/tests/test_rank_devices: $(OBJ)/runtime/cli/train/rank_devices.o
$(B)/tests/test_script_cgroup: $(OBJ)/runtime/cli/script_cgroup.o
$(B)/tests/test_script_gate: $(OBJ)/runtime/cli/train/script_gate.o
$(B)/tests/test_confined: $(OBJ)/runtime/cli/confined.o

# Time that a test lets pass.
$(addprefix $(B)/tests/,test_grpc_server test_grpc_stalls test_rpc test_http_limits): $(OBJ)/tests/runtime/front/skip_clock.o

# The core in one process with simulated workers, clock and storage, which stand in front of the C library's and the library's own.
SIMULATION_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(sort $(wildcard tests/simulation/*.c)))
$(B)/tests/test_simulation: $(SIMULATION_OBJ)

# What the CUDA device does is tested against a table of calls that records them, and behind the plugin's seam.
$(CUDA_TEST_BIN): $(CUDA_PART_OBJ)
$(addprefix $(B)/tests/test_cuda_,engine candidates trainer beside_host operators control node_help ranks): $(B)/tests/%: $(OBJ)/tests/main/%.o $(CUDA_ON_CPU_SO) $(TEST_SO)
	$(link_test)
$(KERNEL_TEST_BIN): $(KERNEL_TEST_OBJ)
$(B)/tests/test_cuda_kernels_columns: $(OBJ)/workers/cuda/math/conv_columns.o
$(B)/tests/fake_cuda_%: $(OBJ)/tests/main/test_%.o $(OBJ)/tests/on_cpu/choose_fake_cuda.o $(CUDA_ON_CPU_SO) $(TEST_SO)
	$(link_test)
$(GPU_BIN): $(B)/tests/test_gpu_%: $(OBJ)/tests/main/test_%.o $(OBJ)/tests/on_gpu/choose_gpu.o $(TEST_SO)
	$(link_test)
# NCCL of ranks on the CPU.
$(B)/tests/test_cuda_ranks: | $(B)/tests/libnccl-fake.so
$(B)/tests/libnccl-fake.so: $(OBJ)/tests/on_cpu/fake_nccl.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -o $@ $^ -pthread
$(B)/tests/test_gpu_ranks: $(OBJ)/runtime/cli/train/local_job.o
$(B)/tests/libswitchyard-cuda-fake.so: $(OBJ)/tests/fakes/fake_cuda.o $(OBJ)/tests/fakes/fake_cuda_streams.o $(OBJ)/$(CUDA_ENTRY:.c=.o) $(CUDA_PART_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -Wl,--version-script,$(PLUGIN_SHOWS) -o $@ $^ -pthread -ldl
ifneq ($(and $(WITH_CUDA),$(wildcard $(NVCC))),)
GPU_FAULT := $(B)/tests/libgpu_fault.so $(B)/tests/libgpu_slices.so
endif
$(B)/tests/libgpu_%.so: tests/on_gpu/gpu_%.cu
	$(call say,NVCC,$@)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCCFLAGS) -shared -cudart static -o $@ /proc/self/cwd/$<
$(B)/tests/test_cuda_plugin: | $(B)/tests/libswitchyard-cuda-fake.so $(B)/tests/test_device $(B)/tests/test_cuda_device $(B)/switchyard $(CUDA_BIN)

# Preloaded into servers: calls that fail, a log of durable writes.
FAULTS_SO := $(B)/tests/libfaults.so
$(FAULTS_SO): tests/faults/faults.c tests/faults/faults_memory.c tests/faults/faults.h
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -fsanitize=%,$(CFLAGS_)) -U_FORTIFY_SOURCE -fno-builtin -shared -o $@ $(filter %.c,$^) -ldl

tests: $(TEST_RUN) $(GPU_FAULT) $(FAULTS_SO)

# Sanitizer builds: one thread for OpenMP, whose runtime the thread sanitizer cannot see into.
ifneq ($(SAN),)
TEST_ENV := ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
            LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 \
            TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp:halt_on_error=1:second_deadlock_stack=1
ifneq ($(findstring thread,$(SAN)),)
TEST_ENV += OMP_NUM_THREADS=1
endif
endif

# Reference libraries for the tests, from PyPI; made once for each list of versions.
VENV_STAMP := build/venv/made-with-$(shell cksum < tests/requirements.txt | cut -d' ' -f1)
venv: $(VENV_STAMP)
$(VENV_STAMP): tests/requirements.txt
	@sh tests/install_deps.sh python3 python3-venv
	$(call say,VENV,build/venv)
	$(Q)[ -x build/venv/bin/python ] || python3 -m venv build/venv
	$(Q)build/venv/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@rm -f build/venv/made-with-*; touch $@

# Stock clients against a real server. A sanitizer's build is run by those that reach the most of it.
CLIENT_CHECKS := tests/peers/metrics_check.py tests/peers/slices_check.py tests/peers/run_check.py tests/zoo/test_compare.py
ifeq ($(SAN),)
CLIENT_CHECKS += tests/peers/spill_check.py tests/torture/torture_check.sh tests/torture/torture_clients_check.py tests/faults/crash_check.py tests/faults/alloc_check.py tests/peers/keeper_check.py
CLIENT_CHECKS += tests/lint/lint_check.py tests/peers/schemathesis_check.py tests/peers/gpu_bench_check.py tests/peers/bench_help_check.py tests/peers/python_client_check.py tests/peers/python_pieces_check.py tests/peers/script_page_check.py tests/peers/page_check.py tests/peers/datatypes_check.py tests/peers/sequences_check.py tests/peers/strings_check.py tests/peers/grpc_client_check.py tests/peers/http_client_check.py tests/peers/decoder_check.py tests/peers/kubernetes_check.py tests/peers/fleet_check.py tests/peers/fetch_check.py tests/peers/stream_check.py tests/peers/drain_check.py tests/peers/peer_check.py tests/peers/ranks_check.py tests/peers/rank_jobs_check.py tests/peers/upgrade_check.py tests/peers/install_check.py tests/peers/remote_check.py tests/peers/remote_refusals_check.py tests/peers/move_check.py
else ifeq ($(findstring thread,$(SAN)),)
CLIENT_CHECKS += tests/peers/datatypes_check.py tests/peers/sequences_check.py tests/peers/strings_check.py tests/peers/grpc_client_check.py tests/peers/http_client_check.py tests/peers/remote_check.py tests/peers/remote_refusals_check.py
endif

# PyTorch's wheel is too large for `make test` (5 GB with what it brings).
build/venv-torch/made: tests/torch_requirements.txt
	@sh tests/install_deps.sh python3 python3-venv g++
	$(call say,VENV,build/venv-torch)
	$(Q)[ -x build/venv-torch/bin/pip ] || python3 -m venv build/venv-torch
	$(Q)build/venv-torch/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@
test-torch: deps ## Test: PyTorch scripts under 'switchyard run', models by torch.onnx; TORCH_TESTS="bits import" for some
	@$(MAKE) --no-print-directory build/venv-torch/made binaries
	@SY_BINARY=$(B)/switchyard build/venv-torch/bin/python tests/peers/torch_check.py $(TORCH_TESTS)

# Triton's own load generator; apart from `make test`, since PyPI has it in an older wheel of tritonclient than the tests' peer.
build/venv-perf-analyzer/made: tests/perf_analyzer_requirements.txt
	@sh tests/install_deps.sh python3 python3-venv libb64-0d
	$(call say,VENV,build/venv-perf-analyzer)
	$(Q)[ -x build/venv-perf-analyzer/bin/pip ] || python3 -m venv build/venv-perf-analyzer
	$(Q)build/venv-perf-analyzer/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@
test-perf-analyzer: deps ## Test: Triton's perf_analyzer against `serve`: both protocols, shared memory, streams, 1 to 64 at once
	@$(MAKE) --no-print-directory venv build/venv-perf-analyzer/made binaries
	@SY_BINARY=$(B)/switchyard ANALYZER=build/venv-perf-analyzer/bin/perf_analyzer \
		LD_LIBRARY_PATH=$$(echo build/venv-perf-analyzer/lib/python3*/site-packages/nvidia/cuda_runtime/lib) tests/peers/perf_analyzer_check.py

test: deps ## Test: builds and runs all tests; SAN=address,undefined or SAN=thread for sanitizers
	@sh tests/install_deps.sh libonnx-testdata prometheus chromium nginx-light openssl libopenmpi-dev openmpi-bin
	@$(MAKE) --no-print-directory venv binaries tests
ifeq ($(SAN),)
	@$(MAKE) --no-print-directory call-circles
endif
	@$(TEST_ENV) SY_BINARY=$(B)/switchyard bash tests/run.sh $(TEST_RUN) $(CLIENT_CHECKS)
ifeq ($(SAN),)
	@$(MAKE) --no-print-directory fuzz-diff FUZZ_SEED=1 GRAPHS=192
	@$(MAKE) --no-print-directory models
	@build/venv/bin/python tests/peers/engine_vs_onnxruntime.py $(B) build/models $(MODELS)
	$(Q)$(B)/make-models --out build/compare-models mobilenet_v2 lstm_text
	@build/venv/bin/python tests/peers/engine_vs_onnxruntime.py $(B) build/compare-models mobilenet_v2 lstm_text
endif

# The engine's and the trainer's tests alone; with DNNL= for another oneDNN.
ENGINE_TESTS := $(addprefix $(B)/tests/,$(ENGINE_NAMES) test_recurrence test_trainer test_train_step)
test-engine: deps ## Test: the tests of the host engine and trainer alone; DNNL=pypi with oneDNN 3.x
	@$(MAKE) --no-print-directory binaries $(ENGINE_TESTS)
	@$(TEST_ENV) SY_BINARY=$(B)/switchyard bash tests/run.sh $(ENGINE_TESTS)

# A server with everything at once, while what can fail fails: build/torture/report.html. HOURS=8 for longer; TORTURE_ARGS='--seed 7 --round host'.
.PHONY: torture torture-deaths torture-connections simulation
TORTURE := SY_BINARY=$(B)/switchyard tests/torture/torture.py --out $(B)/torture
torture: deps ## Test: all interfaces and jobs under faults, two minutes or HOURS=N: build/torture/report.html; TORTURE_ARGS="--seed 7"
	@$(MAKE) --no-print-directory venv binaries
	$(Q)$(TORTURE) $(if $(HOURS),--hours $(HOURS)) $(TORTURE_ARGS)
DEATHS ?= 10000
torture-deaths: deps ## Test: DEATHS=10000 deaths of workers in one life of a runtime: nothing lost or wrong, memory flat
	@$(MAKE) --no-print-directory venv binaries
	$(Q)$(TORTURE) --deaths $(DEATHS) $(TORTURE_ARGS)
# Front ends, core, supervisor and scheduler in one process with simulated connections, workers, clock and storage (tests/simulation), then the scheduler alone, with slices too. A walk
# that fails fails the goal, prints what happened last, and the SY_SEED that is this walk again.
WALKS ?= 800
SIMULATION_LOG := $(B)/simulation.log
SIMULATION_BIN := $(addprefix $(B)/tests/,test_simulation test_sched test_sched_slices)
simulation: deps ## Test: WALKS=800 seeded walks of core and supervisor with simulated workers, and of the scheduler; SY_SEED=N for other seeds
	@$(MAKE) --no-print-directory $(SIMULATION_BIN)
	$(Q)for t in $(SIMULATION_BIN); do \
	    SY_SEED=$${SY_SEED:-$$(date +%s)} SY_WALKS=$(WALKS) $$t >$(SIMULATION_LOG) 2>&1 || { tail -n 60 $(SIMULATION_LOG); \
	        awk '/^walk: / { walk = substr($$0, 7) } /OK.*test_random/ { walk = "" } END { if (walk) print "this walk again: " walk " '$$t'" }' \
	            $(SIMULATION_LOG); exit 1; }; \
	    grep -E '^simulation: |PASSED' $(SIMULATION_LOG); done

CONNECTIONS ?= 10000
torture-connections: deps ## Test: CONNECTIONS=10000 open at once: memory, refusals in words, another client's p99
	@$(MAKE) --no-print-directory venv binaries
	$(Q)$(TORTURE) --connections $(CONNECTIONS) $(TORTURE_ARGS)

# ONNX's own test data, each case in a process of its own. ONNX_DATA=FOLDER... for other folders than Debian's, ONNX_ARGS='--only NAME'.
ONNX_DATA ?= /usr/share/libonnx-testdata/data
ONNX_SUITE_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(sort $(wildcard tests/onnx_data/*.c)))
$(B)/tests/onnx_suite: $(ONNX_SUITE_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# The same cases of the CUDA engine, its kernels on the CPU; and on a GPU.
$(B)/tests/fake_cuda_onnx_suite: $(ONNX_SUITE_OBJ) $(OBJ)/tests/on_cpu/choose_fake_cuda.o $(CUDA_ON_CPU_SO) $(TEST_SO)
$(B)/tests/gpu_onnx_suite: $(ONNX_SUITE_OBJ) $(OBJ)/tests/on_gpu/choose_gpu.o $(TEST_SO)
$(B)/tests/fake_cuda_onnx_suite $(B)/tests/gpu_onnx_suite:
	$(link_test)

test-onnx: deps ## Test: the test data of the ONNX project through both engines: passed, refused and why, failed; ONNX_ARGS="--only NAME"
	@sh tests/install_deps.sh libonnx-testdata
	@$(MAKE) --no-print-directory $(B)/tests/onnx_suite $(B)/tests/fake_cuda_onnx_suite
	@$(B)/tests/onnx_suite $(ONNX_ARGS) $(ONNX_DATA)
	@echo 'the CUDA engine, its kernels on the CPU; then all that it lacks by the host engine (--allow-host-ops):'
	@$(B)/tests/fake_cuda_onnx_suite $(ONNX_ARGS) $(ONNX_DATA)
	@SY_FAKE_HOST_OPS=1 $(B)/tests/fake_cuda_onnx_suite $(ONNX_ARGS) $(ONNX_DATA)

# What makes the zoo: PyTorch, Keras, scikit-learn and their exporters. Big, and never part of the tests.
ZOO_PYTHON := build/zoo-venv/bin/python
build/zoo-venv/made: tests/zoo/requirements.txt
	@sh tests/install_deps.sh python3 python3-venv
	$(call say,VENV,build/zoo-venv)
	$(Q)[ -x build/zoo-venv/bin/pip ] || python3 -m venv build/zoo-venv
	$(Q)build/zoo-venv/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Models that PyTorch's exporters write, random weights, against ONNX Runtime.
test-zoo: deps ## Test: models as PyTorch exports them, against ONNX Runtime (exports some 200: an hour); ZOO_ARGS="--only NAME --keep"
	@$(MAKE) --no-print-directory $(B)/tests/onnx_suite build/zoo-venv/made
	@$(ZOO_PYTHON) tests/exports/zoo.py $(ZOO_ARGS) $(B) build/zoo

# Made once each, under build/zoo/models.
zoo: deps build/zoo-venv/made ## Build: the public models of tests/zoo
	$(Q)$(ZOO_PYTHON) tests/zoo/zoo_make.py build/zoo/models

# FUZZ_SEED=N replays a run from the same corpora; without it each is another. What was found stays below build/fuzz/fuzz until `make fuzz-merge`.
FUZZ_TARGETS ?= $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)
ifneq ($(FUZZ),1)
fuzz fuzz-merge:
	@sh tests/install_deps.sh clang libclang-rt-dev
	@$(MAKE) --no-print-directory $@ SAN=address,undefined FUZZ=1
fuzz: deps ## Test: libFuzzer on each parser for FUZZ_SECONDS=60; FUZZ_TARGETS="http onnx" for some, FUZZ_SEED=N
fuzz-merge: deps ## Test: corpora of the tree anew, with what `make fuzz` found
else
fuzz: $(FUZZ_TARGETS:%=$(B)/fuzz/fuzz_%)
	$(Q)python3 tests/fuzz/corpora.py run $(FUZZ_SECONDS) $${FUZZ_SEED:-$$(date +%s)} $^
fuzz-merge: $(FUZZ_TARGETS:%=$(B)/fuzz/fuzz_%)
	$(Q)python3 tests/fuzz/corpora.py merge $^
endif

# Of the parsers alone, by gcov: their objects, compiled again, stand in front of the library's.
COVER_OBJ := build/cover/obj
COVER_SRC := $(shell python3 tests/fuzz/coverage.py --files 2>/dev/null)
COVER_PARTS := $(COVER_SRC:%.c=$(COVER_OBJ)/%.o)
COVER_BIN := $(FUZZ_SRC:tests/fuzz/%.c=build/cover/%)
$(COVER_OBJ)/%.o: %.c | $(GEN_HDR)
	$(call say,GCOV,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -O2,$(CFLAGS_)) -O0 --coverage -MMD -MP -c $< -o $@
$(COVER_BIN): build/cover/%: $(OBJ)/tests/fuzz/%.o $(FUZZ_LIB_OBJ) $(TEST_LIB_OBJ) $(COVER_PARTS) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) --coverage -o $@ $^ $(LIBS) -lcmocka -pthread

-include $(shell find $(COVER_OBJ) -name '*.d' 2>/dev/null)

cover-targets: $(COVER_BIN)
fuzz-coverage: deps ## Test: lines of each parser that the fuzz targets' seeds and corpora reach; COVER_ARGS="--lines ONNX" lists the others
	@$(MAKE) --no-print-directory cover-targets
	$(Q)python3 tests/fuzz/corpora.py unpack $(COVER_BIN)
	$(Q)find $(COVER_OBJ) -name '*.gcda' -delete
	$(Q)for f in $(COVER_BIN); do $$f --replay || exit 1; done
	$(Q)python3 tests/fuzz/coverage.py $(COVER_OBJ) $(COVER_ARGS)

# Random graphs against ONNX Runtime; a seed that fails replays with FUZZ_SEED=N GRAPHS=1.
GRAPHS ?= 100000
fuzz-diff: deps venv ## Test: random graphs against ONNX Runtime for FUZZ_SECONDS=60; FUZZ_SEED=N GRAPHS=1 replays one
	@$(MAKE) --no-print-directory $(B)/tests/onnx_suite
	$(Q)SY_ONNX_SUITE=$(B)/tests/onnx_suite build/venv/bin/python tests/peers/fuzz_diff.py --seed $${FUZZ_SEED:-$$(date +%s)} --graphs $(GRAPHS) --seconds $(FUZZ_SECONDS)

# Random training jobs against PyTorch; a seed that differs replays with FUZZ_SEED=N JOBS=1.
.PHONY: fuzz-train nightly
JOBS ?= 100000
fuzz-train: deps ## Test: random training jobs against PyTorch for FUZZ_SECONDS=60; FUZZ_SEED=N JOBS=1 replays one
	@$(MAKE) --no-print-directory build/venv-torch/made binaries
	$(Q)build/venv-torch/bin/python tests/peers/fuzz_train.py $(B)/switchyard --seed $${FUZZ_SEED:-$$(date +%s)} --jobs $(JOBS) --seconds $(FUZZ_SECONDS)

# What takes hours, each part with the seed that it prints: ten minutes of each fuzz target, of random graphs and of random jobs; an hour of torture.
nightly: ## Test: fuzz, fuzz-coverage, fuzz-diff, fuzz-train for ten minutes a target, simulation, an hour of torture
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600
	@$(MAKE) --no-print-directory fuzz-coverage
	@$(MAKE) --no-print-directory fuzz-diff FUZZ_SECONDS=600
	@$(MAKE) --no-print-directory fuzz-train FUZZ_SECONDS=600
	@$(MAKE) --no-print-directory simulation WALKS=20000
	@$(MAKE) --no-print-directory torture HOURS=1

# Gradients and the loss after 100 steps against PyTorch. TEST_TRAIN_ARGS='bilstm --steps 20'.
test-train: deps ## Test: gradients and losses against PyTorch; TEST_TRAIN_ARGS="bilstm --steps 20"
	@sh tests/install_deps.sh python3 python3-venv
	@$(MAKE) --no-print-directory binaries
	$(Q)$(B)/make-models --out build/models fashion_mlp mnist_cnn text_bilstm text_transformer bert_tiny_sequence
	@if $(MAKE) --no-print-directory build/venv-bench/made; then \
	    build/venv-bench/bin/python bench/train/compare.py $(B)/switchyard build/models $(TEST_TRAIN_ARGS); \
	else echo 'test-train: skipped: PyTorch cannot be installed here, as said above'; fi

# On a machine with a GPU, or in what `make dist` made: the same script.
gpu-tests: $(GPU_BIN) $(addprefix $(B)/tests/,test_device test_cuda_plugin test_gpu_device test_gpu_slices test_gpu_models test_gpu_training test_gpu_ranks test_end_to_end test_worker_deaths gpu_onnx_suite) $(GPU_FAULT)

gpu-check: deps ## Test: the tests that need a GPU, on cuda:0; SY_TEST_DEVICE=cuda:N for another, PART="device engine" for some
	@$(MAKE) --no-print-directory CUDA=1 binaries gpu-tests
	@sh tests/on_gpu/gpu_check.sh $(B) $(B)/tests

dist: deps ## Build: build/dist: program, plugin, tests and their shared libraries, to run elsewhere
	@$(MAKE) --no-print-directory CUDA=1 binaries gpu-tests $(B)/bench/swap $(B)/carried/libswitchyard-cuda.so
	$(Q)sh tests/make_dist.sh $(B) build/dist

# Files that call each other in a circle, in these folders; by the objects, so not in lint, which runs before anything is built.
NO_CIRCLES := allocator bench examples loader runtime workers
call-circles: ## Test: files that call each other in a circle, by what is built
	@python3 tests/lint/call_circles.py $(OBJ) $(NO_CIRCLES)

lint: ## Test: style, include edges, clang-format, clang-tidy
	@sh tests/install_deps.sh clang-format clang-tidy
	@$(MAKE) --no-print-directory $(GEN_HDR)
	@bash tests/lint/lint.sh

check: lint ## Test: lint, test, and test under both sanitizers
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test SAN=address,undefined
	@$(MAKE) --no-print-directory test SAN=thread
