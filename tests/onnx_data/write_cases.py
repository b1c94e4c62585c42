#!/usr/bin/env python3
"""The node cases of the `onnx` package that is installed, as folders that onnx_suite reads: since 1.18 its wheels have the code that makes them, not the files.

usage: write_cases.py FOLDER        then: make test-onnx ONNX_DATA=FOLDER
"""
import sys
from types import SimpleNamespace

from onnx.backend.test import cmd_tools
from onnx.backend.test.case import node


def main():
    left_out = []
    for case in node.collect_testcases(None):
        cmd_tools.model_test = SimpleNamespace(collect_testcases=lambda one=case: [one])
        try:
            cmd_tools.generate_data(SimpleNamespace(output=sys.argv[1]))
        except Exception as why:  # a type that the package itself cannot write
            left_out.append(f"{case.name}: {why}"[:150])
    print("\n".join(left_out + [f"{len(left_out)} cases left out"]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
