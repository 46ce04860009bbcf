"""Masks of schemas judged by llguidance, answers by jsonschema: of 200 varied schemas, drawn by tools/mask_steps.

Usage: judge_masks.py MASK_STEPS MODEL.gguf [N_ANSWERS]. Needs the packages llguidance and jsonschema. Every token that a mask allows
must be one that llguidance allows there, with json.dumps' blanks, and every whole answer a valid value. Exit code 1 where one is not."""
import json
import random
import subprocess
import sys

import jsonschema
import llguidance


def schemas(n, seed=1):
    draw = random.Random(seed)

    def leaf():
        return draw.choice([
            lambda: {"type": "integer", "minimum": draw.randint(-50, 0), "maximum": draw.randint(1, 500)},
            lambda: {"type": "number"}, lambda: {"type": "boolean"}, lambda: {"type": "null"},
            lambda: {"type": "string", "minLength": draw.randint(0, 2), "maxLength": draw.randint(2, 9)},
            lambda: {"enum": draw.sample(["red", "green", "größe", 5, None, True, 2.5], draw.randint(1, 5))},
            lambda: {"const": draw.choice(["fixed", 7, False])},
            lambda: {"type": "string", "pattern": draw.choice(["^[a-c]{2,4}$", "^x\\d+y?$", "^(ab|cd)*e$"])},
            lambda: {"type": "string", "format": draw.choice(["date", "time", "date-time", "uuid", "ipv4"])},
        ])()

    def schema(depth):
        kind = draw.random()
        if depth == 0 or kind < 0.3:
            return leaf()
        if kind < 0.7:
            names = draw.sample(["name", "age", "tags", "place", "größe", "a\"b", "n"], draw.randint(1, 4))
            return {"type": "object", "properties": {k: schema(depth - 1) for k in names}, "required": draw.sample(names, draw.randint(0, len(names))), "additionalProperties": False}
        if kind < 0.85:
            return {"type": "array", "items": schema(depth - 1), "minItems": draw.randint(0, 1), "maxItems": draw.randint(1, 3)}
        return {"anyOf": [schema(depth - 1), {"type": "null"}]}

    tree = {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                               "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
    return [tree] + [schema(3) for _ in range(n - 1)]


class Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, lines):
        entries = [json.loads(line) for line in lines]
        self.tokens = [bytes.fromhex(e["bytes"]) if not e["control"] else b"\xff[" + str(i).encode() + b"]" for i, e in enumerate(entries)]
        self.special_token_ids = [i for i, e in enumerate(entries) if e["control"]]
        self.eos_token_id = next(i for i, e in enumerate(entries) if e["end"])
        self.bos_token_id = None
        self.ends = {i for i, e in enumerate(entries) if e["end"]}
        self.by_bytes = {t: i for i, t in enumerate(self.tokens) if i not in set(self.special_token_ids)}

    def __call__(self, text):
        text, ids = (text.encode() if isinstance(text, str) else text), []
        while text:
            n = next(n for n in range(min(len(text), 64), 0, -1) if text[:n] in self.by_bytes)
            ids.append(self.by_bytes[text[:n]])
            text = text[n:]
        return ids


def main():
    program, model = sys.argv[1:3]
    n_answers = sys.argv[3] if len(sys.argv) > 3 else "2"
    all_schemas = schemas(200)
    vocabulary = Vocabulary(subprocess.run([program, "tokens", model], capture_output=True, text=True, check=True).stdout.splitlines())
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
    drawn = subprocess.run([program, "steps", model, n_answers, "1"], input="\n".join(json.dumps(s) for s in all_schemas) + "\n", capture_output=True, text=True, check=True).stdout
    n_steps = n_whole = n_refused = n_not_judged = n_wrong = 0
    strict = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    for line in drawn.rstrip("\n").split("\n"):  # splitlines would also part them at U+2028 and kin
        row = json.loads(line)
        schema = all_schemas[row["line"] - 1]
        if "refused" in row:
            n_refused += 1
            continue
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=strict))
        if matcher.is_error():
            n_not_judged += 1
            continue
        for step, (token, mask) in enumerate(zip(row["ids"], row["masks"])):
            n_steps += 1
            allowed = {i for first, last in mask for i in range(first, last + 1)} - vocabulary.ends
            bits = matcher.compute_bitmask()
            # Where only one text can follow, its mask has the first of the tokens that spell it best and no other. Of strings it
            # has no DEL, no \\/ and \\u only where nothing else will do, which JSON lets stand.
            unsure = [i for i in allowed if not bits[i >> 3] >> (i & 7) & 1 and not any(odd in vocabulary.tokens[i] for odd in (b"\x7f", b"\\/"))]
            if b"".join(vocabulary.tokens[i] for i in row["ids"][:step]).endswith(b"\\"):
                unsure = [i for i in unsure if not vocabulary.tokens[i].startswith((b"/", b"u"))]
            wrong = [i for i in unsure if matcher.validate_tokens([i]) != 1]
            if wrong:
                n_wrong += 1
                print(f"schema {json.dumps(schema)}: after {row['ids'][:step]} token {wrong[0]} {vocabulary.tokens[wrong[0]]} of {len(wrong)} is allowed here and not by llguidance")
                break
            if token in vocabulary.ends or not matcher.consume_token(token):
                break
        if row["whole"]:
            n_whole += 1
            try:
                jsonschema.validate(json.loads(row["text"]), schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            except (jsonschema.ValidationError, ValueError) as error:
                n_wrong += 1
                print(f"schema {json.dumps(schema)}: {row['text']!r} is not valid: {error}")
    print(f"{len(all_schemas)} schemas, {n_refused} refused; {n_steps} masks judged, answers of {n_not_judged} schemas not (llguidance refuses them); {n_whole} whole answers valid; {n_wrong} wrong")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
