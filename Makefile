# Switchyard. `make` builds, `make demo` shows, `make test` tests; `make help` lists the rest.
#
# One Makefile, no recursion. Objects live in build/obj/HASH, HASH of compiler and flags, so that release,
# sanitizer and debug builds stand side by side.

# ---- switches ---------------------------------------------------------------------------------
CC      ?= gcc
CXX     ?= g++
SAN     ?=
CUDA    ?= auto
V       ?= 0
PREFIX  ?= /usr/local
DEVICE  ?= host
WERROR  ?= 1

comma    := ,

# oneDNN: the system's, or the one under DNNL=PATH (PATH/include, PATH/lib); DNNL=pypi fetches the 3.x that PyPI has for GNU OpenMP.
DNNL     ?=
DNNL_PYPI := build/onednn-pypi
ifeq ($(DNNL),pypi)
DNNL_DIR := $(abspath $(DNNL_PYPI))
DNNL_MADE := $(DNNL_PYPI)/made
else ifneq ($(DNNL),)
DNNL_DIR := $(abspath $(DNNL))
ifeq ($(wildcard $(DNNL_DIR)/include/oneapi/dnnl/dnnl.h),)
$(error DNNL=$(DNNL): no include/oneapi/dnnl/dnnl.h there)
endif
endif

# The CUDA plugin needs CUDA's headers and its static runtime, nothing of the driver: it builds without a GPU. What was decided is
# said once, not in the makes that this one starts.
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null))),/usr/local/cuda)
CUDART   := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a \
              $(CUDA_HOME)/targets/$(shell uname -m)-linux/lib/libcudart_static.a))
CUDA_VERSION := $(shell sed -n 's/^.define CUDART_VERSION *\([0-9]*\).*/\1/p' $(CUDA_HOME)/include/cuda_runtime_api.h 2>/dev/null)
CUDA_FOUND := $(and $(CUDART),$(shell [ "$(CUDA_VERSION)" -ge 13000 ] 2>/dev/null && echo 1))
ifeq ($(filter auto 0 1,$(CUDA)),)
$(error CUDA=$(CUDA): one of auto, 0, 1)
else ifeq ($(CUDA),0)
WITH_CUDA :=
else ifneq ($(CUDA_FOUND),)
WITH_CUDA := 1
else ifeq ($(CUDA),1)
$(error CUDA=1: no cuda_runtime_api.h of CUDA 13.0 or later and libcudart_static.a under $(CUDA_HOME); name the toolkit in CUDA_HOME=, or use CUDA=0)
endif
ifeq ($(MAKELEVEL),0)
$(info switchyard: CUDA=$(CUDA): $(if $(WITH_CUDA),with the CUDA plugin ($(CUDA_HOME)),without the CUDA plugin$(if $(filter auto,$(CUDA)),: no CUDA 13 toolkit under $(CUDA_HOME))))
endif

# ---- flags ------------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wformat=2 -Wno-format-truncation
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif
ifeq ($(SAN),)
OPT      := -O2 -g
VARIANT  :=
else
OPT      := -O1 -g1 -fno-omit-frame-pointer -fsanitize=$(SAN) -DSY_DEBUG -DSY_SANITIZED
VARIANT  := /san-$(subst $(comma),-,$(SAN))
LDSAN    := -fsanitize=$(SAN)
endif
# Set by `make fuzz`: the library reports the blocks that it enters to tests/fuzz/fuzz_feedback.c.
ifeq ($(FUZZ),1)
OPT      += -fsanitize-coverage=trace-pc
VARIANT  := /fuzz
endif
COMMIT   := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
ifneq ($(DNNL_DIR),)
VARIANT  := $(VARIANT)/dnnl-$(notdir $(DNNL_DIR))
DNNL_CPPFLAGS := -isystem $(DNNL_DIR)/include
DNNL_LDFLAGS := -L$(DNNL_DIR)/lib -Wl,-rpath,$(DNNL_DIR)/lib
endif
B        := build$(VARIANT)
GEN      := build/gen

CPPFLAGS += -I. -I$(GEN) $(DNNL_CPPFLAGS) -D_GNU_SOURCE
CFLAGS_  := -std=gnu17 $(OPT) -fPIC -pthread -fvisibility=hidden $(WARNINGS) $(CFLAGS)
CXXFLAGS_ := -std=gnu++17 $(OPT) -fPIC -pthread -Wall -Wextra $(CXXFLAGS)
# Own kernels are plain loops that the compiler vectorises; target_clones picks the CPU class at load.
KERNEL_CFLAGS := -O3 -fopenmp -fno-math-errno -fno-trapping-math

HASH     := $(shell echo '$(CC) $(CFLAGS_) $(CPPFLAGS) $(KERNEL_CFLAGS)' | cksum | cut -d' ' -f1)
OBJ      := build/obj/$(HASH)

LIBS     := $(DNNL_LDFLAGS) -levent -levent_pthreads -lhttp_parser -lnghttp2 -lmsgpackc -ljemalloc -ldnnl -luring -lprotobuf-c -ljansson -lxxhash -lnuma -lz -ljpeg -lpng \
            -fopenmp -lm -ldl

