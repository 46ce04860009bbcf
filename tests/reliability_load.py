"""Load on `assay serve` beyond what tests can wait for: ten times its capacity, thousands of connections that say nothing, hours of everything at once.

Usage: reliability_load.py PROGRAM MODEL.gguf [--overload SECONDS] [--connections ROUNDS] [--soak SECONDS] [--threads N]. Each prints its figures and fails where an answer is wrong.
Overload: requests come at ten times the rate that the server finishes them at. Told: how long a refusal takes, and Retry-After beside the wait of who was let in last.
Connections: 1,000 idle ones and 1,000 that send a byte of a header a second. Told: what they cost in memory, and the first token of who asks properly, with and without them in turns.
Soak: 80 % of capacity, 5 % of the clients go at a random moment, 1 % of the requests are hostile. Every answer must be what the server gave to it alone."""
import argparse
import http.client
import json
import os
import random
import socket
import statistics
import threading
import time

from reliability_test import PATIENCE_S, Server

WORDS = "sea shore wind stone river light bird hill snow road field tree rain star boat lamp".split()


def prompt_of(n):
    chance = random.Random(n)
    return " ".join(chance.choice(WORDS) for _ in range(8 + n % 40))


def body_of(n, tokens, **more):
    return {"prompt": prompt_of(n), "max_tokens": tokens, "ignore_eos": True, "seed": n, "temperature": 0.8 if n % 2 else 0, **more}


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def in_threads(n, work):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def capacity(server, clients, tokens, seconds):
    """Requests a second, all clients asking back to back."""
    done, until, begun = [], time.monotonic() + seconds, time.monotonic()

    def ask(i):
        n = 0
        while time.monotonic() < until:
            reply = server.post(body_of(1000 * i + n, tokens))
            assert reply.status == 200, reply.read()
            reply.read()
            done.append(1)
            n += 1

    in_threads(clients, ask)
    return len(done) / (time.monotonic() - begun)


def at_rate(rate, seconds, work):
    """Calls work(i) in threads of their own, at random moments of this rate."""
    chance, threads, begun, at, i = random.Random(1), [], time.monotonic(), 0.0, 0
    while True:
        at += chance.expovariate(rate)
        if at > seconds:
            break
        time.sleep(max(0.0, begun + at - time.monotonic()))
        threads.append(threading.Thread(target=work, args=(i,)))
        threads[-1].start()
        i += 1
    for thread in threads:
        thread.join()
    return i


def overload(program, model, seconds, threads, tokens=64):
    server = Server(program, model, "-c", "512", "-np", "4", "-t", str(threads))
    rate = capacity(server, 4, tokens, min(20, seconds))
    lock, taken, refused, other = threading.Lock(), [], [], []

    def ask(n):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        connection.connect()
        begun = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body_of(n, tokens, stream=True)), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status == 200:
            reply.readline()
            first = time.monotonic()
            text = reply.read()
            with lock:
                taken.append((begun, first - begun))
                if not text.rstrip().endswith(b"data: [DONE]"):
                    other.append(text[-200:])
        else:
            reply.read()
            took = time.monotonic() - begun
            with lock:
                (refused if reply.status == 429 else other).append((begun, took, int(reply.headers["Retry-After"] or 0)))

    n = at_rate(10 * rate, seconds, ask)
    server.process.terminate()
    server.wait()
    assert not other, other[:3]
    # The wait of who was let in last before a refusal, once the queue has been full for a while.
    taken.sort()
    full_from = min(r[0] for r in refused) + 2
    pairs = []
    for begun, _, told in refused:
        before = [wait for at, wait in taken if at <= begun]
        if begun >= full_from and before:
            pairs.append((told, before[-1]))
    honest = sum(abs(told - wait) <= wait / 2 for told, wait in pairs)
    took = [r[1] * 1000 for r in refused]
    print(f"overload: {rate:.1f} requests/s is what 4 places finish, {10 * rate:.0f}/s came for {seconds:.0f} s: {n} requests, {len(taken)} answered whole, {len(refused)} refused, 0 others")
    print(f"  a refusal took {statistics.median(took):.1f} ms (median), {percentile(took, 0.99):.1f} ms (p99), as the client sees it")
    print(f"  Retry-After {statistics.median(p[0] for p in pairs):.0f} s (median), the wait {statistics.median(p[1] for p in pairs):.1f} s; within half of it: {100 * honest / len(pairs):.0f} % of {len(pairs)}")


