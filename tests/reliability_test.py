"""Rounds in which `assay serve` is told to end while it answers, is killed while it writes its cache of prompts, or has few descriptors.

Usage: reliability_test.py PROGRAM MODEL.gguf [--drain N] [--kill N]. Prints what came of the rounds; fails at the first wrong one.
Drain: SIGTERM while streams run. Every stream must end whole, whoever comes later must be refused, and the exit code is 143.
Kill: SIGKILL at a random moment of a server that keeps prompts on disk. The next one must start and give the answers of a server without a cache."""
import argparse
import http.client
import json
import random
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time

PATIENCE_S = 120


class Server:
    def __init__(self, program, model, *flags, n_descriptors=None):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n_descriptors, n_descriptors))) if n_descriptors else None
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "-t", "1", "--log-disable", *flags], stderr=subprocess.PIPE, text=True, preexec_fn=limit)
        line = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"the server did not start: {line}"
        self.port = int(found[1])
        self.notices = []
        threading.Thread(target=lambda: self.notices.extend(self.process.stderr), daemon=True).start()

    def post(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def wait(self):
        return self.process.wait(timeout=PATIENCE_S)


def stream(server, n, began, ends):
    reply = server.post({"prompt": f"the sea, {n}", "max_tokens": 150, "ignore_eos": True, "stream": True, "seed": n})
    assert reply.status == 200, reply.status
    first = reply.readline()
    began.release()
    text = first + reply.read()
    ends[n] = text


def drain_round(program, model, seed):
    server = Server(program, model, "-c", "256", "-np", "4")
    began, ends = threading.Semaphore(0), {}
    threads = [threading.Thread(target=stream, args=(server, n, began, ends)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert began.acquire(timeout=PATIENCE_S)
    time.sleep(random.Random(seed).random() * 0.02)
    server.process.send_signal(signal.SIGTERM)
    late = 0
    try:  # who comes late is refused, or finds nobody
        while True:
            status = server.post({"prompt": "a", "max_tokens": 1}).status
            assert status in (200, 503), status
            late += status == 503
            if status == 503:
                break
    except (OSError, http.client.HTTPException):
        pass
    for thread in threads:
        thread.join(timeout=PATIENCE_S)
    code = server.wait()
    assert code in (143, -signal.SIGTERM), code
    for n in range(4):
        text = ends.get(n, b"")
        assert b'"finish_reason":"length"' in text and text.endswith(b"data: [DONE]\n\n"), f"stream {n} was cut: {text[-200:]}"
    return late


PROMPTS = [" ".join(f"{word} the sea and the shore {i}" for i in range(6)) for word in ("over", "under", "behind")]


def answers(server):
    result = []
    cached = 0
    for prompt in PROMPTS:
        reply = server.post({"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 1})
        body = json.loads(reply.read())
        assert reply.status == 200, body
        result.append((body["choices"][0]["text"], body["choices"][0]["logprobs"]["token_logprobs"]))
        cached += body["usage"]["prompt_tokens_details"]["cached_tokens"]
    return result, cached


def kill_rounds(program, model, n_rounds):
    chance = random.Random(1)
    plain = Server(program, model, "-c", "512", "-np", "2", "--no-cache-prompt")
    wanted, _ = answers(plain)
    plain.process.terminate()
    plain.wait()
    n_hits = n_notices = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n_rounds):
            server = Server(program, model, "-c", "512", "-np", "2", "--prompt-cache-dir", folder)
            found, cached = answers(server)
            assert found == wanted, f"round {i}: another answer from the cache"
            n_hits += cached > 0

            def more():
                try:
                    for k in range(20):
                        server.post({"prompt": f"{i} {k} " + PROMPTS[k % 3], "max_tokens": 2}).read()
                except (OSError, http.client.HTTPException):
                    pass

            writer = threading.Thread(target=more)
            writer.start()
            time.sleep(chance.random() * 0.15)
            server.process.kill()
            server.wait()
            writer.join()
            n_notices += len(server.notices)
    return n_hits, n_notices


def few_descriptors(program, model):
    """With 64 descriptors and 200 connections that ask nothing, who asks is answered."""
    server = Server(program, model, "-c", "256", n_descriptors=64)
    idle = []
    try:
        for _ in range(200):
            idle.append(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
        for _ in range(20):
            reply = server.post({"prompt": "a", "max_tokens": 2})
            assert reply.status == 200, reply.status
            reply.read()
    finally:
        for s in idle:
            s.close()
        server.process.terminate()
    assert server.wait() in (143, -signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--drain", type=int, default=3)
    parser.add_argument("--kill", type=int, default=5)
    asked = parser.parse_args()
    few_descriptors(asked.program, asked.model)
    print("descriptors: 64 of them, 200 idle connections: 20 of 20 requests answered")
    late = sum(drain_round(asked.program, asked.model, i) for i in range(asked.drain))
    print(f"drain: {asked.drain} rounds of 4 streams, 0 cut; {late} late requests refused with 503")
    hits, notices = kill_rounds(asked.program, asked.model, asked.kill)
    print(f"kill: {asked.kill} rounds, 0 wrong answers; {hits} starts found prompts on disk; {notices} lines of damaged files")


if __name__ == "__main__":
    main()
