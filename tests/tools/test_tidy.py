"""tools/tidy.py must find each kind of violation, and nothing in a clean tree."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import tidy  # noqa: E402

CLEAN = {
    "src/base/error.h": "#pragma once\n",
    "src/nn/block.h": '#pragma once\n#include <mlx/array.h>\n#include "base/error.h"\n',
    "src/engine/plan.h": '#pragma once\n#include "base/error.h"\n',
    "src/engine/model_forward.cpp": '#include "engine/plan.h"\n#include "nn/block.h"\n',
    "src/engine/loop.cpp": 'void f() { try { } catch (...) { } }\n',
    "tests/goldens/llama/config.json": "{}",
    "tests/engine/golden_test.cpp": 'auto folder = "llama/config.json";\n',
}


def body(lines):
    return "\n".join(["  call();"] * lines)


class TidyTest(unittest.TestCase):
    def found(self, files=None):
        """What is reported for the clean tree with these files laid over it."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **(files or {})}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return tidy.tidy(folder)

    def assert_found(self, files, *starts):
        found = self.found(files)
        self.assertEqual(len(found), len(starts), found)
        for line, start in zip(found, starts):
            self.assertTrue(line.startswith(start), line)

    def test_a_clean_tree_is_clean(self):
        self.assertEqual(self.found(), [])

    def test_a_room_includes_only_rooms_before_it(self):
        self.assert_found({"src/base/a.cpp": '\n#include "engine/plan.h"\n'},
                          "src/base/a.cpp:2: direction: base must not include engine/plan.h")
        self.assert_found({"src/text/a.cpp": '#include "engine/plan.h"\n'}, "src/text/a.cpp:1: direction")
        self.assert_found({"src/text/a.h": "#pragma once\n", "src/kv/a.cpp": '#include "text/a.h"\n'},
                          "src/kv/a.cpp:1: direction")
        self.assert_found({"src/text/a.h": "#pragma once\n", "src/engine/a.cpp": '#include "text/a.h"\n'})
        self.assert_found({"src/shed/a.cpp": ""}, "src/shed/a.cpp:1: room")

    def test_mlx_does_not_reach_free_rooms_even_through_a_header(self):
        self.assert_found({"src/base/a.cpp": "#include <mlx/array.h>\n"}, "src/base/a.cpp:1: mlx")
        self.assert_found({"src/engine/plan.h": '#pragma once\n#include "nn/block.h"\n'},
                          "src/engine/plan.h:1: mlx: must not reach MLX: nn/block.h -> mlx/array.h")

    def test_only_listed_places_catch(self):
        self.assert_found({"src/kv/a.cpp": "// catch (x)\nvoid f() { try {} catch (int) {} }\n"},
                          "src/kv/a.cpp:2: catch")

    def test_files_that_nobody_names_are_dead(self):
        self.assert_found({"src/kv/a.h": "#pragma once\n"}, "src/kv/a.h:1: dead file")
        self.assert_found({"tests/goldens/qwen/config.json": "{}"}, "tests/goldens/qwen:1: dead file")
        self.assert_found({"tests/goldens/qwen/golden_x.json": "{}",
                           "tests/a_test.cpp": 'directory_iterator(COHORT_GOLDENS) "golden_x.json"\n'})

    def test_long_functions_are_found_in_every_form(self):
        for head in ("void f() {", "int A::f(int a) const noexcept {", "A::A() : b_{1}, c_(2) {",
                     "template <class T>\nauto f(T t) -> int {", "class A {\n  void f() {",
                     "namespace a {\nvoid f() {\n  auto g = [] {\n  };"):
            closing = "}" * (head.count("{") - head.count("}"))
            long = self.found({"src/kv/a.cpp": f"{head}\n{body(70)}\n{closing}\n"})
            self.assertEqual(len(long), 1, (head, long))
            self.assertIn("long function", long[0])
            self.assertEqual(self.found({"src/kv/a.cpp": f"{head}\n{body(60)}\n{closing}\n"}), [], head)

    def test_tables_classes_and_namespaces_may_be_long(self):
        rows = "\n".join(["  {1, 2},"] * 100)
        members = "\n".join(["  void f() { g(); }"] * 100)
        self.assert_found({"src/kv/a.cpp": f"const int kRows[] = {{\n{rows}\n}};\n"})
        self.assert_found({"src/kv/a.cpp": f"namespace a {{\nclass B : public C {{\n{members}\n}};\n}}\n"})

    def test_sizes_are_bounded(self):
        self.assert_found({"src/kv/a.cpp": "int a;\n" * 601}, "src/kv/a.cpp:600: long file")
        self.assert_found({"src/kv/a.cpp": "int a;" + " " * 100 + "\n"}, "src/kv/a.cpp:1: long line")
        self.assert_found({"tools/a.py": "def f():\n" + "    g()\n" * 70}, "tools/a.py:1: long function: f")

    def test_names_are_concepts(self):
        self.assert_found({"src/kv/cache_utils.cpp": ""}, "src/kv/cache_utils.cpp:1: drawer")
        self.assert_found({"src/vendor/json.py": ""}, "src/vendor/json.py:1: foreign")

    def test_texts_say_why_and_name_no_machine(self):
        self.assert_found({"src/kv/a.cpp": "// TO" + "DO: later\n"}, "src/kv/a.cpp:1: todo")
        self.assert_found({"src/kv/a.cpp": "// TO" + "DO(no caller passes 0): refuse it\n"})
        self.assert_found({"README.md": "see /wo" + "rk/x\n"}, "README.md:1: path")
        self.assert_found({"README.md": "see src/wo" + "rk/x\n"})
        self.assert_found({"src/kv/a.cpp": "// Copyright " + "(c) someone\n"}, "src/kv/a.cpp:1: foreign")
        self.assert_found({"src/engine/plan.h": "\n"}, "src/engine/plan.h:1: pragma")


if __name__ == "__main__":
    unittest.main()
