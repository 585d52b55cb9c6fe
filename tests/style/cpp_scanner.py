"""A small reader of C++ that finds declarations and function bodies by their braces.

It knows nothing of types or templates: comments, literals and preprocessor lines are blanked, then
braces and semicolons cut the rest into statements. That is enough for files clang-format accepts.
"""

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)
PREPROCESSOR = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.MULTILINE)


@dataclass
class Statement:
    """A declaration or definition directly in a namespace or class."""
    head: str         # text before '{' or ';', white space squeezed
    line: int         # line of its first character
    end_line: int     # line of its ';' or closing '}'
    kind: str         # "namespace", "class", "enum", "function", "value" or "declaration"
    in_class: bool


def blank(match):
    """Spaces of the same shape, so that positions and line numbers stay."""
    return re.sub(r'[^\n]', ' ', match.group())


def blank_literal(match):
    """A comment becomes blank; a literal keeps its quotes, so that a head still shows one."""
    text = match.group()
    if text.startswith('/'):
        return blank(match)
    return text[0] + re.sub(r'[^\n]', ' ', text[1:-1]) + text[-1]


def strip(text):
    """The code without comments, literals and preprocessor lines, every character in its place."""
    return PREPROCESSOR.sub(blank, TOKEN.sub(blank_literal, text))


def without_nested(text, opening, closing):
    """Text outside the brackets `opening` and `closing`, which stay as an empty pair."""
    out, depth = [], 0
    for letter in text:
        if letter == closing and depth > 0:
            depth -= 1
        if depth == 0:
            out.append(letter)
        if letter == opening:
            depth += 1
    return ''.join(out)


def without_templates(head):
    """The head without its leading template<...> parts."""
    while re.match(r'\s*template\s*<', head):
        start = head.index('<')
        depth = parentheses = 0
        for at in range(start, len(head)):
            parentheses += {'(': 1, ')': -1}.get(head[at], 0)
            depth += {'<': 1, '>': -1}.get(head[at], 0) if parentheses == 0 else 0
            if depth == 0:
                break
        head = head[at + 1:]
    return head


def classify(head):
    """What the brace after `head` opens."""
    plain = without_templates(head).strip()
    plain = re.sub(r'alignas\s*\([^)]*\)|\[\[.*?\]\]', ' ', plain)
    if re.match(r'(inline\s+)?namespace\b|extern\s*"', plain):
        return 'namespace'
    outside = without_nested(plain, '(', ')')
    if re.match(r'(typedef\s+)?enum\b', plain):
        return 'enum'
    if re.match(r'(typedef\s+)?(class|struct|union)\b', plain) and '(' not in outside:
        return 'class'
    if re.search(r'(?<!operator)(?<![=!<>])=(?!=)', re.sub(r'operator\s*[^\s\w(]+', '', outside)):
        return 'function' if re.search(r'\]\s*(\(\)|$)', outside) else 'value'
    return 'function' if '(' in outside else 'value'


def initializes_member(head):
    """Whether the brace after `head` is a member's value: "Box() : left_{1}, right_"."""
    if classify(head) != 'function':
        return False
    outside = without_nested(without_templates(head), '(', ')')
    return bool(re.search(r'\)[^()]*(?<!:):(?!:)', outside) and re.search(r'[\w>]$', head))


class Scanner:
    """Cuts stripped text into statements; bodies of functions are skipped as a whole."""

    def __init__(self, text):
        self.code = strip(text)
        self.statements = []
        self.line = 1

    def scan(self):
        scopes = []          # kinds of the open braces
        head, head_line = [], None
        parentheses = 0
        for letter in self.code:
            if letter == '\n':
                self.line += 1
            parentheses += {'(': 1, ')': -1}.get(letter, 0)
            inside_body = bool(scopes) and scopes[-1][0] not in ('namespace', 'class')
            if letter == '{':
                text = ' '.join(''.join(head).split())
                part_of_head = inside_body or parentheses > 0 or initializes_member(text)
                kind = 'body' if part_of_head else classify(text)
                scopes.append((kind, text, head_line or self.line, parentheses))
                if not part_of_head:
                    head, head_line = [], None
                elif not inside_body:
                    head.append('()')  # stands for the braces, so that the head does not end here
                parentheses = 0
            elif letter == '}' and scopes:
                kind, text, line, parentheses = scopes.pop()
                if kind != 'body':
                    self.add(kind, text, line, scopes)
                    head, head_line = [], None
            elif inside_body:
                continue
            elif letter == ';' and parentheses == 0:
                text = ' '.join(''.join(head).split())
                if text:
                    self.add('declaration', text, head_line, scopes)
                head, head_line = [], None
            else:
                head, head_line = self.extend(head, head_line, letter, scopes)
        return self.statements

    def extend(self, head, head_line, letter, scopes):
        if not letter.isspace() and head_line is None:
            head_line = self.line
        head.append(letter)
        # "public:" ends no statement by a semicolon; what follows is a statement of its own.
        if letter == ':' and re.fullmatch(r'\s*(public|private|protected)\s*:', ''.join(head)):
            return [], None
        return head, head_line

    def add(self, kind, text, line, scopes):
        in_class = any(scope[0] == 'class' for scope in scopes)
        self.statements.append(Statement(text, line, self.line, kind, in_class))


def scan(text):
    """All statements directly in namespaces and classes, in the order in which they end."""
    return Scanner(text).scan()
