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


def client(port, tokens, until, tally, lock):
    try:
        ask_back_to_back(port, tokens, until, tally, lock)
    except Exception as error:  # pylint: disable=broad-except  # a client that falls silent would make the others look quick
        with lock:
            tally["failures"].append(repr(error))


def ask_back_to_back(port, tokens, until, tally, lock):
    while time.monotonic() < until:
        body = {"messages": [{"role": "user", "content": f"Tell me a story about the number {next(fresh)}."}], "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
        begun = time.monotonic()
        reply = post(port, "/v1/chat/completions", body)
        times = pieces_of(reply, lambda choice: choice["delta"].get("content"))
        with lock:
            # An answer has `tokens` tokens (ignore_eos); pieces may hold several. What comes after the end of the round
            # comes while some clients have ended already, so it counts no more than the time does.
            tally["tokens"] += tokens * sum(at <= until for at in times) / max(len(times), 1)
            tally["first"] += [at - begun for at in times[:1]]  # none where no token had a text
            tally["gaps"] += [b - a for a, b in zip(times, times[1:])]


def round_of(port, clients, tokens, seconds, n_idle):
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(n_idle)]
    tally, lock = {"tokens": 0, "first": [], "gaps": [], "failures": []}, threading.Lock()
    begun = time.monotonic()
    threads = [threading.Thread(target=client, args=(port, tokens, begun + seconds, tally, lock)) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for s in idle:
        s.close()
    if tally["failures"]:
        sys.exit(f"port {port}: {len(tally['failures'])} of {clients} clients failed: {tally['failures'][0]}")
    gaps = sorted(tally["gaps"]) or [0]
    return tally["tokens"] / seconds, 1000 * gaps[int(0.99 * (len(gaps) - 1))], 1000 * statistics.median(tally["first"] or [0])


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