def memory_kib(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def n_descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


class Crowd(threading.Thread):
    """Connections that are open and say nothing, or a byte a second; closed ones come back."""

    def __init__(self, port, n_idle, n_dribbling):
        super().__init__(daemon=True)
        self.port, self.ends = port, threading.Event()
        self.idle = [self.connect() for _ in range(n_idle)]
        self.dribbling = [self.connect() for _ in range(n_dribbling)]
        self.n_back = 0

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        s.setblocking(False)
        return s

    def is_over(self, s):
        try:
            return s.recv(4096) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def run(self):
        begins = b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: "
        sent = [0] * len(self.dribbling)
        while not self.ends.is_set():
            begun = time.monotonic()
            for i, s in enumerate(self.dribbling):
                if self.ends.is_set():
                    break
                try:
                    if self.is_over(s):
                        raise OSError
                    s.send(begins[sent[i]:sent[i] + 1] or b"a")
                    sent[i] += 1
                except OSError:
                    s.close()
                    self.dribbling[i], sent[i] = self.connect(), 0
                    self.n_back += 1
                if i % 50 == 49:  # over the whole of the second
                    self.ends.wait(1 / 25)
            for i, s in enumerate(self.idle):
                if self.is_over(s):
                    s.close()
                    self.idle[i] = self.connect()
                    self.n_back += 1
            self.ends.wait(max(0.0, begun + 1 - time.monotonic()))

    def leave(self):
        self.ends.set()
        self.join()
        for s in self.idle + self.dribbling:
            s.close()


def first_tokens(server, n, tokens=8):
    times = []
    for i in range(n):
        begun = time.monotonic()
        reply = server.post(body_of(i, tokens, stream=True))
        assert reply.status == 200, reply.status
        reply.readline()
        times.append(1000 * (time.monotonic() - begun))
        reply.read()
    return times


def connections(program, model, rounds, threads, n_each=1000, n_requests=40):
    server = Server(program, model, "-c", "512", "-np", "4", "-t", str(threads), "--max-connections", "4096", "--no-cache-prompt")
    first_tokens(server, n_requests)
    alone, beside, grown, back = [], [], [], 0
    for _ in range(rounds):
        alone += first_tokens(server, n_requests)
        before = memory_kib(server)
        crowd = Crowd(server.port, n_each, n_each)
        crowd.start()
        beside += first_tokens(server, n_requests)
        grown.append(memory_kib(server) - before)
        crowd.leave()
        back += crowd.n_back
    server.process.terminate()
    server.wait()
    print(f"connections: {n_each} idle and {n_each} dribbling, {rounds} rounds, {back} closed by the server came back: {max(grown) / 1024:.1f} MiB at most, {rounds * n_requests} requests with and without, all answered")
    print(f"  first token {statistics.median(alone):.1f} ms without and {statistics.median(beside):.1f} ms with them (median, ratio {statistics.median(beside) / statistics.median(alone):.2f}); "
          f"p99 {percentile(alone, 0.99):.1f} and {percentile(beside, 0.99):.1f} ms (ratio {percentile(beside, 0.99) / percentile(alone, 0.99):.2f})")


def hostile_requests():
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    def posted(body):
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    return [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(200)) + b"\r\n",
        head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + b"Content-Length: 99999999999\r\n\r\n",
        posted(b"[" * 100_000),
        posted(b'{"prompt": "a", "prompt": "b"}'),
        posted(b'{"prompt": "\\ud800"}'),
        posted(b'{"prompt": [99999999]}'),
        posted(b'{"prompt": "a", "temperature": 1e999}'),
        posted(json.dumps({"prompt": "a", "max_tokens": 2, "grammar": "root ::= root root"}).encode()),
        posted(json.dumps({"prompt": "a", "max_tokens": 2, "json_schema": {"type": "string", "pattern": "(a*)*b" * 20}}).encode()),
    ]


