"""What one client notices of `assay serve`: the speed of its stream, the pause when another's long prompt joins, the first token after a prompt that is known.

Usage: bench/serve_once.py MODEL.gguf --assay PROGRAM [--peer LLAMA_SERVER] [--rounds 5] [--threads 2]
Each figure is a median of the rounds, both servers in turns. Printed: milliseconds from start to listening (the model's file in memory), tokens/s of one stream of
--tokens beside `assay bench` at the same depth, the longest gap of a stream while a prompt of 1,900 tokens is read, and the time to the first token of a prompt of
1,500 tokens: cold, known, and known from the disk of a server that was started anew."""
import argparse
import statistics
import tempfile
import threading
import time

from serve import bench, pieces_of, post, start_assay, start_peer, stopped

WORDS = "sea shore wind stone river light bird hill snow road field tree rain star boat lamp".split()


def prompt_of(n_tokens, seed):
    """Each word is one token of SmolLM2's vocabulary; the first ones tell prompts apart, so that nothing of another is found."""
    return " ".join(WORDS[(seed >> 4 * i) % 16] for i in range(6)) + " " + " ".join(WORDS[(i * i + seed) % 16] for i in range(n_tokens - 6))


def stream(port, prompt, n_tokens):
    """Times of the pieces, since asking."""
    begun = time.monotonic()
    reply = post(port, "/v1/completions", {"prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "stream": True, "ignore_eos": True})
    return [at - begun for at in pieces_of(reply, lambda choice: choice.get("text"))]


def rate(port, prompt, n_tokens):
    times = stream(port, prompt, n_tokens)
    return (len(times) - 1) / (times[-1] - times[0])


def gap_while_joined(port, seed):
    """The longest gap of a stream that another prompt joins."""
    found = []
    watcher = threading.Thread(target=lambda: found.extend(stream(port, prompt_of(20, seed), 400)))
    watcher.start()
    time.sleep(0.5)
    first = stream(port, prompt_of(1900, seed + 1), 1)[0]
    watcher.join()
    return 1000 * max(b - a for a, b in zip(found, found[1:])), 1000 * first


def first_tokens(port, seed):
    prompt = prompt_of(1500, seed)
    return [1000 * stream(port, prompt, 1)[0] for _ in range(2)]


def started(start, program, model, places, threads, *more):
    begun = time.monotonic()
    process, port = start(program, model, places, threads, *more)
    return process, port, 1000 * (time.monotonic() - begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--assay", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    kinds = {"assay": (start_assay, asked.assay)} | ({"llama-server": (start_peer, asked.peer)} if asked.peer else {})
    found = {}

    def note(what, value):
        found.setdefault(what, []).append(value)

    for n in range(asked.rounds):
        for name, (start, program) in kinds.items():
            process, port, took = started(start, program, asked.model, 4, asked.threads)
            with stopped(process):
                note(f"{name}: start to listening, ms", took)
                stream(port, "a", 8)
                note(f"{name}: one stream, tokens/s", rate(port, prompt_of(20, n), asked.tokens))
                gap, first = gap_while_joined(port, 100 + 7 * n)
                note(f"{name}: longest gap when 1,900 tokens join, ms", gap)
                note(f"{name}: their first token, ms", first)
                cold, known = first_tokens(port, 1000 + 3 * n)
                note(f"{name}: first token of 1,500, cold, ms", cold)
                note(f"{name}: known / cold", known / cold)
        note("assay bench, tokens/s", bench(asked.assay, asked.model, asked.tokens, asked.threads, "-d", "20"))
        note("assay: one stream / bench", found["assay: one stream, tokens/s"][-1] / found["assay bench, tokens/s"][-1])
        with tempfile.TemporaryDirectory() as folder:
            times = []
            for _ in range(2):
                process, port, _ = started(start_assay, asked.assay, asked.model, 4, asked.threads, "--prompt-cache-dir", folder)
                with stopped(process):
                    times.append(stream(port, prompt_of(1500, 5000 + n), 1)[0])
            note("assay: from disk after a restart / cold", times[1] / times[0])
    for what, values in found.items():
        print(f"| {what} | {statistics.median(values):.3g} | {min(values):.3g} to {max(values):.3g} |")


if __name__ == "__main__":
    main()