ifeq ($(V),0)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
else
Q :=
say = @:
endif

# ---- sources ----------------------------------------------------------------------------------
LIB_SRC   := $(sort $(wildcard runtime/base/*.c runtime/device/*.c runtime/wire/*.c runtime/sched/*.c runtime/sim/*.c runtime/metrics/*.c runtime/telemetry/*.c runtime/repository/*.c runtime/doctor/*.c runtime/front/*.c runtime/front/*/*.c runtime/*.c \
               allocator/*.c loader/*.c workers/*.c workers/host/*.c))
CLI_SRC   := $(sort $(wildcard runtime/cli/*.c))
TEST_SRC  := $(sort $(wildcard tests/test_*.c))
TEST_LIB_SRC := $(sort $(filter-out $(TEST_SRC),$(wildcard tests/*.c)))
# bench/NAME.c has a main; bench/NAME_*.c belongs to NAME.
BENCH_SRC := $(sort $(filter-out bench/%_rig.c bench/%_child.c,$(wildcard bench/*.c)))
BENCH_LIB_SRC := $(sort $(wildcard bench/*_rig.c bench/*_child.c))
EXAMPLE_SRC := $(sort $(wildcard examples/models/*.c))
DEMO_SRC  := $(sort $(wildcard examples/demo/*.c))
# The CUDA device. Only cuda_api.c sees CUDA's headers; the rest is compiled everywhere, for the tests.
CUDA_SRC  := $(sort $(wildcard runtime/device/cuda/*.c))
CUDA_MAIN := runtime/device/cuda/pool_keeper_main.c
CUDA_API  := runtime/device/cuda/cuda_api.c
CUDA_ENTRY := runtime/device/cuda/plugin_entry.c
# What else goes into the plugin where there are cuDNN and nvcc: the compute engine. Only math_* and *.cu see CUDA's headers; the
# rest is compiled everywhere, for the tests.
ifneq ($(and $(WITH_CUDA),$(wildcard $(CUDA_HOME)/include/cudnn.h),$(wildcard $(CUDA_HOME)/bin/nvcc)),)
CUDA_ENGINE_SRC := $(sort $(wildcard workers/cuda/*.c workers/cuda/*.cu))
endif
CUDA_ENGINE_LIBS := -lcublasLt -lcudnn -lgomp
CUDA_ENGINE_PART_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(filter-out workers/cuda/math_%.c,$(sort $(wildcard workers/cuda/*.c))))
# The engine without a GPU: its own kernels, compiled for the CPU, and loops in the place of CUDA's libraries.
CUDA_KERNEL_SRC := $(sort $(wildcard workers/cuda/*.cu))
CUDA_ON_CPU_OBJ := $(CUDA_ENGINE_PART_OBJ) $(CUDA_KERNEL_SRC:%.cu=$(OBJ)/on_cpu/32/%.o) $(patsubst %,$(OBJ)/tests/on_cpu/%.o,cpu_launch fake_math fake_library beside_host)
# The kernels one by one, with as many threads a block as on a GPU.
KERNEL_TEST_BIN := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_cuda_kernels*.c))
KERNEL_TEST_OBJ := $(CUDA_KERNEL_SRC:%.cu=$(OBJ)/on_cpu/256/%.o) $(OBJ)/tests/on_cpu/cpu_launch.o $(OBJ)/tests/on_cpu/kernel_rig.o $(OBJ)/tests/on_cpu/each_trial.o $(patsubst %.c,$(OBJ)/%.o,$(wildcard workers/cuda/each*.c))
# The host engine's and trainer's tests once more, of the CUDA engine's on the CPU.
FAKE_CUDA_BIN := $(patsubst tests/test_%.c,$(B)/tests/fake_cuda_%,$(wildcard tests/test_engine*.c tests/test_at_run*.c) tests/test_trainer.c \
                   tests/test_train_run.c $(wildcard tests/test_train_gradients*.c))

# And on a GPU, through the plugin: made for gpu-check and dist only.
GPU_BIN := $(patsubst tests/test_%.c,$(B)/tests/test_gpu_%,$(wildcard tests/test_engine*.c) tests/test_trainer.c \
             $(wildcard tests/test_train_gradients*.c))

CUDA_PART_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(filter-out $(CUDA_MAIN) $(CUDA_API) $(CUDA_ENTRY),$(CUDA_SRC)))
CUDA_TEST_BIN := $(addprefix $(B)/tests/test_cuda_,parts in_flight device pinned failing_calls)
CUDA_ENGINE_OBJ := $(addprefix $(OBJ)/,$(addsuffix .o,$(basename $(CUDA_ENGINE_SRC))))
ifneq ($(WITH_CUDA),)
CUDA_BIN  := $(B)/libswitchyard-cuda.so $(B)/switchyard-cuda-keeper
endif

GRPC_PROTO := $(sort $(wildcard runtime/front/grpc/*.proto))
GRPC_GEN  := $(patsubst runtime/front/grpc/%.proto,$(GEN)/%.pb-c.c,$(GRPC_PROTO)) $(GEN)/grpc_descriptors.c
GEN_HDR   := $(GEN)/onnx.pb-c.h $(patsubst %.c,%.h,$(filter %.pb-c.c,$(GRPC_GEN)))
LIB_OBJ   := $(LIB_SRC:%.c=$(OBJ)/%.o) $(patsubst $(GEN)/%.c,$(OBJ)/gen/%.o,$(GEN)/onnx.pb-c.c $(GRPC_GEN))
CLIENT_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(sort $(wildcard runtime/client*.c)) runtime/json_msgpack.c $(sort $(wildcard runtime/base/*.c)))
CLI_OBJ   := $(CLI_SRC:%.c=$(OBJ)/%.o)
TEST_LIB_OBJ := $(TEST_LIB_SRC:%.c=$(OBJ)/%.o)
EXAMPLE_OBJ := $(EXAMPLE_SRC:%.c=$(OBJ)/%.o)
DEMO_OBJ  := $(DEMO_SRC:%.c=$(OBJ)/%.o)
TEST_BIN  := $(TEST_SRC:tests/%.c=$(B)/tests/%) $(FAKE_CUDA_BIN)
# tests/fuzz/fuzz_NAME.c is a target; fuzz_main.c drives each.
FUZZ_LIB_SRC := tests/fuzz/fuzz_main.c tests/fuzz/fuzz_support.c tests/fuzz/fuzz_feedback.c
FUZZ_SRC  := $(sort $(filter-out $(FUZZ_LIB_SRC),$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_LIB_OBJ := $(FUZZ_LIB_SRC:%.c=$(OBJ)/%.o)
FUZZ_BIN  := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/fuzz/%)
FUZZ_SECONDS ?= 60
# The thread sanitizer runs what has threads, or processes that have some. These have none but OpenMP's, which it cannot see into: they
# would take most of its time and show nothing.
ONE_THREAD := test_engine% fake_cuda_engine% fake_cuda_at_run% fake_cuda_train_gradients% fake_cuda_trainer test_train_gradients% test_train_split test_recurrence \
              test_cuda_kernels% test_cuda_engine test_cuda_trainer test_cuda_beside_host test_fusions test_folding test_control test_expand test_at_run% \
              test_open_sizes test_open_batches test_graph test_onnx_reader test_onnx_functions test_package test_package_changes test_safetensors test_bad_models test_bad_graphs \
              test_mutated_models test_sim% test_sched% test_lanes test_residency
TEST_RUN  := $(TEST_BIN)
# With the address sanitizer the tests end with a short run of each fuzz target, always the same inputs.
ifneq ($(findstring address,$(SAN)),)
TEST_RUN  += $(FUZZ_BIN)
endif
ifneq ($(findstring thread,$(SAN)),)
TEST_RUN  := $(filter-out $(ONE_THREAD:%=$(B)/tests/%),$(TEST_BIN))
endif
BENCH_LIB_OBJ := $(BENCH_LIB_SRC:%.c=$(OBJ)/%.o)
BENCH_BIN := $(BENCH_SRC:bench/%.c=$(B)/bench/%)

# ---- goals ------------------------------------------------------------------------------------
.PHONY: venv
.PHONY: test-onnx
.PHONY: bench-engine test-engine
.PHONY: all help deps test check lint bench demo models clean install format tests benches fuzz gpu-check gpu-bench dist FORCE
.DEFAULT_GOAL := all
# A failed recipe leaves no half-written file behind that the next run would trust.
.DELETE_ON_ERROR:
.SECONDARY:

all: deps
	@$(MAKE) --no-print-directory binaries

.PHONY: binaries
binaries: $(B)/switchyard $(B)/libswitchyard.a $(B)/libswitchyard.so $(B)/make-models $(CUDA_BIN)

deps: $(DNNL_MADE)
	@sh tests/install_deps.sh

# Wheels of a C library: pip puts their headers and libraries into the environment's include and lib.
$(DNNL_PYPI)/made:
	@sh tests/install_deps.sh python3 python3-venv
	$(call say,VENV,$(DNNL_PYPI))
	$(Q)python3 -m venv $(DNNL_PYPI)
	$(Q)$(DNNL_PYPI)/bin/pip install --quiet --disable-pip-version-check onednn-cpu-gomp onednn-devel-cpu-gomp
	@touch $@

$(GEN)/onnx.pb-c.c $(GEN)/onnx.pb-c.h &: /usr/include/onnx/onnx.proto
	$(call say,PROTOC,$@)
	@mkdir -p $(GEN)
	$(Q)protoc-c --proto_path=/usr/include/onnx --c_out=$(GEN) onnx.proto

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: runtime/front/grpc/%.proto $(GRPC_PROTO)
	$(call say,PROTOC,$<)
	@mkdir -p $(GEN)
	$(Q)protoc-c --proto_path=runtime/front/grpc --c_out=$(GEN) $(<F)

# The same files as their compiler sees them, for gRPC's reflection.
$(GEN)/grpc_descriptors.c: $(GRPC_PROTO)
	$(call say,PROTOC,$@)
	@mkdir -p $(GEN)
	$(Q)protoc-c --proto_path=runtime/front/grpc --descriptor_set_out=$(GEN)/grpc_descriptors.pb $(notdir $(GRPC_PROTO))
	$(Q){ echo '#include "runtime/front/grpc/grpc_descriptors.h"'; echo 'const uint8_t sy_grpc_descriptor_set[] = {'; \
	    od -An -v -tu1 $(GEN)/grpc_descriptors.pb | sed 's/  */,/g; s/^,//; s/$$/,/'; \
	    echo '};'; echo 'const size_t sy_grpc_descriptor_set_bytes = sizeof sy_grpc_descriptor_set;'; } > $@

$(OBJ)/gen/%.o: $(GEN)/%.c | $(GEN_HDR)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out $(WARNINGS),$(CFLAGS_)) -c $< -o $@

