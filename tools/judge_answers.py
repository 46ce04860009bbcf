"""What a model answers to 200 varied schemas, greedy and sampled, judged by jsonschema.

Usage: judge_answers.py ASSAY MODEL.gguf [N_TOKENS [LIST]]. Needs the packages jsonschema, rfc3339-validator (else times are not judged) and llguidance
(of judge_masks.py, whose schemas these are). LIST: a file of other schemas, one a line; hard_schemas.jsonl beside this has some. An answer that
ends by itself must be a valid value; one that was cut by its length is counted. Exit code 1 where one is not."""
import concurrent.futures
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import jsonschema

import judge_masks


def ask(address, path, schema, n_tokens, temperature, seed):
    """(the answer, why it ended). The base model without a chat template is asked by /v1/completions."""
    text = "Invent an example of this record, as JSON."
    prompt = {"prompt": text + "\n"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": text}]}
    body = {**prompt, "max_tokens": n_tokens, "temperature": temperature, "seed": seed,
            "response_format": {"type": "json_schema", "json_schema": {"name": "record", "schema": schema}}}
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=1200) as response:
            choice = json.load(response)["choices"][0]
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]["message"], "refused"
    return choice["text"] if "text" in choice else choice["message"]["content"], choice["finish_reason"]


def is_wrong(schema, text):
    try:
        jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    except (jsonschema.ValidationError, ValueError) as error:
        return str(error)
    return None


def main():
    program, model = sys.argv[1:3]
    n_tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    all_schemas = judge_masks.schemas(200, seed=2)
    if len(sys.argv) > 4:
        with open(sys.argv[4], encoding="utf-8") as lines:
            all_schemas = [json.loads(line) for line in lines]
    server = subprocess.Popen([program, "serve", model, "--port", "0", "-np", "8"], stderr=subprocess.PIPE, text=True)
    try:
        address = next(word for line in server.stderr for word in line.split() if word.startswith("http://")).rstrip(",")
        threading.Thread(target=server.stderr.read, daemon=True).start()  # a full pipe would hold the server up
        has_template = json.load(urllib.request.urlopen(address + "/props", timeout=60)).get("chat_template")
        path = "/v1/chat/completions" if has_template else "/v1/completions"
        jobs = [(schema, temperature, seed) for temperature in (0, 1) for seed, schema in enumerate(all_schemas)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda job: ask(address, path, job[0], n_tokens, job[1], job[2]), jobs))
    finally:
        server.terminate()
        server.wait()
    wrong = 0
    for (schema, temperature, seed), (text, reason) in zip(jobs, answers):
        error = {"stop": lambda: is_wrong(schema, text), "length": lambda: None}.get(reason, lambda: f"it is {reason}")()
        if error:
            wrong += 1
            print(f"schema {json.dumps(schema)}, temperature {temperature}, seed {seed}: {text!r} is not valid: {error[:300]}")
    for name, part in ("greedy", answers[:len(all_schemas)]), ("sampled", answers[len(all_schemas):]):
        print(f"{name}: {sum(reason == 'stop' for _, reason in part)} answers whole, {sum(reason == 'length' for _, reason in part)} cut at {n_tokens} tokens")
    print(f"{len(all_schemas)} schemas; {wrong} answers wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
