"""Keeps a server at full load for a while and watches its memory.

    python soak.py AKUNU MODEL [SECONDS]

More clients than the server has room for ask in all interfaces, whole and streamed; some leave in the middle, read slowly, or send nonsense.
Nothing but answers and refusals may come back, and memory must stay flat, once the cache has been in use everywhere: SECONDS (600) count from then on. At the end the
server is told to stop under that load: every answer that is reported complete must be. Python's standard library alone, Linux alone (memory is read from /proc).
"""

import json
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

PARALLEL, CONTEXT, CLIENTS = 8, 1024, 24
# Memory grows until every place of the cache has been written once: so many times its size are read and written before that counts, in so many seconds at most.
WARM_UP, PATIENCE = 2, 900
# How much the median of the last third may exceed that of the first.
GROWTH = 1.03


def start(binary, model):
    command = [binary, "serve", f"m={model}", "--port", "0", "--log", "off", "--ctx", str(CONTEXT), "--parallel", str(PARALLEL), "--max-queue", "8"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"http://(\S+):(\d+)", line)
        if found:
            return server, (found.group(1), int(found.group(2)))
    sys.exit("the server did not start")


class Clients:
    def __init__(self, address):
        self.address = address
        self.counts = {}
        self.wrong = []
        self.lock = threading.Lock()
        self.stopping = False

    def note(self, what, problem=None):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1
            if problem:
                self.wrong.append(problem)

    def post(self, path, body):
        url = "http://%s:%d%s" % (*self.address, path)
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        return urllib.request.urlopen(request, timeout=120)

    def run(self, seed):
        chance = random.Random(seed)
        while not self.stopping:
            try:
                self.once(chance)
            except urllib.error.HTTPError as error:
                error.read()
                expected = error.code in (400, 503)
                self.note(f"status {error.code}", None if expected else f"status {error.code}")
                if error.code == 503:
                    time.sleep(chance.random() * 0.3)
            except (OSError, ConnectionError) as error:
                if not self.stopping:
                    self.note("broken", f"{type(error).__name__}: {error}")

    def once(self, chance):
        story = " ".join(chance.choice("the sea a boat rain wind old new town bell".split()) for _ in range(chance.choice([3, 40, 300])))
        messages = [{"role": "user", "content": f"Continue: {story}"}]
        tokens = chance.choice([1, 16, 64, 128])
        what = chance.choice(["whole", "stream", "leave", "anthropic", "ollama", "nonsense", "slow"])
        chat = {"messages": messages, "max_tokens": tokens, "seed": chance.randrange(99)}
        if what == "nonsense":
            self.post("/v1/chat/completions", {"messages": chance.choice([7, "x", [], [{}]])}).read()
        elif what == "leave":
            body = json.dumps({**chat, "max_tokens": 500, "stream": True}).encode()
            with socket.create_connection(self.address, timeout=60) as connection:
                head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                connection.recv(chance.choice([1, 400, 4000]))
        elif what == "anthropic":
            answer = json.load(self.post("/v1/messages", {"max_tokens": tokens, "messages": messages}))
            assert answer["content"][-1]["type"] == "text", answer
        elif what == "ollama":
            lines = self.post("/api/chat", {"model": "m", "messages": messages, "options": {"num_predict": tokens}}).read().splitlines()
            self.complete(what, json.loads(lines[-1]).get("done"))
        elif what == "whole":
            answer = json.load(self.post("/v1/chat/completions", chat))
            assert answer["usage"]["completion_tokens"] <= tokens, answer
        else:
            with self.post("/v1/chat/completions", {**chat, "stream": True}) as response:
                last = b""
                for line in response:
                    if what == "slow":
                        time.sleep(0.005)
                    last = line.strip() or last
            self.complete(what, last == b"data: [DONE]" or b"shutting_down" in last)
        self.note(what)

    def complete(self, what, is_complete):
        if not is_complete:
            self.note(f"{what} cut off", f"{what}: the end is missing")


def resident(process):
    status = open(f"/proc/{process.pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def totals(address):
    return json.load(urllib.request.urlopen("http://%s:%d/v1/metrics" % address, timeout=60))


def written(address):
    """Tokens that were written to the cache so far."""
    counts = totals(address)
    return counts["total_prompt_tokens"] - counts["total_cached_tokens"] + counts["total_completion_tokens"]


def main():
    binary, model = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 600
    server, address = start(binary, model)
    try:
        clients = Clients(address)
        threads = [threading.Thread(target=clients.run, args=(seed,), daemon=True) for seed in range(CLIENTS)]
        for thread in threads:
            thread.start()
        began = time.time()
        while written(address) < WARM_UP * PARALLEL * CONTEXT:
            if time.time() - began > PATIENCE:
                sys.exit(f"the cache was not filled in {PATIENCE} s")
            time.sleep(1)
        warm, before = time.time(), totals(address)
        memory = []
        while time.time() - warm < seconds:
            time.sleep(1)
            memory.append(resident(server))
        after = totals(address)
        clients.stopping = True
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
        for thread in threads:
            thread.join(60)
    finally:
        server.kill()
    third = max(len(memory) // 3, 1)
    early, late = statistics.median(memory[:third]), statistics.median(memory[-third:])
    generated, read = (after[name] - before[name] for name in ("total_completion_tokens", "total_prompt_tokens"))
    print(f"{warm - began:.0f} s of warming up and {seconds:.0f} s, {CLIENTS} clients on {PARALLEL} sequences: {clients.counts}")
    print(f"after the warm-up {generated} tokens generated ({generated / seconds:.0f} a second), {read} tokens of prompts")
    print(f"memory: {early:.1f} MiB in the first third, {late:.1f} MiB in the last, {max(memory):.1f} MiB at most; exit code {code}")
    assert not clients.wrong, clients.wrong[:10]
    assert code == 0, "the server did not end well"
    assert late <= early * GROWTH, "memory grew"


main()
