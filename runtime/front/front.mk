# What the front ends are made of beside C: gRPC's messages and descriptors, the live page.

GRPC_PROTO := $(sort $(wildcard runtime/front/grpc/proto/*.proto))
GRPC_GEN  := $(patsubst runtime/front/grpc/proto/%.proto,$(GEN)/%.pb-c.c,$(GRPC_PROTO)) $(GEN)/grpc_descriptors.c

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: runtime/front/grpc/proto/%.proto $(GRPC_PROTO)
	$(call say,PROTOC,$<)
	@mkdir -p $(GEN)
	$(Q)protoc-c --proto_path=runtime/front/grpc/proto --c_out=$(GEN) $(<F)

# The same files as their compiler sees them, for gRPC's reflection.
$(GEN)/grpc_descriptors.c: $(GRPC_PROTO)
	$(call say,PROTOC,$@)
	@mkdir -p $(GEN)
	$(Q)protoc-c --proto_path=runtime/front/grpc/proto --descriptor_set_out=$(GEN)/grpc_descriptors.pb $(notdir $(GRPC_PROTO))
	$(Q){ echo '#include "runtime/front/grpc/grpc_descriptors.h"'; echo 'const uint8_t sy_grpc_descriptor_set[] = {'; \
	    od -An -v -tu1 $(GEN)/grpc_descriptors.pb | sed 's/  */,/g; s/^,//; s/$$/,/'; \
	    echo '};'; echo 'const size_t sy_grpc_descriptor_set_bytes = sizeof sy_grpc_descriptor_set;'; } > $@

# What the live page consists of is part of the program.
$(OBJ)/runtime/front/http/http_openapi.o: runtime/front/http/openapi.json
$(OBJ)/runtime/front/page/page_files.o: $(wildcard runtime/front/page/page.html runtime/front/page/*.css runtime/front/page/*.js runtime/front/page/*.svg)
