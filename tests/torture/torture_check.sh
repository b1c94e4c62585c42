#!/bin/sh
# The short form of the torture, as a test: twelve seconds of load and faults, its own folder for the report.
exec "$(dirname "$0")/torture.py" --short --out "$(dirname "${SY_BINARY:-build/switchyard}")/torture-short"
