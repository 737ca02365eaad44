#!/usr/bin/env python3
"""Sums up JUnit files of ctest and pytest; fails if a test was skipped without a stated reason."""

import re
import sys
import xml.etree.ElementTree


def reason_of(case):
    """Why a test case was skipped; empty if nobody said."""
    skipped = case.find("skipped")
    message = (skipped.get("message") or "").strip()
    if message.startswith("SKIP_REGULAR_EXPRESSION") or not message:  # ctest: GoogleTest said it
        output = case.findtext("system-out") or ""
        found = re.search(r": Skipped\n(.*)", output)
        message = found.group(1).strip() if found else ""
    return "" if message in ("unconditional skip", "Skipped", "Test not run") else message


def main(paths):
    unexplained = 0
    for path in paths:
        cases = list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
        skipped = [case for case in cases if case.find("skipped") is not None]
        print(f"{path}: {len(cases)} tests, {len(skipped)} skipped")
        for case in skipped:
            reason = reason_of(case)
            unexplained += not reason
            print(f"  skipped {case.get('name')}: {reason or 'NO REASON GIVEN'}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
