"""llama.cpp's HTTP server, as the xllamacpp package brings it, for scripts/bench/server.py to measure beside akunu's.

    python peer_server.py MODEL [--parallel 8] [--ctx 1024] [--threads 2]

Prints its address and serves until its standard input ends. --ctx is for each of the parallel answers.
"""

import argparse
import sys

import xllamacpp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--parallel", type=int, default=8)
parser.add_argument("--ctx", type=int, default=1024)
parser.add_argument("--threads", type=int, default=2)
arguments = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = arguments.model
params.n_parallel = arguments.parallel
params.n_ctx = arguments.ctx * arguments.parallel
params.cpuparams.n_threads = arguments.threads
params.cpuparams_batch.n_threads = arguments.threads
params.port = 0
server = xllamacpp.Server(params)
print(f"listening on {server.listening_address}", flush=True)
sys.stdin.read()
