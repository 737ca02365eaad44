#!/usr/bin/env python3
"""The style of the tree as a test: prints `file:line: rule: text` and fails if there is any.

Run as tools/tidy.py [FOLDER]. The tables below are the rules; CONTRIBUTING.md gives the reasons.
"""

import ast
import bisect
import fnmatch
import pathlib
import re
import sys

# Rooms in the order that data flows: a room includes only rooms before it ("text" stands beside).
ROOMS = ["base", "kernels", "nn", "kv", "model", "store", "prompt", "engine", "serving", "api", "http", "app"]
SEES_TEXT = {"text", "model", "prompt", "engine", "serving", "app"}

# Files that must not reach an MLX header, not even through another header.
MLX_FREE = [
    "base/*", "text/*", "api/*", "http/*", "kernels/cpu/*", "kv/*", "store/*",
    "model/checkpoint.*", "model/gguf*", "model/quantization.*", "model/safetensors.*", "model/tensor_view.*",
    "prompt/conversation.h", "serving/model_service.h",
    "engine/admission.cpp", "engine/engine*", "engine/forward.h", "engine/iteration_trace.*",
    "engine/logprobs.*", "engine/loop.*", "engine/options.h", "engine/plan.h", "engine/prefill_policy.*",
    "engine/request.*", "engine/row.*", "engine/sampler.*", "engine/scheduler.*", "engine/stream.*",
    "engine/submission.h", "engine/token_budget.*", "engine/waiting_line.*", "model/token_group.h",
]

# The only places that may catch, and what they turn an exception into.
MAY_CATCH = {
    "src/app/main.cpp": "a message and an exit status",
    "src/app/cli_run.cpp": "a message; the chat goes on without the turn that failed",
    "src/app/command_line.cpp": "the parser's own exceptions become Error",
    "src/base/trace.cpp": "nothing: a trace without memory is lost",
    "src/engine/engine.cpp": "the last event of every row",
    "src/engine/admission.cpp": "a request that cannot become a row",
    "src/engine/loop.cpp": "failed rows; the loop lives",
    "src/http/router.cpp": "an HTTP status",
    "src/store/ssd/file_report.cpp": "a line of the report",
    "src/store/ssd/ssd_store.cpp": "a miss or a lost write, and a counter",
    "src/text/chat_template.cpp": "what the C ABI handed out is freed",
}

COLUMNS = 100  # of C++; scripts may have 20 more
FUNCTION_LINES = 70
FILE_LINES = 600
DRAWER_WORDS = {"util", "utils", "helper", "helpers", "manager", "misc", "common"}
SKIPPED_FOLDERS = {".git", ".deps", "build", "dist", "target", "node_modules", "__pycache__", ".pytest_cache"}
FOREIGN_FOLDERS = {"third_party", "third-party", "thirdparty", "vendor", "external"}
CPP = {".h", ".cpp", ".inl", ".def"}
CODE = CPP | {".py", ".sh", ".rs", ".cmake"}
TEXT = CODE | {".md", ".toml", ".txt", ".json", ".yml"}
# Written so that this file does not break its own rule.
ABSOLUTE = re.compile(r"(?<![\w./~-])/(?:" + "work|root" + r")(?=[/\s\"'),:]|$)")
FOREIGN_MARK = re.compile(r"(SPDX-License-" + r"Identifier|Copyright \(c\)|All rights " + r"reserved)", re.I)
GOOD_TODO = re.compile(r"TODO\([^)\s][^)]+\): \S")


class Tree:
    """The files of a checkout and what was found in them."""

    def __init__(self, root):
        self.root = root
        self.found = []
        self.paths = sorted(p for p in self.walk(root))
        self.texts = {p: p.read_text(errors="replace") for p in self.paths if is_text(p)}

    def walk(self, folder):
        for path in folder.iterdir():
            if path.name in SKIPPED_FOLDERS or path.is_symlink():
                continue
            if path.is_dir():
                yield from self.walk(path)
            else:
                yield path

    def name(self, path):
        return path.relative_to(self.root).as_posix()

    def report(self, path, line, rule, text):
        self.found.append(f"{self.name(path)}:{line}: {rule}: {text}")

    def sources(self, suffixes=CPP):
        return [p for p in self.texts if p.suffix in suffixes and self.name(p).startswith("src/")]


