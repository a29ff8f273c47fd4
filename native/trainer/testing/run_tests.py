"""Runs the trainer's tests in a private environment, which the first call makes (about 1.2 GB; again when a pin changes).

    python3 native/trainer/testing/run_tests.py [arguments of pytest]
    python3 native/trainer/testing/run_tests.py --python      # only make it, and print its Python
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv

NATIVE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PINS = [os.path.join(NATIVE, "trainer", name) for name in ("requirements.txt", "requirements-test.txt")]
HOME = os.path.join(os.path.dirname(NATIVE), ".mass", "trainer-test-python")


def environment() -> str:
    """Path of its Python."""
    digest = hashlib.sha256(b"".join(open(path, "rb").read() for path in PINS)).hexdigest()
    python = os.path.join(HOME, "bin", "python")
    stamp = os.path.join(HOME, f"ready-{digest[:16]}")
    if not os.path.exists(stamp):  # written last, so an interrupted installation is done again
        print("Installing the trainer's packages for its tests ...", file=sys.stderr, flush=True)
        venv.create(HOME, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PINS[1]]
        subprocess.run(install, check=True, stdout=sys.stderr)
        open(stamp, "w").close()
    return python


def main() -> int:
    python = environment()
    if sys.argv[1:] == ["--python"]:
        print(python)
        return 0
    arguments = sys.argv[1:] or ["-q", "trainer/tests"]
    return subprocess.run([python, "-m", "pytest", "-p", "no:cacheprovider", *arguments], cwd=NATIVE).returncode


if __name__ == "__main__":
    sys.exit(main())
