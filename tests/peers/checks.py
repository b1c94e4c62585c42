"""What the checks have in common: a line for each test, as the C tests print it, and waiting for what a server does by itself."""
import sys
import time
import traceback


class Skipped(Exception):
    """Raised by a test that cannot run here; its words say why."""


def tests_of(names):
    """The tests among a check's globals: what begins with test_, in the order of their definition."""
    return [test for name, test in names.items() if name.startswith("test_")]


def run_tests(tests, *arguments, after=None):
    """Calls each test with `arguments`, or those alone that the command line names; then after(passed), if given. How many failed."""
    failed = 0
    for test in tests:
        name, begun, passed = test.__name__, time.monotonic(), True
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        print(f"[ RUN      ] {name}", flush=True)
        try:
            test(*arguments)
            print(f"[       OK ] {name} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Skipped as why:
            print(f"skipped: {why}\n[  SKIPPED ] {name}", flush=True)
        except Exception:  # noqa: BLE001: the next test runs all the same
            print(f"{traceback.format_exc()[-8000:]}[  FAILED  ] {name}", flush=True)
            passed, failed = False, failed + 1
        if after:
            after(passed)
    return failed


def wait_for(what, why, seconds=120):
    """The value of what() as soon as it is true. The limit is that of a hang, on whatever machine."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {why}")
