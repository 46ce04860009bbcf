#!/usr/bin/env python3
"""Writes corpus/template: a choice of the snippets and of the real templates with conversations, as fuzz_template.cpp reads them."""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "tests/data/chat"
OUT = HERE / "corpus/template"

OUT.mkdir(parents=True, exist_ok=True)
snippets = [source for source, text in json.loads((DATA / "snippets.json").read_text(encoding="utf-8"))["snippets"] if source]
statements = [s for s in snippets if "{%" in s]
chosen = statements[::4] + [" ".join(snippets[i : i + 40 : 5]) for i in range(0, len(snippets) - 300, 40)]
for i, source in enumerate(chosen):
    (OUT / ("snippet_%03d" % i)).write_text(source, encoding="utf-8", newline="")
conversations = json.loads((DATA / "conversations.json").read_text(encoding="utf-8"))
cases = ["tool_calls_two", "parts", "reasoning"]
paths = sorted((p for p in (DATA / "templates").glob("*.jinja") if p.stat().st_size < 4700), key=lambda p: p.name)
for i, path in enumerate(paths):
    case = conversations[cases[i % len(cases)]]
    fields = [path.read_text(encoding="utf-8"), json.dumps(case["messages"], ensure_ascii=False), json.dumps(case.get("tools")), json.dumps(case.get("extra", {}))]
    (OUT / ("real_%02d" % i)).write_text("\n---\n".join(fields), encoding="utf-8", newline="")
print(len(list(OUT.iterdir())), "files")
