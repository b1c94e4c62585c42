/* The worker state machine: every (state, event) pair against a table written here by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/supervisor/worker_state.h"

/* One line a state: what each event leads to, by name. */
static const struct {
    const char *state, *moves;
} expected[] = {
    {"DEAD", "SPAWN:SPAWNED"},
    {"SPAWNED", "HELLO:CONFIGURING SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"CONFIGURING", "READY:LOADING_MODELS SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"LOADING_MODELS", "MODELS_DONE:IDLE SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"IDLE",
     "LOAD:LOADED JOB_PREPARE:PREPARING_JOB RESUME:IDLE SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"LOADED", "LOAD:LOADED RUN:RUNNING CANCEL:CANCELING RUN_DONE:IDLE SHUTDOWN:STOPPING "
               "KILL:KILLED EXIT:DEAD"},
    {"CANCELING", "RUN_DONE:IDLE SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"RUNNING", "RUN_DONE:IDLE CANCEL:CANCELING SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"PREPARING_JOB",
     "JOB_PREPARED:JOB_READY JOB_ENDED:IDLE SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"JOB_READY", "JOB_START:STARTING_JOB JOB_ENDED:IDLE SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"STARTING_JOB",
     "JOB_STARTED:WAITING_TURN JOB_ENDED:IDLE SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"WAITING_TURN", "JOB_TURN:TRAINING RESUME:WAITING_TURN JOB_ENDED:IDLE SHUTDOWN:STOPPING "
                     "KILL:KILLED EXIT:DEAD"},
    {"TRAINING", "JOB_TURN_OVER:WAITING_TURN PREEMPT:PAUSING JOB_ENDED:IDLE SHUTDOWN:STOPPING "
                 "KILL:KILLED EXIT:DEAD"},
    {"PAUSING", "JOB_TURN_OVER:WAITING_TURN JOB_PAUSED:PAUSED RESUME:TRAINING JOB_ENDED:IDLE "
                "SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"PAUSED", "RESUME:TRAINING JOB_ENDED:IDLE SHUTDOWN:STOPPING KILL:KILLED EXIT:DEAD"},
    {"STOPPING",
     "HELLO:STOPPING READY:STOPPING MODELS_DONE:STOPPING RUN_DONE:STOPPING JOB_PREPARED:STOPPING "
     "JOB_STARTED:STOPPING JOB_PAUSED:STOPPING JOB_TURN_OVER:STOPPING JOB_ENDED:STOPPING "
     "SHUTDOWN:STOPPING KILL:KILLED "
     "EXIT:DEAD"},
    {"KILLED", "EXIT:DEAD"},
};

static const char *moves_of(const char *state)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strcmp(expected[i].state, state))
            return expected[i].moves;
    return NULL;
}

/* The state that `event` leads to by the table above, as text with its length; NULL: none. */
static const char *expected_move(const char *moves, const char *event, size_t *length)
{
    size_t n = strlen(event);
    for (const char *at = moves; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (strncmp(at, event, n) || at[n] != ':')
            continue;
        *length = strcspn(at + n + 1, " ");
        return at + n + 1;
    }
    return NULL;
}

static void test_every_pair(void **state)
{
    (void)state;
    for (int s = 0; s < SY_WORKER_N_STATES; s++) {
        const char *moves = moves_of(sy_worker_state_name((enum sy_worker_state)s));
        assert_non_null(moves);
        for (int e = 0; e < SY_WORKER_N_EVENTS; e++) {
            enum sy_worker_state to = SY_WORKER_N_STATES;
            size_t length = 0;
            const char *want =
                expected_move(moves, sy_worker_event_name((enum sy_worker_event)e), &length);
            int status =
                sy_worker_state_move((enum sy_worker_state)s, (enum sy_worker_event)e, &to);
            assert_int_equal(status, want ? SY_OK : SY_EPROTO);
            if (want) {
                assert_int_equal(strlen(sy_worker_state_name(to)), length);
                assert_memory_equal(sy_worker_state_name(to), want, length);
            } else {
                assert_non_null(
                    strstr(sy_error_text(), sy_worker_state_name((enum sy_worker_state)s)));
            }
        }
    }
}

/* From every state but the last ones, KILL and EXIT lead to DEAD; and from there a worker can become idle again. */
static void test_every_state_can_die_and_come_back(void **state)
{
    (void)state;
    static const enum sy_worker_event path[] = {SY_WORKER_EVENT_KILL,  SY_WORKER_EVENT_EXIT,
                                                SY_WORKER_EVENT_SPAWN, SY_WORKER_EVENT_HELLO,
                                                SY_WORKER_EVENT_READY, SY_WORKER_EVENT_MODELS_DONE};
    for (int s = SY_WORKER_SPAWNED; s < SY_WORKER_KILLED; s++) {
        enum sy_worker_state at = (enum sy_worker_state)s;
        for (size_t i = 0; i < sizeof path / sizeof *path; i++)
            assert_int_equal(sy_worker_state_move(at, path[i], &at), SY_OK);
        assert_int_equal(at, SY_WORKER_IDLE);
    }
}

static void test_names_and_timeouts(void **state)
{
    (void)state;
    assert_string_equal(sy_worker_state_name((enum sy_worker_state)99), "?");
    assert_string_equal(sy_worker_event_name((enum sy_worker_event)99), "?");
    assert_int_equal(sy_worker_state_timeout_ns(SY_WORKER_IDLE), 0);
    assert_true(sy_worker_state_timeout_ns(SY_WORKER_SPAWNED) >= SY_NS_PER_S);
    for (int s = 0; s < SY_WORKER_N_STATES; s++)
        assert_true(strlen(sy_worker_state_waits_for((enum sy_worker_state)s)) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_every_state_can_die_and_come_back),
        cmocka_unit_test(test_names_and_timeouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
