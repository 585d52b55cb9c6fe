"""Proves that every style rule fires on a bad sample, at the right line, and on nothing else."""

import json
import tempfile
from pathlib import Path

import cpp_scanner
import style_test

CLEAN = {
    '.clang-format': 'BasedOnStyle: Google\nColumnLimit: 100\n',
    'core/good.h': '''#pragma once

namespace stagecoach {

/// A number.
struct Number {
  int value = 0;
  explicit Number(int initial) : value{initial} {}
  bool operator==(const Number&) const = default;
};

/// Adds and subtracts.
Number add(Number left, Number right);
Number subtract(Number left, Number right);

inline constexpr int kLimit = 3;
using Pair = Number[2];
class Forward;

/// Which way.
enum class Way { kUp, kDown };

}  // namespace stagecoach
''',
    'core/good.cpp': '#include "core/good.h"\n\n#include <spdlog/spdlog.h>\n',
    'core/task_pool_tbb.cpp': '',
    'core/task_pool_threads.cpp': '',
    'backends/cpu/device.cpp': '#include <cuda.h>\n\n#include "core/good.h"\n#include "hal/x.h"\n',
    'tests/core/good_test.cpp': '#include <spdlog/spdlog.h>\n\n#include "testing/fake.h"\n',
}
COMPILED = ['core/good.cpp', 'core/task_pool_tbb.cpp', 'backends/cpu/device.cpp']


def long_function(lines):
    body = '  int x = 0;\n' * (lines - 2)
    return ('namespace {\n\nstruct Big {\n  Big() : a{1}, b(2) {}\n  int a, b;\n};\n\n'
            'int long_one(int y = 3) {\n' + body + '}\n\n}  // namespace\n')


# (rule, file, content, line)
BAD = [
    ('include-direction', 'core/bad.cpp', '#include "hal/device.h"\n', 1),
    ('include-direction', 'hal/bad.cpp', '#include "core/good.h"\n#include "backends/b.h"\n', 2),
    ('include-direction', 'memory/bad.h', '#include "testing/fake.h"\n', 1),
    ('include-direction', 'tools/bad.cpp', '#include "tests/core/x.h"\n', 1),
    ('include-direction', 'backends/cpu/bad.cpp', '#include "memory/arena.h"\n', 1),
    ('include-direction', 'train/bad.cpp', '#include "tools/x.h"\n', 1),
    ('heavy-header', 'core/bad.h', '#include <nlohmann/json_fwd.hpp>\n', 1),
    ('heavy-header', 'train/bad.cpp', '#include <spdlog/fmt/fmt.h>\n', 1),
    ('compiled', 'model/forgotten.cpp', '', 1),
    ('clang-format', 'hal/bad.cpp', 'int  x;\n', 1),
    ('line-length', 'tests/style/bad.py', 'x = 1\n' + 'y' * 101 + '\n', 2),
    ('header-length', 'hal/bad.h', '#pragma once\n' + '// x\n' * 200, 201),
    ('function-length', 'hal/bad.cpp', long_function(71), 8),
    ('doc-comment', 'hal/bad.h', '#pragma once\n\nint add(int left, int right);\n', 3),
    ('doc-comment', 'hal/bad.h', 'namespace a {\n\n// plain\nstruct X {};\n}  // namespace a\n', 4),
    ('doc-comment', 'hal/bad.h', '/// X.\nstruct X {};\n\nenum class Y { kA };\n', 4),
    ('doc-comment', 'hal/bad.h', 'template <typename T>\nT get(T x = {}) {\n  return x;\n}\n', 1),
    ('doc-comment', 'hal/bad.h', 'std::string text_of(int value) {\n  return {};\n}\n', 1),
    ('vendor-header', 'hal/bad.cpp', '#include <cuda_runtime.h>\n', 1),
    ('vendor-header', 'testing/bad.cpp', '#include "hip/hip_runtime.h"\n', 1),
    ('machine-path', 'docs/bad.md', 'text\nsee /home' + '/someone/x\n', 2),
    ('machine-path', 'run-demo', 'cd /work' + '/main\n', 1),
]


def findings_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding='utf-8')
        built = COMPILED + [name for name in files
                            if name.endswith('bad.cpp') and not name.startswith('tests')]
        entries = [{'directory': str(root), 'file': name} for name in built]
        (root / 'build').mkdir()
        (root / 'build/compile_commands.json').write_text(json.dumps(entries), encoding='utf-8')
        return style_test.check(style_test.Tree(root, root / 'build'))


SCANNED = '''
template <typename T, typename = std::enable_if_t<(sizeof(T) > 1)>>
class [[nodiscard]] Box : public Base<T> {
 public:
  Box() : a_{1}, b_{2} {
    call({1, 2});
  }
  bool operator==(const Box& other) const { return a_ == other.a_; }
  void take(Options options = {}, int n = '{') const;
};
constexpr Info kTable[] = {
    {"{", R"x(})x"},
};
const auto kMake = [](int x) {
  return x;
};
auto Box::find(int key) -> std::optional<int> {
  if (key) {
    return {};
  }
  return 1'000;
}
TEST(Suite, Name) {
  struct Local {};
}
'''
EXPECTED_KINDS = {'class': 1, 'value': 1, 'function': 5, 'declaration': 1}
EXPECTED_LENGTHS = {'TEST(Suite, Name)': 3, 'const auto kMake = [](int x)': 3,
                    'Box() : a_(), b_()': 3,
                    'auto Box::find(int key) -> std::optional<int>': 6}


def scanner_failures():
    statements = cpp_scanner.scan(SCANNED)
    kinds = {}
    for statement in statements:
        kinds[statement.kind] = kinds.get(statement.kind, 0) + 1
    lengths = {statement.head: statement.end_line - statement.line + 1 for statement in statements}
    failures = [f'scanner: {head}: {lengths.get(head)} lines, expected {length}'
                for head, length in EXPECTED_LENGTHS.items() if lengths.get(head) != length]
    if kinds != EXPECTED_KINDS:
        failures.append(f'scanner: {kinds}: {statements}')
    return failures


def run():
    failures = [f'clean sample: {finding}' for finding in findings_of(CLEAN)]
    failures += scanner_failures()
    for rule, name, text, line in BAD:
        findings = findings_of({**CLEAN, name: text})
        if not any((str(path), number, found) == (name, line, rule)
                   for path, number, found, _ in findings):
            failures.append(f'{rule} did not fire at {name}:{line}: {findings}')
    missing = set(style_test.RULES) - {sample[0] for sample in BAD}
    failures += [f'no sample for rule {rule}' for rule in sorted(missing)]
    print('\n'.join(failures) or f'{len(BAD)} samples: every rule fires')
    return 1 if failures else 0
