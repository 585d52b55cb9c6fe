#!/usr/bin/env python3
"""Checks rules of this source tree that no compiler checks; prints FILE:LINE: RULE: MESSAGE.

usage: style_test.py BUILD_FOLDER   checks the tree (BUILD_FOLDER holds compile_commands.json)
       style_test.py --self-test    proves on small samples that every rule fires
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cpp_scanner

MAX_LINE_LENGTH = 100
MAX_HEADER_LINES = 200
MAX_FUNCTION_LINES = 70
CHAIN = ['core', 'hal', 'memory', 'scheduler', 'model', 'train']
PRODUCT_FOLDERS = CHAIN + ['backends', 'tools']
LIBRARY_FOLDERS = PRODUCT_FOLDERS + ['testing']
CODE_FOLDERS = LIBRARY_FOLDERS + ['tests', 'bench', 'examples']
TEXT_SUFFIXES = {'.h', '.cpp', '.cu', '.py', '.sh', '.cmake', '.txt', '.md', '.toml', '.json',
                 '.html', '.css', '.js', '.in', ''}
IGNORED_FOLDERS = re.compile(r'^(build.*|\..*|demo-out|install|__pycache__|_deps)$')
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]')
HEAVY_FAMILIES = {
    'spdlog': re.compile(r'^spdlog/'),
    'CLI11': re.compile(r'^CLI/'),
    'Asio': re.compile(r'^boost/asio'),
    'Beast': re.compile(r'^boost/beast'),
    'nlohmann json': re.compile(r'^nlohmann/'),
    'toml++': re.compile(r'^toml\+\+/'),
}
VENDOR_HEADER = re.compile(
    r'^(cuda|cublas|cudnn|curand|cufft|cusparse|cusolver|nccl|nvml|nvtx|nvToolsExt|hip/|hipblas'
    r'|rocblas|rccl|miopen|amd_smi|rocm|level_zero|sycl)')
MACHINE_PATH = re.compile(r'(?<![\w.$}-])/(work|root|home)' + '/')


class Tree:
    """The files below `root`, read once."""

    def __init__(self, root, build_folder=None):
        self.root = Path(root).resolve()
        self.build_folder = Path(build_folder).resolve() if build_folder else None
        self.texts = {}
        self.collect(self.root)

    def collect(self, folder):
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                continue
            if path.is_dir():
                if not IGNORED_FOLDERS.match(path.name) or path.name == '.ci':
                    self.collect(path)
            elif path.suffix in TEXT_SUFFIXES:
                try:
                    self.texts[path.relative_to(self.root)] = path.read_text(encoding='utf-8')
                except UnicodeDecodeError:
                    pass  # data, not text

    def files(self, folders, suffixes):
        for path, text in self.texts.items():
            if len(path.parts) > 1 and path.parts[0] in folders and path.suffix in suffixes:
                yield path, text

    def includes(self, folders, suffixes=('.h', '.cpp', '.cu')):
        for path, text in self.files(folders, suffixes):
            for number, line in enumerate(text.splitlines(), 1):
                if match := INCLUDE.match(line):
                    yield path, number, match.group(1)


def allowed_folders(path):
    folder = path.parts[0]
    if folder in CHAIN:
        return CHAIN[:CHAIN.index(folder) + 1]
    if folder == 'backends':
        return ['core', 'hal', 'backends']
    if folder == 'testing':
        return ['core', 'hal', 'testing', 'backends/gpu']
    if folder == 'tools':
        return LIBRARY_FOLDERS  # --check-races
    if folder == 'examples':
        return PRODUCT_FOLDERS
    return CODE_FOLDERS


def include_direction(tree):
    """core <- hal <- memory <- scheduler <- model <- train <- tools; backends see core and hal."""
    for path, number, target in tree.includes(CODE_FOLDERS):
        if '/' not in target or target.split('/')[0] not in CODE_FOLDERS:
            continue
        allowed = allowed_folders(path)
        if not any(target.startswith(folder + '/') for folder in allowed):
            yield path, number, f'{path.parts[0]}/ may include {", ".join(allowed)}; not {target}'


def heavy_header(tree):
    """Each slow library header is included by one .cpp of the product only."""
    users = {}
    for path, number, target in tree.includes(LIBRARY_FOLDERS):
        for family, pattern in HEAVY_FAMILIES.items():
            if not pattern.match(target):
                continue
            first = users.setdefault(family, path)
            if path.suffix != '.cpp':
                yield path, number, f'{family} must stay inside one .cpp, not in a header'
            elif first != path:
                yield path, number, f'{family} is already included by {first}'


def is_optional(tree, path, built):
    """Built only with a GPU backend's option, or where a vendor's header is found."""
    if path.name.endswith('_header_check.cpp') or path.name == 'hip_over_cuda.cpp':
        return True
    folder = tree.root / path.parent
    vendors = [Path('backends/cuda'), Path('backends/hip')]
    return path.parent in vendors and not any(other.parent == folder for other in built)


def compiled(tree):
    """Every .cpp of the product is built."""
    if tree.build_folder is None:
        return
    database = tree.build_folder / 'compile_commands.json'
    if not database.exists():
        yield Path('CMakeLists.txt'), 1, f'{database.name} is missing in the build folder'
        return
    built = set()
    for entry in json.loads(database.read_text(encoding='utf-8')):
        built.add((Path(entry['directory']) / entry['file']).resolve())
    pools = [Path('core/task_pool_tbb.cpp'), Path('core/task_pool_threads.cpp')]
    for path, _ in tree.files(LIBRARY_FOLDERS, {'.cpp'}):
        unselected = path in pools and any(
            tree.root / pool in built for pool in pools if pool != path)
        unselected = unselected or is_optional(tree, path, built)
        if tree.root / path not in built and not unselected:
            yield path, 1, 'is not compiled: no entry in compile_commands.json'


def clang_format(tree):
    """Everything is formatted by .clang-format."""
    paths = [str(path) for path, _ in tree.files(CODE_FOLDERS, {'.h', '.cpp', '.cu'})]
    if not paths:
        return
    if shutil.which('clang-format') is None:
        yield Path('.clang-format'), 1, 'clang-format is missing: install package clang-format'
        return
    result = subprocess.run(['clang-format', '--dry-run', '-Werror', *paths], cwd=tree.root,
                            capture_output=True, text=True, check=False)
    places = re.findall(r'^([^\s:]+):(\d+):\d+: error: (.*)$', result.stderr, re.MULTILINE)
    seen = set()
    for path, number, message in places:
        if path not in seen:  # one place a file is enough to know
            seen.add(path)
            yield Path(path), int(number), message
    if result.returncode != 0 and not places:
        yield Path('.clang-format'), 1, result.stderr.strip()


def line_length(tree):
    """Lines are short enough to stand side by side."""
    for path, text in tree.files(CODE_FOLDERS, {'.h', '.cpp', '.cu', '.py', '.sh'}):
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > MAX_LINE_LENGTH and 'http' not in line:
                yield path, number, f'{len(line)} characters; at most {MAX_LINE_LENGTH}'


def header_length(tree):
    """Headers are contracts: short enough to read."""
    for path, text in tree.files(CODE_FOLDERS, {'.h'}):
        count = len(text.splitlines())
        if count > MAX_HEADER_LINES:
            yield path, count, f'{count} lines; at most {MAX_HEADER_LINES}'


def function_length(tree):
    """Functions fit on a screen."""
    for path, text in tree.files(CODE_FOLDERS, {'.h', '.cpp', '.cu'}):
        for statement in cpp_scanner.scan(text):
            count = statement.end_line - statement.line + 1
            if statement.kind == 'function' and count > MAX_FUNCTION_LINES:
                yield path, statement.line, (f'function of {count} lines; at most '
                                             f'{MAX_FUNCTION_LINES}: {statement.head[:60]}')


def needs_comment(statement):
    """Whether the statement declares a type or free function in a namespace."""
    if statement.in_class or statement.kind in ('namespace', 'value'):
        return False
    if re.match(r'template\s*<\s*>', statement.head):
        return False  # a specialisation is described where its template is
    head = cpp_scanner.without_templates(statement.head).strip()
    if re.search(r'\w(<.*>)?\s*::\s*~?\w+\s*\(', statement.head):
        return False  # a member's body is described where the class declares it
    if statement.kind in ('class', 'enum', 'function'):
        return True
    if re.match(r'(using|friend|static_assert|extern|namespace|typedef)\b', head):
        return False
    outside = cpp_scanner.without_nested(head, '(', ')')
    assigned = re.sub(r'operator\s*[^\s\w(]+', '', outside)
    # Without '(' it is a constant or a forward declaration; "= value" is a constant too.
    return '(' in outside and '=' not in re.sub(r'=\s*(default|delete)$', '', assigned)


def doc_comment(tree):
    """Types and functions in headers say what they are for; a block of lines shares a comment."""
    for path, text in tree.files(LIBRARY_FOLDERS, {'.h'}):
        lines = text.splitlines()
        documented_end = -1
        for statement in sorted(cpp_scanner.scan(text), key=lambda found: found.line):
            if statement.in_class or statement.kind == 'namespace':
                continue
            before = lines[statement.line - 2].strip() if statement.line >= 2 else ''
            in_block = statement.line == documented_end + 1
            if before.startswith('///') or in_block:
                documented_end = statement.end_line
            elif needs_comment(statement):
                yield path, statement.line, f'no /// comment before: {statement.head[:60]}'


def vendor_header(tree):
    """GPU vendors' headers stay inside backends/."""
    for path, number, target in tree.includes(CODE_FOLDERS):
        if path.parts[0] != 'backends' and VENDOR_HEADER.match(target):
            yield path, number, f'{target} belongs into backends/ only'