def is_text(path):
    return path.suffix in TEXT or path.name in {"Makefile", "run", ".gitignore"}


def is_data(name):
    """Goldens, corpora and lock files are made by tools, not by hand."""
    return name.startswith(("tests/goldens/", "tests/fuzz/corpus/")) or name.endswith((".lock", "-lock.json"))


def blank(match):
    """Keeps the lines and columns of what is removed."""
    return re.sub(r"[^\n]", " ", match.group())


def strip_cpp(text):
    """Blanks comments, strings and preprocessor lines of C++."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', blank, text, flags=re.S)
    text = re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", blank, text,
                  flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def cpp_functions(text):
    """Yields (name, first line, last line) of each outermost function body."""
    text = strip_cpp(text)
    newlines = [m.start() for m in re.finditer(r"\n", text)]
    open_braces = []  # (what it is, name, first line, where its head began)
    begin = 0  # where the text that leads to the next brace begins
    for match in re.finditer(r"[{};]", text):
        if match.group() == "}" and open_braces:
            what, name, first, head_begin = open_braces.pop()
            if what == "function":
                yield name, first, bisect.bisect_left(newlines, match.start()) + 1
            if what == "value":  # the head goes on: Type::Type() : member_{1} {
                begin = head_begin
                continue
        elif match.group() == "{":
            head = text[begin:match.start()]
            name = re.search(r"([\w~:]+)\s*\(", head)
            inside = any(brace[0] == "function" for brace in open_braces)
            what = "block" if inside else kind_of_brace(head, name)
            first = match.start() - len(head.lstrip())
            open_braces.append((what, name and name.group(1),
                                bisect.bisect_left(newlines, first) + 1, begin))
        begin = match.end()


def kind_of_brace(head, name):
    if re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$", head):
        return "scope"
    if re.search(r"[=,(]\s*$|\)\s*(noexcept\s*)?:[^:].*[\w>]\s*$", head, re.S):
        return "value"
    return "function" if name else "block"


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


def check_sizes(tree):
    for path, text in tree.texts.items():
        name = tree.name(path)
        if path.suffix not in CODE or is_data(name):
            continue
        lines = text.splitlines()
        if len(lines) > FILE_LINES:
            tree.report(path, FILE_LINES, "long file", f"{len(lines)} lines, at most {FILE_LINES}")
        limit = COLUMNS if path.suffix in CPP else COLUMNS + 20
        for number, line in enumerate(lines, 1):
            if len(line) > limit and path.suffix != ".rs":  # a long pattern cannot be split there
                tree.report(path, number, "long line", f"{len(line)} columns, at most {limit}")
        functions = cpp_functions if path.suffix in CPP else python_functions if path.suffix == ".py" else None
        if fnmatch.fnmatch(name, "tools/make_*.py"):
            functions = None  # a generator is one list of cases
        for function, first, last in functions(text) if functions else []:
            if last - first + 1 > FUNCTION_LINES:
                tree.report(path, first, "long function",
                            f"{function} has {last - first + 1} lines, at most {FUNCTION_LINES}")


def includes(text):
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.M):
        yield text.count("\n", 0, match.start()) + 1, match.group(2)


def room_of(name):
    return name.split("/")[0] if "/" in name else ""


def may_include(room, target):
    if target == room or target not in ROOMS + ["text"]:
        return True
    if target == "text":
        return room in SEES_TEXT
    if room == "text":
        return target == "base"
    return room in ROOMS and ROOMS.index(target) < ROOMS.index(room)


def check_rooms(tree):
    source = tree.root / "src"
    for path in tree.sources():
        name = path.relative_to(source).as_posix()
        room = room_of(name)
        if room not in ROOMS + ["text"]:
            tree.report(path, 1, "room", f"{room or name} is no room")
            continue
        for line, target in includes(tree.texts[path]):
            if not may_include(room, room_of(target)):
                tree.report(path, line, "direction", f"{room} must not include {target}")


def check_mlx_free(tree):
    source = tree.root / "src"
    names = {p.relative_to(source).as_posix(): p for p in tree.sources()}
    reaches = {}

    def reach(name, seen):
        """The chain of includes from a file to an MLX header, or None."""
        if name in reaches:
            return reaches[name]
        for _, target in includes(tree.texts[names[name]]):
            if target.startswith("mlx/"):
                reaches[name] = [target]
            elif target in names and target not in seen:
                rest = reach(target, seen | {target})
                reaches[name] = [target] + rest if rest else None
            if reaches.get(name):
                return reaches[name]
        return reaches.setdefault(name, None)

    for name, path in names.items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in MLX_FREE):
            chain = reach(name, {name})
            if chain:
                tree.report(path, 1, "mlx", f"must not reach MLX: {' -> '.join(chain)}")


def check_catch(tree):
    for path in tree.sources():
        if tree.name(path) in MAY_CATCH:
            continue
        for match in re.finditer(r"\bcatch\s*\(", strip_cpp(tree.texts[path])):
            line = tree.texts[path].count("\n", 0, match.start()) + 1
            tree.report(path, line, "catch", "only the places in tools/tidy.py catch")


def check_dead_files(tree):
    included = set()
    for path in tree.texts:
        if path.suffix in CPP:
            for _, target in includes(tree.texts[path]):
                included |= {target, (path.parent / target).resolve()}
    for path in tree.texts:
        name = tree.name(path)
        if path.suffix not in {".h", ".inl", ".def"} or not name.startswith(("src/", "tests/")):
            continue
        if name.removeprefix("src/") not in included and name not in included and path.resolve() not in included:
            tree.report(path, 1, "dead file", "nobody includes it")
    goldens = tree.root / "tests" / "goldens"
    readers = [t for p, t in tree.texts.items() if tree.name(p).startswith(("tests/", "bench/", "tools/"))
               and p.suffix in CODE and not is_data(tree.name(p))]
    for folder in sorted(p for p in goldens.glob("*") if p.is_dir()) if goldens.is_dir() else []:
        # Named by a test, or walked over by one that names a golden file it holds.
        files = [p.name for p in folder.iterdir() if p.name.startswith("golden")]
        walkers = [t for t in readers if "directory_iterator(COHORT_GOLDENS)" in t]
        named = any(re.search(rf"\b{re.escape(folder.name)}\b", text) for text in readers)
        if not named and not any(file in text for file in files for text in walkers):
            tree.report(folder, 1, "dead file", "no test names these goldens")


def check_names(tree):
    for path in tree.paths:
        name = tree.name(path)
        if is_data(name):
            continue
        words = set(re.split(r"[^a-z]+", path.stem.lower()))
        for word in sorted(words & DRAWER_WORDS):
            tree.report(path, 1, "drawer", f"'{word}' says nothing: name the concept")
        if set(path.relative_to(tree.root).parts) & FOREIGN_FOLDERS:
            tree.report(path, 1, "foreign", "third-party source does not belong in the tree")


def check_text(tree):
    for path, text in tree.texts.items():
        name = tree.name(path)
        if is_data(name):
            continue
        if path.suffix == ".h" and name.startswith(("src/", "tests/")) and "#pragma once" not in text:
            tree.report(path, 1, "pragma", "a header starts with #pragma once")
        for number, line in enumerate(text.splitlines(), 1):
            if ABSOLUTE.search(line):
                tree.report(path, number, "path", "a path of one machine")
            if path.suffix in CODE and re.search(r"\b(TODO|FIXME|XXX)\b", line) and not GOOD_TODO.search(line):
                if path.name != "tidy.py":
                    tree.report(path, number, "todo", "write TODO(why it is safe now): what")
            if path.suffix in CPP | {".rs"} and FOREIGN_MARK.search(line):
                tree.report(path, number, "foreign", "a licence mark: third-party source?")


CHECKS = [check_sizes, check_rooms, check_mlx_free, check_catch, check_dead_files, check_names, check_text]


def tidy(root):
    tree = Tree(pathlib.Path(root).resolve())
    for check in CHECKS:
        check(tree)
    return tree.found


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parents[1]
    problems = tidy(sys.argv[1] if len(sys.argv) > 1 else here)
    print("\n".join(problems) or "tidy: clean")
    sys.exit(1 if problems else 0)