def send_bytes(port, data):
    """Whatever comes back: an error or the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as s:
        try:
            s.sendall(data)
            return s.recv(4096)[:12]
        except OSError:
            return b""


def soak(program, model, seconds, threads, tokens=24, n_kinds=40):
    server = Server(program, model, "-c", "512", "-np", "4", "-t", str(threads), "--max-queue", "64")

    def said(reply, is_stream):
        if not is_stream:
            choice = json.loads(reply.read())["choices"][0]
            return choice["text"], choice["logprobs"]["token_logprobs"]
        text, logprobs, last = "", [], b""
        for line in reply:
            if line.startswith(b"data: {"):
                choice = json.loads(line[6:])["choices"][0]
                text += choice["text"]
                logprobs += (choice["logprobs"] or {}).get("token_logprobs", [])
            last = line.strip() or last
        assert last == b"data: [DONE]", last
        return text, logprobs

    wanted = [said(server.post(body_of(i, tokens, logprobs=1)), False) for i in range(n_kinds)]
    rate = 0.8 * capacity(server, 4, tokens, 15)
    lock, count, wrong = threading.Lock(), {"right": 0, "cut": 0, "hostile": 0, "refused": 0}, []
    hostile = hostile_requests()

    def ask(n):
        chance = random.Random(n)
        what = chance.random()
        i, is_stream = chance.randrange(n_kinds), chance.random() < 0.5
        try:
            if what < 0.01:
                send_bytes(server.port, hostile[chance.randrange(len(hostile))])
                kind = "hostile"
            elif what < 0.06:
                data = json.dumps(body_of(i, tokens, logprobs=1, stream=is_stream)).encode()
                s = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data[:chance.randrange(len(data)) if chance.random() < 0.2 else None])
                time.sleep(chance.random() * 0.5)  # where it is cut is what varies
                s.close()
                kind = "cut"
            else:
                reply = server.post(body_of(i, tokens, logprobs=1, stream=is_stream))
                kind = "right" if reply.status == 200 else "refused" if reply.status == 429 else "wrong"
                if kind == "right" and said(reply, is_stream) != wanted[i]:
                    kind = "wrong"
                if kind == "wrong":
                    wrong.append((n, i, reply.status))
        except Exception as error:  # pylint: disable=broad-except
            kind = "wrong"
            wrong.append((n, i, repr(error)))
        with lock:
            count[kind] = count.get(kind, 0) + 1

    samples, ends = [], threading.Event()

    def sample():
        begun = time.monotonic()
        while not ends.wait(1):
            samples.append((time.monotonic() - begun, memory_kib(server), n_descriptors(server)))

    sampler = threading.Thread(target=sample)
    sampler.start()
    at_rate(rate, seconds, ask)
    ends.set()
    sampler.join()
    deadline = time.monotonic() + PATIENCE_S
    while n_descriptors(server) > samples[0][2] and time.monotonic() < deadline:
        time.sleep(0.2)  # closed connections go
    descriptors = n_descriptors(server)
    metrics = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    metrics.request("GET", "/metrics")
    figures = dict(line.split(" ") for line in metrics.getresponse().read().decode().splitlines() if line.count(" ") == 1)
    server.process.terminate()
    assert server.wait() in (143, -15)
    later = [kib for at, kib, _ in samples if at > seconds / 5]
    parts = [statistics.median(kib for at, kib, _ in samples if a * seconds <= at < b * seconds) / 1024 for a, b in ((0.2, 0.4), (0.6, 0.8), (0.8, 1.01))]
    print(f"soak: {seconds:.0f} s at {rate:.1f} requests/s (80 %): {count['right']} right answers, {len(wrong)} wrong ones or errors, {count['cut']} cut, {count['hostile']} hostile, {count['refused']} refused")
    print(f"  memory {parts[0]:.1f}, {parts[1]:.1f}, {parts[2]:.1f} MiB (medians of the second, fourth and last fifth), {(max(later) - min(later)) / 1024:.1f} MiB between least and most after the first fifth")
    print(f"  descriptors: at most {max(s[2] for s in samples)}, {descriptors} at the end; running {figures['assay_num_requests_running']}, waiting {figures['assay_num_requests_waiting']}")
    assert not wrong, wrong[:5]
    assert figures["assay_num_requests_running"] == figures["assay_num_requests_waiting"] == "0", figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--overload", type=float, default=0)
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    if asked.overload > 0:
        overload(asked.program, asked.model, asked.overload, asked.threads)
    if asked.connections > 0:
        connections(asked.program, asked.model, asked.connections, asked.threads)
    if asked.soak > 0:
        soak(asked.program, asked.model, asked.soak, asked.threads)


if __name__ == "__main__":
    main()
