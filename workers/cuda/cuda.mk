# The CUDA device and engine: libswitchyard-cuda.so, a plugin, and the engine on the CPU for the tests.

# The CUDA device. Only cuda_api.c sees CUDA's headers; the rest is compiled everywhere, for the tests.
CUDA_SRC  := $(sort $(wildcard runtime/device/cuda/*.c))
CUDA_MAIN := runtime/device/cuda/pool_keeper_main.c
CUDA_API  := runtime/device/cuda/cuda_api.c
CUDA_ENTRY := runtime/device/cuda/plugin_entry.c
CUDA_C_SRC := $(sort $(wildcard workers/cuda/*.c workers/cuda/*/*.c))
CUDA_KERNEL_SRC := $(sort $(wildcard workers/cuda/kernels/*.cu))
CUDA_SEES_CUDA := workers/cuda/math_%.c workers/cuda/library/math_%.c
# What else goes into the plugin where there are cuDNN and nvcc: the compute engine. Only math_* and *.cu see CUDA's headers; the
# rest is compiled everywhere, for the tests.
ifneq ($(and $(WITH_CUDA),$(wildcard $(CUDA_HOME)/include/cudnn.h),$(wildcard $(CUDA_HOME)/bin/nvcc)),)
CUDA_ENGINE_SRC := $(CUDA_C_SRC) $(CUDA_KERNEL_SRC)
endif
CUDA_ENGINE_LIBS := -lcublasLt -lcudnn -lgomp
CUDA_ENGINE_PART_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(filter-out $(CUDA_SEES_CUDA),$(CUDA_C_SRC)))
# The engine without a GPU: its own kernels, compiled for the CPU, and loops in the place of CUDA's libraries.
CUDA_ON_CPU_OBJ := $(CUDA_ENGINE_PART_OBJ) $(CUDA_KERNEL_SRC:%.cu=$(OBJ)/on_cpu/32/%.o) $(patsubst %,$(OBJ)/tests/on_cpu/%.o,cpu_launch fake_math fake_side fake_library beside_host)

CUDA_PART_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(filter-out $(CUDA_MAIN) $(CUDA_API) $(CUDA_ENTRY),$(CUDA_SRC)))
CUDA_ENGINE_OBJ := $(addprefix $(OBJ)/,$(addsuffix .o,$(basename $(CUDA_ENGINE_SRC))))
ifneq ($(WITH_CUDA),)
CUDA_BIN  := $(B)/libswitchyard-cuda.so $(B)/switchyard-cuda-keeper
endif

# The plugin brings its own copies of what it uses of the library, its symbols and those of CUDA's runtime hidden; errors, log
# and faults are the process's (plugin_entry.c). libcuda is found by the runtime when the plugin is opened.
$(OBJ)/$(CUDA_API:.c=.o): CPPFLAGS += -isystem $(CUDA_HOME)/include
PLUGIN_SHOWS := runtime/device/cuda/plugin.map
CUDA_LINK := -Wl,--exclude-libs,ALL -Wl,--no-undefined $(CUDART) -pthread -ldl -lrt

# One architecture's code each, and PTX of the last for those to come. Line numbers name files below /proc/self/cwd: what is carried elsewhere
# names no folder of the machine that built it, and a tool that runs in the sources' folder finds them.
NVCC      := $(CUDA_HOME)/bin/nvcc
CUDA_ARCHS ?= 80 90
gencode    = -gencode arch=compute_$(1),code=[sm_$(1)$(if $(filter $(lastword $(CUDA_ARCHS)),$(1)),$(comma)compute_$(1))]
NVCCFLAGS := -std=c++17 -O2 -lineinfo $(foreach arch,$(CUDA_ARCHS),$(call gencode,$(arch))) \
             -Werror cross-execution-space-call -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra
$(OBJ)/%.o: %.cu | $(GEN_HDR)
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -I/proc/self/cwd $(NVCCFLAGS) $(CPPFLAGS) -MMD -MP -MF $(@:.o=.d) -c /proc/self/cwd/$< -o $@
$(OBJ)/workers/cuda/%.o: CPPFLAGS += -isystem $(CUDA_HOME)/include
ifneq ($(CUDA_ENGINE_OBJ),)
CUDA_PLUGIN_LIBS := -L$(dir $(CUDART)) $(CUDA_ENGINE_LIBS) -lstdc++ -lmsgpackc -lxxhash -lpcre2-8 -lm
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
$(CUDA_PLUGINS): $(OBJ)/$(CUDA_API:.c=.o) $(OBJ)/$(CUDA_ENTRY:.c=.o) $(CUDA_PART_OBJ) $(CUDA_ENGINE_OBJ) $(B)/libswitchyard.a $(PLUGIN_SHOWS)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -Wl,-soname,libswitchyard-cuda.so -Wl,--version-script,$(PLUGIN_SHOWS) -o $@ $(filter-out $(PLUGIN_SHOWS),$^) $(CUDA_PLUGIN_LIBS) \
	    $(if $(LDSAN),$(filter-out -Wl$(comma)--no-undefined,$(CUDA_LINK)),$(CUDA_LINK))

$(B)/switchyard-cuda-keeper: $(OBJ)/$(CUDA_MAIN:.c=.o) $(OBJ)/$(CUDA_API:.c=.o) $(CUDA_PART_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(CUDA_LINK)
