#!/usr/bin/env python3
"""Reads each source of the product by itself, as presets without STAGECOACH_UNITY compile it, so
that one which lacks an include is found. Generates no code.

usage: compiles_alone.py BUILD_FOLDER [JOBS]   (BUILD_FOLDER: configured without STAGECOACH_UNITY)
"""

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Others are compiled by themselves in every build.
UNITED = re.compile(r'^(core|hal|memory|scheduler|model|train|tools)/')


def commands(build_folder):
    root = Path(__file__).resolve().parents[2]
    for entry in json.loads((build_folder / 'compile_commands.json').read_text(encoding='utf-8')):
        path = Path(entry['directory'], entry['file']).resolve()
        if not path.is_relative_to(root) or not UNITED.match(str(path.relative_to(root))):
            continue
        words = shlex.split(entry['command'])
        words[words.index('-o'):words.index('-o') + 2] = []
        words[words.index('-c')] = '-fsyntax-only'
        yield path.relative_to(root), words, entry['directory']


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    work = list(commands(Path(sys.argv[1])))
    if not work:
        sys.exit(f'compiles_alone: {sys.argv[1]} compiles nothing of the product; configure it')

    def read(item):
        _, words, folder = item
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)

    failed = 0
    with ThreadPoolExecutor(int(sys.argv[2]) if len(sys.argv) == 3 else os.cpu_count()) as pool:
        for (path, _, _), result in zip(work, pool.map(read, work)):
            if result.returncode != 0:
                failed += 1
                print(f'{path} does not compile by itself:\n{result.stderr}')
    print(f'{len(work)} sources read by themselves, {failed} faulty')
    sys.exit(failed != 0)


if __name__ == '__main__':
    main()
