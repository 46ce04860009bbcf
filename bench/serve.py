"""Clients back to back against `assay serve` and llama-server, in turns on one machine: tokens a second and gaps between tokens, medians of the rounds.

Usage: bench/serve.py MODEL.gguf --assay PROGRAM [--peer LLAMA_SERVER] [--clients 1 8 32] [--rounds 5] [--tokens 64] [--threads 2]
Each round starts neither server anew: both stay loaded, one rests while the other is asked. Every client asks for the next answer as soon as it has one, for --seconds.
Rounds alternate, so that what else the machine does meets both. With --idle N each round has N idle connections beside the clients. With --bench each round ends with
`assay bench -npl CLIENTS`, which is what the engine does without a server, prompts and new requests."""
import argparse
import contextlib
import http.client
import itertools
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time

PATIENCE_S = 600
fresh = itertools.count(1000)  # no prompt comes twice, so that none is found whole in a cache


def start_assay(program, model, clients, threads, *more):
    process = subprocess.Popen([program, "serve", model, "--port", "0", "-c", "2048", "-np", str(clients), "-t", str(threads), "--max-queue", "1024", "--log-disable", *more], stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
    if not found:  # why stands on it
        sys.exit(f"{program} did not start: {line}{process.stderr.read()}")
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, int(found[1])


def start_peer(program, model, clients, threads):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    process = subprocess.Popen([program, "-m", model, "--port", str(port), "-c", str(2048 * clients), "-np", str(clients), "-t", str(threads), "-tb", str(threads)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return process, port
        except OSError:
            pass
        assert process.poll() is None and time.monotonic() < end, "the peer did not start"
        time.sleep(0.2)


@contextlib.contextmanager
def stopped(process):
    """Ends the server with the block."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def post(port, path, body):
    """The answer, whose end closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "Connection": "close"})
    reply = connection.getresponse()
    assert reply.status == 200, (reply.status, reply.read())
    return reply


def pieces_of(reply, text_of):
    """When each piece with a text came. They are read once all are there: the servers want the processors until then."""
    lines = [(time.monotonic(), line) for line in reply if line.startswith(b"data: {")]
    return [at for at, line in lines if (choices := json.loads(line[6:]).get("choices")) and text_of(choices[0])]


class Answer:
    """One request on its way. What comes is kept as it comes, with its time: it is read once the round is over, for the servers want the processors until then."""

    def __init__(self, port, tokens):
        body = json.dumps({"messages": [{"role": "user", "content": f"Tell me a story about the number {next(fresh)}."}], "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True})
        self.begun, self.parts = time.monotonic(), []
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def read(self):
        """False: it is whole."""
        part = self.socket.recv(1 << 16)
        if part:
            self.parts.append((time.monotonic(), part))
        else:
            self.socket.close()
        return bool(part)

    def times(self):
        """When each piece with a text came."""
        assert self.parts and self.parts[0][1].startswith(b"HTTP/1.1 200 "), self.parts[:1]
        assert b"data: [DONE]" in b"".join(part for _, part in self.parts), "an answer without its end"
        found, rest = [], b""
        for at, part in self.parts:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {") and (choices := json.loads(line[6:]).get("choices")) and choices[0]["delta"].get("content"):
                    found.append(at)
        return found


def ask_back_to_back(port, clients, tokens, until):
    """All answers of a round. One thread has all clients: threads of their own would take more of the processors that the servers want."""
    answers = []
    with selectors.DefaultSelector() as ready:
        def ask():
            answers.append(Answer(port, tokens))
            ready.register(answers[-1].socket, selectors.EVENT_READ, answers[-1])
        for _ in range(clients):
            ask()
        while ready.get_map():
            events = ready.select(PATIENCE_S)
            assert events, "a server fell silent"
            for key, _ in events:
                if not key.data.read():
                    ready.unregister(key.fileobj)
                    if time.monotonic() < until:
                        ask()
    return answers


def round_of(port, clients, tokens, seconds, n_idle):
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(n_idle)]
    begun = time.monotonic()
    until = begun + seconds
    answers = ask_back_to_back(port, clients, tokens, until)
    for s in idle:
        s.close()
    n_tokens, first, gaps = 0, [], []
    for answer in answers:
        times = answer.times()
        # An answer has `tokens` tokens (ignore_eos); pieces may hold several. What comes after the end of the round
        # comes while some clients have ended already, so it counts no more than the time does.
        n_tokens += tokens * sum(at <= until for at in times) / max(len(times), 1)
        first += [at - answer.begun for at in times[:1]]  # none where no token had a text
        gaps += [b - a for a, b in zip(times, times[1:])]
    gaps = sorted(gaps) or [0]
    return n_tokens / seconds, 1000 * gaps[int(0.99 * (len(gaps) - 1))], 1000 * statistics.median(first or [0])


def bench(program, model, tokens, threads, *more):
    """Tokens a second of `assay bench`."""
    flags = ["-p", "0", "-n", str(tokens), *more, "-r", "1", "-t", str(threads), "-o", "jsonl", "--no-limits"]
    return json.loads(subprocess.run([program, "bench", model, *flags], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines()[0])["avg_ts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--assay", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--bench", action="store_true")
    asked = parser.parse_args()
    print("| clients | server | tokens/s | p99 between tokens, ms | first token, ms |\n|---|---|---|---|---|")
    for clients in asked.clients:
        servers = {"assay": start_assay(asked.assay, asked.model, clients, asked.threads)}
        if asked.peer:
            servers["llama-server"] = start_peer(asked.peer, asked.model, clients, asked.threads)
        found, alone = {name: [] for name in servers}, []
        try:
            for _ in range(asked.rounds):
                for name, (_, port) in servers.items():
                    found[name].append(round_of(port, clients, asked.tokens, asked.seconds, asked.idle))
                if asked.bench:
                    alone.append(bench(asked.assay, asked.model, asked.tokens, asked.threads, "-npl", str(clients)))
        finally:
            for process, _ in servers.values():
                process.terminate()
            for process, _ in servers.values():
                process.wait(timeout=PATIENCE_S)
        medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in found.items()}
        for name, (rate, gap, first) in medians.items():
            print(f"| {clients} | {name} | {rate:.1f} | {gap:.0f} | {first:.0f} |", flush=True)
        if alone:
            ratios = [a[0] / b for a, b in zip(found["assay"], alone)]
            print(f"| {clients} | assay bench | {statistics.median(alone):.1f} | ratio, median of rounds: {statistics.median(ratios):.2f} | |", flush=True)
        if len(medians) == 2:
            ratios = [a[0] / b[0] for a, b in zip(found["assay"], found["llama-server"])]
            print(f"| {clients} | ratio, median of rounds | {statistics.median(ratios):.2f} | | |", flush=True)


if __name__ == "__main__":
    main()
