"""Measures servers that speak OpenAI's chat interface, side by side.

    python server.py throughput SERVER... [--streams 8] [--tokens 64] [--rounds 3]
    python server.py prefix SERVER... [--words 900]
    python server.py gap SERVER... [--words 1900] [--tokens 200] [--rounds 3] [--pause 50]

throughput  tokens per second of all streams together, for one stream and for --streams, servers in turn
prefix      time to the first token of two requests with the same long system prompt and other questions
gap         gaps between two tokens of a running stream, quiet and while a long prompt arrives

A SERVER is the URL of one that runs, or a command that starts one, with {port} where its port goes:

    python server.py throughput \\
        "akunu serve model.gguf --port {port} --parallel 8 --ctx 1024 --log off" \\
        "llama-server -m model.gguf --port {port} -np 8 -c 8192 --no-webui"

URLs are http://HOST:PORT. Python's standard library alone; nothing leaves this machine unless a URL does.
"""

import argparse
import contextlib
import json
import pathlib
import re
import selectors
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

# Seconds a server may take to load its model.
PATIENCE = 120
WORDS = "the river bends around a small town where people mend boats and tell long stories about rain".split()


class Server:
    def __init__(self, url, name):
        self.url, self.name = url, name


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def serving(what):
    """A server: one that runs, or one that runs as long as this does."""
    if what.startswith("http://"):
        yield Server(what.rstrip("/"), what)
        return
    port = free_port()
    command = shlex.split(what.replace("{port}", str(port)))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + PATIENCE
        while not is_up(url):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"does not serve: {shlex.join(command)}")
            time.sleep(0.1)
        yield Server(url, pathlib.Path(command[0]).name)
    finally:
        process.terminate()
        process.wait()


def is_up(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return response.status == 200
    except (OSError, urllib.error.HTTPError):
        return False


def text(words, seed):
    """Words in an order that depends on the seed."""
    return " ".join(WORDS[(i * (2 * seed + 1) + i // len(WORDS) + seed) % len(WORDS)] for i in range(words))


def wish(messages, tokens):
    """What a stream is asked for with."""
    return {
        "messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True},
    }


def stream(url, messages, tokens, began=None):
    """Times at which pieces of an answer arrived, and the number of its tokens."""
    body = json.dumps(wish(messages, tokens)).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    start = time.perf_counter()
    times, count = [], 0
    with urllib.request.urlopen(request, timeout=300) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if chunk.get("usage"):
                count = chunk["usage"]["completion_tokens"]
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                times.append(time.perf_counter() - start)
                if began:
                    began.set()
    return times, count


def ask(question, system=None):
    system = [{"role": "system", "content": system}] if system else []
    return system + [{"role": "user", "content": question}]


def connect(url, messages, tokens):
    """A connection on which a stream was asked for."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(wish(messages, tokens)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(head.encode() + body)
    return connection


def together(url, streams, tokens, seed):
    """Tokens per second of all streams together. One thread that looks at nothing but their ends: what is measured shares its cores
    with this program."""
    questions = [ask(f"Tell me a long story about {text(6, seed * 100 + i)}.") for i in range(streams)]
    ends = selectors.DefaultSelector()
    start = time.perf_counter()
    for question in questions:
        ends.register(connect(url, question, tokens), selectors.EVENT_READ, bytearray())
    count = 0
    while ends.get_map():
        for key, _ in ends.select():
            piece = key.fileobj.recv(1 << 16)
            key.data.extend(piece)
            if not piece or b"data: [DONE]" in key.data[-64:]:
                ends.unregister(key.fileobj)
                key.fileobj.close()
                found = re.findall(rb'"completion_tokens": *([0-9]+)', key.data)
                if not found:
                    sys.exit(f"{url} ended a stream with {bytes(key.data[-200:])}")
                count += int(found[-1])
    return count / (time.perf_counter() - start)


def throughput(servers, arguments):
    rates = {(server, n): [] for server in servers for n in (1, arguments.streams)}
    # The first round warms up and does not count.
    for i in range(arguments.rounds + 1):
        for n in (1, arguments.streams):
            for server in servers:
                rate = together(server.url, n, arguments.tokens, i)
                if i > 0:
                    rates[server, n].append(rate)
    for server in servers:
        one, many = (statistics.median(rates[server, n]) for n in (1, arguments.streams))
        print(f"{server.name}: one stream {one:.1f} tokens/s, {arguments.streams} streams {many:.1f} tokens/s ({many / one:.2f}x); "
              f"rounds {', '.join(f'{rate:.1f}' for rate in rates[server, arguments.streams])}")


def prefix(servers, arguments):
    for server in servers:
        for i in range(arguments.rounds):
            system = text(arguments.words, time.time_ns() % 1000 + i)
            first = stream(server.url, ask("What is this about?", system), 4)[0][0]
            second = stream(server.url, ask("Who tells it, and where?", system), 4)[0][0]
            print(f"{server.name}: first {first * 1e3:.0f} ms, second {second * 1e3:.0f} ms, {first / second:.1f}x sooner")


def gap(servers, arguments):
    def between(times, begin, end):
        """Milliseconds between two pieces, of those that came in that time."""
        return [(b - a) * 1e3 for a, b in zip(times, times[1:]) if a < end and b > begin]

    question = ask("Tell me a very long story.")
    for server in servers:
        url = server.url
        quiet, loud, waits = [], [], []
        # The first round warms up and does not count.
        for i in range(arguments.rounds + 1):
            alone = between(stream(url, question, arguments.tokens)[0], 0, float("inf"))
            began, result = threading.Event(), []
            running = threading.Thread(target=lambda: result.append(stream(url, question, arguments.tokens, began)[0]))
            start = time.perf_counter()
            running.start()
            began.wait(60)
            asked = time.perf_counter() - start
            first = stream(url, ask(text(arguments.words, time.time_ns() % 1000)), 2)[0][0]
            running.join()
            if i > 0:
                quiet += alone
                loud += between(result[0], asked, asked + first)
                waits.append(first * 1e3)
        bound = 2 * statistics.median(quiet) + arguments.pause
        loud.sort()
        beyond = sum(gap > bound for gap in loud)
        print(f"{server.name}: quiet gap median {statistics.median(quiet):.1f} ms, longest {max(quiet):.1f} ms; "
              f"while a long prompt arrives {len(loud)} gaps, median {statistics.median(loud):.1f} ms, 99 of 100 within "
              f"{loud[len(loud) * 99 // 100]:.1f} ms, longest {loud[-1]:.1f} ms, {beyond} beyond {bound:.1f} ms; "
              f"the prompt's first token after {statistics.median(waits):.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["throughput", "prefix", "gap"])
    parser.add_argument("servers", nargs="+", metavar="SERVER")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=900)
    parser.add_argument("--pause", type=float, default=50, help="milliseconds a chunk of a prompt may take, with gap: the bound is twice the quiet gap and this")
    arguments = parser.parse_args()
    measure = {"throughput": throughput, "prefix": prefix, "gap": gap}[arguments.what]
    with contextlib.ExitStack() as running:
        measure([running.enter_context(serving(what)) for what in arguments.servers], arguments)


main()
