/* The sandbox features of this kernel, tried by entering it as an import does, which asks for more than a worker. */
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/doctor/probe.h"
#include "runtime/doctor/probe_child.h"
#include "runtime/sandbox/sandbox.h"

#define TIMEOUT_NS (3 * SY_NS_PER_S)

static void probe(struct sy_doctor_facts *facts, void *ctx)
{
    const struct sy_sandbox_paths none = {0};
    const struct sy_sandbox_limits no_limits = {0};
    struct sy_sandbox_state state;
    char text[SY_DOCTOR_TEXT_BYTES];
    (void)ctx;
    if (sy_sandbox_enter_import(&none, &no_limits, &state) < 0) {
        sy_doctor_text(facts->sandbox_why, sy_error_text());
        return;
    }
    facts->landlock_abi = state.landlock_abi;
    facts->seccomp_filter = state.filtered;
    sy_sandbox_describe(&state, text, sizeof text);
    if (state.landlock_abi == 0 || !state.filtered)
        sy_doctor_text(facts->sandbox_why, text);
}

void sy_probe_sandbox(struct sy_doctor_facts *facts)
{
    sy_probe_in_child(facts, probe, NULL, TIMEOUT_NS, facts->sandbox_why);
}
