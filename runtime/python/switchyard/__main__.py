"""python -m switchyard status|models|jobs [--address ADDRESS]: what the server says, as JSON."""

from __future__ import annotations

import argparse
import json
import sys

from . import Client, SwitchyardError, __version__


def main() -> int:
    parser = argparse.ArgumentParser(prog="switchyard", description="What a running Switchyard server says of itself, as JSON.")
    parser.add_argument("what", choices=("status", "models", "jobs"))
    parser.add_argument("--address", help="unix:/path, /path or tcp:host:port; default: where 'switchyard serve' listens")
    parser.add_argument("--token-file", help="a file with the token; default: $SWITCHYARD_TOKEN_FILE")
    parser.add_argument("--tls-ca", help="TLS: the server's certificates go back to these (PEM), or 'system'; default: $SWITCHYARD_TLS_CA")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds")
    parser.add_argument("--version", action="version", version=__version__)
    arguments = parser.parse_args()
    try:
        with Client(arguments.address, arguments.timeout, token_file=arguments.token_file, tls_ca=arguments.tls_ca) as client:
            if arguments.what == "models":
                answer: object = [dict(model.status) for model in client.models()]
            else:
                answer = client.jobs.list() if arguments.what == "jobs" else client.status()
    except SwitchyardError as error:
        print(f"switchyard: {error}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