$(OBJ)/workers/host/%.o: workers/host/%.c | $(GEN_HDR)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_) $(KERNEL_CFLAGS) -MMD -MP -c $< -o $@

# What the live page consists of is part of the program.
$(OBJ)/runtime/front/http/http_openapi.o: runtime/front/http/openapi.json
$(OBJ)/runtime/front/page/page_files.o: $(wildcard runtime/front/page/page.html runtime/front/page/*.css runtime/front/page/*.js runtime/front/page/*.svg)

# The version string changes with each commit; only this file follows it.
$(OBJ)/runtime/cli/version.o: CPPFLAGS += -DSY_COMMIT='"$(COMMIT)"'
$(OBJ)/runtime/cli/version.o: build/commit
build/commit: FORCE
	@mkdir -p build; echo $(COMMIT) | cmp -s - $@ || echo $(COMMIT) > $@

$(OBJ)/%.o: %.c | $(GEN_HDR)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_) -MMD -MP -c $< -o $@

$(OBJ)/%.o: %.cc
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS_) -MMD -MP -c $< -o $@

# In one step, so that two makes at once never see half an archive.
$(B)/libswitchyard.a: $(LIB_OBJ)
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@.$$$$ && ar rcs $@.$$$$ $^ && mv $@.$$$$ $@

# For programs that talk to a server: runtime/switchyard.h and what it stands on. Not the engines: with oneDNN and jemalloc a program
# that does not link these itself would have two allocators.
$(B)/libswitchyard.so: $(CLIENT_OBJ) Makefile
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -Wl,-soname,libswitchyard.so.0 $(if $(LDSAN),,-Wl$(comma)--no-undefined) -o $@ $(CLIENT_OBJ) -lmsgpackc -ljansson -lm -pthread
	@ln -sf libswitchyard.so $@.0

$(B)/switchyard: $(CLI_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $(CLI_OBJ) $(B)/libswitchyard.a $(LIBS) -pthread

# The plugin brings its own copies of what it uses of the library, its symbols and those of CUDA's runtime hidden; errors, log
# and faults are the process's (plugin_entry.c). libcuda is found by the runtime when the plugin is opened.
$(OBJ)/$(CUDA_API:.c=.o): CPPFLAGS += -isystem $(CUDA_HOME)/include
CUDA_LINK := -Wl,--exclude-libs,ALL -Wl,--no-undefined $(CUDART) -pthread -ldl -lrt

# One architecture's code each, and PTX of the last for those to come. Line numbers name files below /proc/self/cwd: what is carried elsewhere
# names no folder of the machine that built it, and a tool that runs in the sources' folder finds them.
NVCC      := $(CUDA_HOME)/bin/nvcc
NVCCFLAGS := -std=c++17 -O2 -lineinfo -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
             -Werror cross-execution-space-call -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra
$(OBJ)/%.o: %.cu | $(GEN_HDR)
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -I/proc/self/cwd $(NVCCFLAGS) $(CPPFLAGS) -MMD -MP -MF $(@:.o=.d) -c /proc/self/cwd/$< -o $@
$(OBJ)/workers/cuda/%.o: CPPFLAGS += -isystem $(CUDA_HOME)/include
ifneq ($(CUDA_ENGINE_OBJ),)
CUDA_PLUGIN_LIBS := -L$(dir $(CUDART)) $(CUDA_ENGINE_LIBS) -lstdc++ -lmsgpackc -lxxhash -lm
CUDA_PLUGIN_RPATH := -Wl,-rpath,$(patsubst %/,%,$(dir $(CUDART)))
endif

# Kernels on the CPU: tests/on_cpu/cuda_on_cpu.cuh stands for CUDA. They change stacks, which the thread sanitizer does not follow.
CPU_KERNEL_FLAGS := $(CXXFLAGS_) -Wno-unknown-pragmas -Itests/on_cpu -fno-exceptions -fno-rtti $(filter -Werror,$(WARNINGS)) \
                    $(if $(findstring thread,$(SAN)),-fno-sanitize=thread)
define compile_for_cpu
$(call say,CPU,$<)
@mkdir -p $(@D)
$(Q)$(CXX) $(CPPFLAGS) $(CPU_KERNEL_FLAGS) -MMD -MP -x c++ -c $< -o $@
endef
# A barrier costs a change of stacks for each thread: where whole models run, blocks have 32 threads.
$(OBJ)/on_cpu/32/%.o: CPU_KERNEL_FLAGS += -DSY_KERNEL_THREADS=32
$(OBJ)/on_cpu/32/%.o: %.cu
	$(compile_for_cpu)
$(OBJ)/on_cpu/256/%.o: %.cu
	$(compile_for_cpu)
ifneq ($(findstring thread,$(SAN)),)
$(OBJ)/tests/on_cpu/cpu_launch.o: CFLAGS_ += -fno-sanitize=thread
endif

# Beside the program it finds the toolkit that it was built with; what is carried to another machine names no folder.
CUDA_PLUGINS := $(B)/libswitchyard-cuda.so $(B)/carried/libswitchyard-cuda.so
$(B)/libswitchyard-cuda.so: CUDA_PLUGIN_LIBS += $(CUDA_PLUGIN_RPATH)
$(CUDA_PLUGINS): $(OBJ)/$(CUDA_API:.c=.o) $(OBJ)/$(CUDA_ENTRY:.c=.o) $(CUDA_PART_OBJ) $(CUDA_ENGINE_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -Wl,-soname,libswitchyard-cuda.so -o $@ $^ $(CUDA_PLUGIN_LIBS) \
	    $(if $(LDSAN),$(filter-out -Wl$(comma)--no-undefined,$(CUDA_LINK)),$(CUDA_LINK))

$(B)/switchyard-cuda-keeper: $(OBJ)/$(CUDA_MAIN:.c=.o) $(OBJ)/$(CUDA_API:.c=.o) $(CUDA_PART_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(CUDA_LINK)

$(B)/make-models: $(EXAMPLE_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

$(B)/switchyard-demo: $(DEMO_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# The example models as ONNX files, made once, and imported into packages once.
MODELS   := resnet152 inception_v3 bert_base
models: binaries
	$(Q)$(B)/make-models --out build/models $(MODELS) mnist_cnn
	$(Q)for m in $(MODELS); do \
	    $(B)/switchyard import build/models/$$m/1/model.onnx --name $$m --update || exit 1; done

demo: deps
	@sh tests/install_deps.sh dataset-fashion-mnist
	@$(MAKE) --no-print-directory models $(B)/switchyard-demo
	$(Q)$(B)/switchyard-demo --binary $(B)/switchyard --models build/models --folder build/demo --device $(DEVICE)

$(B)/tests/%: $(OBJ)/tests/%.o $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread

$(B)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(FUZZ_LIB_OBJ) $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread

$(B)/tests/test_link_probe: $(OBJ)/runtime/cli/link_probe.o
$(B)/tests/test_train_curve: $(OBJ)/runtime/cli/train_curve.o
$(B)/tests/test_size_expr: $(OBJ)/runtime/cli/size_text.o
$(B)/tests/test_random_inputs: $(OBJ)/runtime/cli/random_inputs.o $(OBJ)/runtime/cli/size_text.o
$(B)/tests/test_sample_token: $(OBJ)/runtime/cli/sample_token.o $(OBJ)/runtime/cli/token_text.o
$(B)/tests/test_local_job: $(OBJ)/tests/test_local_job.o $(OBJ)/runtime/cli/local_job.o $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread

# What the CUDA device does is tested against a table of calls that records them, and behind the plugin's seam.
$(CUDA_TEST_BIN): $(CUDA_PART_OBJ)
$(addprefix $(B)/tests/test_cuda_,engine candidates trainer beside_host operators control node_help): $(B)/tests/%: $(OBJ)/tests/%.o $(CUDA_ON_CPU_OBJ) $(CUDA_PART_OBJ) $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread
$(KERNEL_TEST_BIN): $(KERNEL_TEST_OBJ)
$(B)/tests/fake_cuda_%: $(OBJ)/tests/test_%.o $(OBJ)/tests/on_cpu/choose_fake_cuda.o $(CUDA_ON_CPU_OBJ) $(CUDA_PART_OBJ) \
        $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread
$(GPU_BIN): $(B)/tests/test_gpu_%: $(OBJ)/tests/test_%.o $(OBJ)/tests/on_gpu/choose_gpu.o $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread
$(B)/tests/libswitchyard-cuda-fake.so: $(OBJ)/tests/fake_cuda.o $(OBJ)/tests/fake_cuda_streams.o $(OBJ)/$(CUDA_ENTRY:.c=.o) $(CUDA_PART_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -o $@ $^ -pthread -ldl
ifneq ($(and $(WITH_CUDA),$(wildcard $(NVCC))),)
GPU_FAULT := $(B)/tests/libgpu_fault.so
endif
$(B)/tests/libgpu_fault.so: tests/gpu_fault.cu
	$(call say,NVCC,$@)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCCFLAGS) -shared -cudart static -o $@ /proc/self/cwd/$<
$(B)/tests/test_cuda_plugin: | $(B)/tests/libswitchyard-cuda-fake.so $(B)/tests/test_device $(B)/tests/test_cuda_device $(B)/switchyard $(CUDA_BIN)

$(B)/bench/%: $(OBJ)/bench/%.o $(OBJ)/bench/gbench.o $(BENCH_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDSAN) -o $@ $^ $(LIBS) -lbenchmark -pthread

tests: $(TEST_RUN) $(GPU_FAULT)
benches: $(BENCH_BIN)

# ---- testing ----------------------------------------------------------------------------------
# Sanitizer builds: one thread for OpenMP, whose runtime the thread sanitizer cannot see into.
ifneq ($(SAN),)
TEST_ENV := ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
            LSAN_OPTIONS=suppressions=tests/lsan.supp:print_suppressions=0 \
            TSAN_OPTIONS=suppressions=tests/tsan.supp:halt_on_error=1:second_deadlock_stack=1
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
CLIENT_CHECKS := tests/metrics_check.py
ifeq ($(SAN),)
CLIENT_CHECKS += tests/schemathesis_check.py tests/gpu_bench_check.py tests/python_client_check.py tests/page_check.py tests/grpc_client_check.py tests/http_client_check.py tests/decoder_check.py
else ifeq ($(findstring thread,$(SAN)),)
CLIENT_CHECKS += tests/grpc_client_check.py tests/http_client_check.py
endif

# The Python package; its version is the C library's.
PYTHON_SRC := $(wildcard runtime/python/switchyard/*) runtime/python/pyproject.toml runtime/python/README.md runtime/switchyard.h
WHEEL    := build/wheel/switchyard-$(shell sed -n 's/^.define SWITCHYARD_VERSION *"\(.*\)"/\1/p' runtime/switchyard.h)-py3-none-any.whl
.PHONY: wheel
wheel: venv
	@$(MAKE) --no-print-directory $(WHEEL)
$(WHEEL): $(PYTHON_SRC)
	$(call say,WHEEL,$@)
	$(Q)build/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(@D) runtime/python

test: deps
	@sh tests/install_deps.sh libonnx-testdata prometheus chromium
	@$(MAKE) --no-print-directory venv binaries tests
	@$(TEST_ENV) SY_BINARY=$(B)/switchyard bash tests/run.sh $(TEST_RUN) $(CLIENT_CHECKS)
ifeq ($(SAN),)
	@$(MAKE) --no-print-directory models
	@build/venv/bin/python tests/engine_vs_onnxruntime.py $(B) build/models $(MODELS)
	$(Q)$(B)/make-models --out build/compare-models mobilenet_v2 lstm_text
	@build/venv/bin/python tests/engine_vs_onnxruntime.py $(B) build/compare-models mobilenet_v2 lstm_text
endif

# The engine's and the trainer's tests alone; with DNNL= for another oneDNN.
ENGINE_TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_engine*.c) tests/test_recurrence.c tests/test_trainer.c tests/test_train_step.c)
test-engine: deps
	@$(MAKE) --no-print-directory binaries $(ENGINE_TESTS)
	@$(TEST_ENV) SY_BINARY=$(B)/switchyard bash tests/run.sh $(ENGINE_TESTS)

# ONNX's own test data, each case in a process of its own. ONNX_DATA=FOLDER... for other folders than Debian's, ONNX_ARGS='--only NAME'.
ONNX_DATA ?= /usr/share/libonnx-testdata/data
ONNX_SUITE_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(sort $(wildcard tests/onnx_data/*.c)))
$(B)/tests/onnx_suite: $(ONNX_SUITE_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# The same cases of the CUDA engine, its kernels on the CPU; and on a GPU.
$(B)/tests/fake_cuda_onnx_suite: $(ONNX_SUITE_OBJ) $(OBJ)/tests/on_cpu/choose_fake_cuda.o $(CUDA_ON_CPU_OBJ) $(CUDA_PART_OBJ) \
        $(TEST_LIB_OBJ) $(B)/libswitchyard.a
$(B)/tests/gpu_onnx_suite: $(ONNX_SUITE_OBJ) $(OBJ)/tests/on_gpu/choose_gpu.o $(TEST_LIB_OBJ) $(B)/libswitchyard.a
$(B)/tests/fake_cuda_onnx_suite $(B)/tests/gpu_onnx_suite:
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread

test-onnx: deps
	@sh tests/install_deps.sh libonnx-testdata
	@$(MAKE) --no-print-directory $(B)/tests/onnx_suite $(B)/tests/fake_cuda_onnx_suite
	@$(B)/tests/onnx_suite $(ONNX_ARGS) $(ONNX_DATA)
	@echo 'the CUDA engine, its kernels on the CPU; then all that it lacks by the host engine (--allow-host-ops):'
	@$(B)/tests/fake_cuda_onnx_suite $(ONNX_ARGS) $(ONNX_DATA)
	@SY_FAKE_HOST_OPS=1 $(B)/tests/fake_cuda_onnx_suite $(ONNX_ARGS) $(ONNX_DATA)

# Models that PyTorch's exporters write, random weights, against ONNX Runtime. ZOO_ARGS='--only NAME --keep'.
build/venv-zoo/made: tests/zoo_requirements.txt
	@sh tests/install_deps.sh python3 python3-venv
	$(call say,VENV,build/venv-zoo)
	$(Q)[ -x build/venv-zoo/bin/pip ] || python3 -m venv build/venv-zoo
	$(Q)build/venv-zoo/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: test-zoo
test-zoo: deps
	@$(MAKE) --no-print-directory $(B)/tests/onnx_suite build/venv-zoo/made
	@build/venv-zoo/bin/python tests/zoo.py $(ZOO_ARGS) $(B) build/zoo

# FUZZ_SEED=N replays a run; without it each is another.
ifneq ($(FUZZ),1)
fuzz: deps
	@$(MAKE) --no-print-directory fuzz SAN=address,undefined FUZZ=1
else
fuzz: $(FUZZ_BIN)
	$(Q)for f in $(FUZZ_BIN); do \
	    $(TEST_ENV) $$f --seconds $(FUZZ_SECONDS) --seed $${FUZZ_SEED:-$$(date +%s)} || exit 1; done
endif

# On a machine with a GPU, or in what `make dist` made: the same script.
.PHONY: gpu-tests
gpu-tests: $(GPU_BIN) $(addprefix $(B)/tests/,test_device test_cuda_plugin test_gpu_device test_gpu_models test_end_to_end gpu_onnx_suite) $(GPU_FAULT)

gpu-check: deps
	@$(MAKE) --no-print-directory CUDA=1 binaries gpu-tests
	@sh tests/gpu_check.sh $(B) $(B)/tests

# Numbers of a GPU beside PyTorch's, with the python3 that has it.
gpu-bench: deps
	@$(MAKE) --no-print-directory CUDA=1 binaries $(B)/bench/swap
	@python3 bench/gpu_bench.py $(B) bench/results $(GPU_BENCH_ARGS)

dist: deps
	@$(MAKE) --no-print-directory CUDA=1 binaries gpu-tests $(B)/bench/swap $(B)/carried/libswitchyard-cuda.so
	$(Q)sh tests/make_dist.sh $(B) build/dist

lint:
	@sh tests/install_deps.sh clang-format clang-tidy
	@$(MAKE) --no-print-directory $(GEN_HDR)
	@bash tests/lint.sh

check: lint
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test SAN=address,undefined
	@$(MAKE) --no-print-directory test SAN=thread

bench: deps
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
bench-engine: deps
	@sh tests/install_deps.sh python3 python3-venv
	@$(MAKE) --no-print-directory binaries build/venv-bench/made
	$(Q)$(B)/make-models --out build/bench/models $(ENGINE_MODELS)
	$(Q)build/venv-bench/bin/python bench/engine.py $(B) build/bench/models $(BENCH_ARGS)
build/venv-bench/made: bench/requirements.txt
	$(call say,VENV,build/venv-bench)
	$(Q)[ -x build/venv-bench/bin/pip ] || python3 -m venv build/venv-bench
	$(Q)build/venv-bench/bin/pip install --quiet --disable-pip-version-check --upgrade -r $<
	@touch $@

# The example jobs, one after the other: each must reach its target. TRAIN_EXAMPLES='mlp cnn' for some of them.
TRAIN_EXAMPLES ?= mlp cnn vgg resnet18 languages_bag languages_bilstm languages_transformer generate
TRAIN_MODELS := mnist_cnn fashion_mlp fashion_vgg fashion_resnet18 text_bag text_bilstm text_transformer text_lstm
.PHONY: train-examples bench-train
train-examples: deps
	@sh tests/install_deps.sh dataset-fashion-mnist python3
	@$(MAKE) --no-print-directory binaries venv
	$(Q)$(B)/make-models --out build/models $(TRAIN_MODELS)
	$(Q)python3 examples/training/make_texts.py build/data
	$(Q)sh examples/training/run_examples.sh $(B)/switchyard build/train-examples $(TRAIN_EXAMPLES)

# Ours and PyTorch's steps, interleaved: build/bench/train.json. BENCH_TRAIN_ARGS='--only cnn --rounds 3'.
BENCH_TRAIN_MODELS := resnet50 bert_classifier bert_sequence fashion_mlp mnist_cnn text_bilstm
bench-train: deps
	@sh tests/install_deps.sh python3 python3-venv
	@$(MAKE) --no-print-directory binaries build/venv-bench/made $(B)/bench/train_steps
	$(Q)$(B)/make-models --out build/models $(BENCH_TRAIN_MODELS)
	$(Q)build/venv-bench/bin/python bench/train/train.py $(B)/bench/train_steps build/models build/bench/train.json $(BENCH_TRAIN_ARGS)
# Gradients and the loss after 100 steps against PyTorch. TEST_TRAIN_ARGS='bilstm --steps 20'.
.PHONY: test-train
test-train: deps
	@sh tests/install_deps.sh python3 python3-venv
	@$(MAKE) --no-print-directory binaries
	$(Q)$(B)/make-models --out build/models fashion_mlp mnist_cnn text_bilstm text_transformer bert_tiny_sequence
	@if $(MAKE) --no-print-directory build/venv-bench/made; then \
	    build/venv-bench/bin/python bench/train/compare.py $(B)/switchyard build/models $(TEST_TRAIN_ARGS); \
	else echo 'test-train: skipped: PyTorch cannot be installed here, as said above'; fi
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
$(B)/bench/train_steps: $(OBJ)/bench/train/train_steps.o $(OBJ)/runtime/cli/local_job.o $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# The rows of the scheduler's table on real servers of this build: build/bench/sched-ROW.json. BENCH_SCHED_ARGS=--quick for a look;
# `python3 bench/sched/rows.py ROW --help` for one of them.
.PHONY: bench-sched
bench-sched: deps
	@sh tests/install_deps.sh python3
	@$(MAKE) --no-print-directory binaries $(B)/bench/spill
	$(Q)$(B)/bench/spill --benchmark_out=$(B)/bench/sched-spill.json --benchmark_out_format=json
	$(Q)python3 bench/sched/rows.py --build $(B) $(BENCH_SCHED_ARGS) all

# Serving, each row beside its baseline: build/bench/serve.json, and its table in bench/RESULTS.md. BENCH_SERVE_ARGS='--only http --quick'.
.PHONY: bench-serve
bench-serve: deps
	@sh tests/install_deps.sh python3 python3-venv wrk nghttp2-client libnghttp2-dev procps
	@$(MAKE) --no-print-directory binaries $(SERVE_LOADS) $(B)/bench/ready
	$(Q)python3 bench/serve/serve.py --build $(B) $(BENCH_SERVE_ARGS)
	$(Q)python3 bench/results_md.py $(B)/bench/serve.json bench/RESULTS.md

format:
	@sh tests/install_deps.sh clang-format
	$(Q)clang-format -i $$(git ls-files '*.c' '*.h' '*.cc')

# ---- installing -------------------------------------------------------------------------------
install: binaries
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	install -m 755 $(B)/switchyard $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(B)/libswitchyard.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(B)/libswitchyard.so $(DESTDIR)$(PREFIX)/lib/libswitchyard.so.0
	ln -sf libswitchyard.so.0 $(DESTDIR)$(PREFIX)/lib/libswitchyard.so
	install -m 644 runtime/switchyard.h $(DESTDIR)$(PREFIX)/include/
ifneq ($(WITH_CUDA),)
	install -m 755 $(B)/libswitchyard-cuda.so $(B)/switchyard-cuda-keeper $(DESTDIR)$(PREFIX)/lib/
endif

help:
	@echo 'make            build/switchyard, build/libswitchyard.a, build/libswitchyard.so (installs what is missing)'
	@echo 'make wheel      the Python package, build/wheel/switchyard-VERSION-py3-none-any.whl'
	@echo 'make demo       the main job, shown live; DEVICE=emulated for a paced link'
	@echo 'make test       builds and runs all tests; SAN=address,undefined or SAN=thread for sanitizers'
	@echo 'make test-zoo   models as PyTorch exports them, against ONNX Runtime (exports some 200: an hour)'
	@echo 'make test-engine  the tests of the host engine and trainer; DNNL=pypi with oneDNN 3.x'
	@echo 'make test-onnx  the test data of the ONNX project through both engines: passed, refused and why, failed'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS=60 under the address sanitizer; FUZZ_SEED=N'
	@echo 'make lint       style, include edges, clang-format, clang-tidy'
	@echo 'make check      lint, test, and test under both sanitizers'
	@echo 'make bench      runs all benches, JSON in build/bench/results'
	@echo 'make bench-engine  the host engine beside ONNX Runtime and PyTorch; BENCH_ARGS="--runs 5 resnet50"'
	@echo 'make train-examples  the example training jobs to their targets, curves in build/train-examples'
	@echo 'make bench-train     training steps beside PyTorch, build/bench/train.json'
	@echo 'make test-train  gradients and losses against PyTorch: MLP, CNN, BiLSTM, transformer, BERT with its three inputs'
	@echo 'make bench-sched     the scheduler on real servers: shares, deadlines, switches, residency; BENCH_SCHED_ARGS=--quick'
	@echo 'make bench-serve     HTTP, gRPC, shared memory, throughput, a storm, beside baselines: build/bench/serve.json; BENCH_SERVE_ARGS=--quick'
	@echo 'make models     the example models as ONNX files and packages'
	@echo 'make gpu-check  the tests that need a GPU, on cuda:0 (SY_TEST_DEVICE=cuda:N for another; PART="device engine" for some)'
	@echo 'make gpu-bench  the numbers of a GPU beside PyTorch, into bench/results/DEVICE-DATE.json (GPU_BENCH_ARGS="--device cuda:1 --part swaps")'
	@echo 'make dist       build/dist: program, plugin, tests and their shared libraries, to run elsewhere'
	@echo 'make format     clang-format on all sources'
	@echo 'make install    PREFIX=/usr/local DESTDIR='
	@echo 'make clean      removes build/'
	@echo 'switches        CUDA=auto|0|1  CUDA_HOME=  SAN=...  V=1  WERROR=0  CC=  CFLAGS='
	@echo '                DNNL=PATH of another oneDNN than the system'\''s, DNNL=pypi fetches 3.x'

-include $(wildcard $(OBJ)/*/*.d $(OBJ)/*/*/*.d $(OBJ)/*/*/*/*.d $(OBJ)/*/*/*/*/*.d)

clean:
	rm -rf build
