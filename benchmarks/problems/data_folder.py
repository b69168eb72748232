"""Where the data of the benchmarks lies: the folder that the environment variable CONSILIENCE_DATA names.

The data itself is not part of the project. What cannot be found is replaced by a stand-in, and said so.
"""

import os
import sys
from pathlib import Path

VARIABLE = "CONSILIENCE_DATA"


def find_data(*parts: str) -> Path | None:
    """The path of a file or folder of the data, or None, with a line that says what is missing."""
    folder = os.environ.get(VARIABLE)
    path = None if folder is None else Path(folder, *parts)
    if path is not None and path.exists():
        return path
    where = f"{VARIABLE} is not set" if folder is None else f"not in the folder that {VARIABLE} names"
    print(f"missing: {'/'.join(parts)} ({where}); a stand-in is generated", file=sys.stderr)
    return None
