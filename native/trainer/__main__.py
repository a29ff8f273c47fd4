"""Trains a LoRA adapter on a window set, or serves the engine.

    PYTHONPATH=native python -m trainer serve                     JSON lines on standard input and output
    PYTHONPATH=native python -m trainer plan  --order order.json  memory, operations and hours, before anything starts
    PYTHONPATH=native python -m trainer train --order order.json  the same as the engine's `start`, by hand
    PYTHONPATH=native python -m trainer run score --order o.json  any other order of the protocol

An order file holds the `order` object of main/common/protocol/trainer.ts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

# Large tensors come from transparent huge pages: page faults cost as much as small kernels otherwise. Read by glibc at
# process start only, hence the second exec; other systems ignore it.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="trainer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("serve", help="JSON lines on standard input and output")
    for name in ("plan", "train"):
        actions.add_parser(name, help=f"{name} by hand").add_argument("--order", required=True, metavar="FILE")
    other = actions.add_parser("run", help="one order of the protocol by hand")
    other.add_argument("kind", choices=["score", "merge", "convert", "convert-model"])
    other.add_argument("--order", required=True, metavar="FILE")
    arguments = parser.parse_args()

    restart_with_allocator()
    from .serve import run_order, serve, take_standard_output

    if arguments.action == "serve":
        return serve()
    from .control import Control
    from .errors import TrainerError
    from .protocol import ORDERS, Command, parse

    kind = {"train": "start", "plan": "plan"}.get(arguments.action) or arguments.kind
    try:
        with open(arguments.order, encoding="utf-8") as file:
            order = parse(ORDERS[kind], json.load(file), "order")
    except (OSError, ValueError, TrainerError) as error:
        print(f"{arguments.order}: {error}", file=sys.stderr)
        return 2
    return 0 if run_order(Command(kind, order), take_standard_output(), Control()) else 1


def restart_with_allocator() -> None:
    if sys.platform != "linux" or os.environ.get("TRAINER_ALLOCATOR"):
        return
    environment = {**ALLOCATOR, **os.environ, "TRAINER_ALLOCATOR": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "trainer", *sys.argv[1:]], environment)


if __name__ == "__main__":
    sys.exit(main())