def machine_path(tree):
    """Nothing refers to one machine's folders."""
    for path, text in tree.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if match := MACHINE_PATH.search(line):
                yield path, number, f'path of one machine: {match.group()}'


RULES = {
    'include-direction': include_direction,
    'heavy-header': heavy_header,
    'compiled': compiled,
    'clang-format': clang_format,
    'line-length': line_length,
    'header-length': header_length,
    'function-length': function_length,
    'doc-comment': doc_comment,
    'vendor-header': vendor_header,
    'machine-path': machine_path,
}


def check(tree):
    """All findings as (path, line, rule, message)."""
    return [(path, number, rule, message)
            for rule, find in RULES.items() for path, number, message in find(tree)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('build_folder', nargs='?')
    parser.add_argument('--self-test', action='store_true')
    arguments = parser.parse_args()
    if arguments.self_test:
        import style_self_test
        return style_self_test.run()
    if arguments.build_folder is None:
        parser.error('name the build folder, or --self-test')
    tree = Tree(Path(__file__).resolve().parents[2], arguments.build_folder)
    findings = check(tree)
    for path, number, rule, message in findings:
        print(f'{path}:{number}: {rule}: {message}')
    print(f'{len(findings)} findings by {len(RULES)} rules in {len(tree.texts)} files')
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main())
