#!/usr/bin/env python3
"""preft beside llama.cpp: the same model file, one run, repetitions in turn, medians.

Builds the peer from the source package of llama-cpp-python, which holds llama.cpp's whole tree, in
a virtual environment below --build; --peer DIR takes a folder that has llama-bench,
llama-batched-bench and llama-server instead. Only the standard library is used.
"""
import argparse
import ctypes
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request

import lora

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
TOOLS = ("llama-bench", "llama-batched-bench", "llama-server")
USERS, RANK, ANSWER = 8, 16, 64
TEXT = ("You are a helpful assistant. " + "Tell me about the history of the city and its people in "
        "some detail please. " * 7)

# What is compared: key, words, least ratio to the peer on AVX-512. On AVX2 alone it is 1.5.
GOALS = (
    ("prefill", "prefill, 512 tokens", 4.0),
    ("decode1", "decode, one sequence", 1.5),
    ("decode8", "decode, 8 sequences", 3.0),
    ("decode32", "decode, 32 sequences", 3.0),
    ("users", "8 users, each an own LoRA (lorap)", 5.0),
    ("users_full", "the same at all positions (lora)", None),
    ("neighbour", "decode, 8 sequences, a busy neighbour", None),
)
WITH_AVX512 = ("avx512", "amx")
AVX2_GOAL = 1.5


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- the peer ------------------------------------------------------------------------------------

def has_tools(folder, tools=TOOLS):
    return all(os.access(os.path.join(folder, tool), os.X_OK) for tool in tools)


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])} ...: exit status {done.returncode}\n"
                 f"{done.stderr[-3000:]}")
    return done.stdout


def source_tree(build):
    """Fetches and unpacks the source package once; returns llama.cpp's folder in it."""
    tree = os.path.join(build, f"llama_cpp_python-{VERSION}", "vendor", "llama.cpp")
    if os.path.isdir(tree):
        return tree
    python = os.path.join(build, "venv", "bin", "python")
    if not os.path.exists(python):
        run([sys.executable, "-m", "venv", os.path.join(build, "venv")])
    say(f"fetching {PACKAGE} {VERSION}")
    run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
         "--dest", build, f"{PACKAGE}=={VERSION}"])
    archive = os.path.join(build, f"llama_cpp_python-{VERSION}.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(build)
    return tree


def find_cmake(build):
    for path in os.environ.get("PATH", "").split(os.pathsep):
        if os.access(os.path.join(path, "cmake"), os.X_OK):
            return os.path.join(path, "cmake")
    pip = [os.path.join(build, "venv", "bin", "python"), "-m", "pip"]
    run(pip + ["install", "--quiet", "cmake"])
    return os.path.join(build, "venv", "bin", "cmake")


# What the peer is built with where its own choice of instructions breaks off (AMX, with 0.3.36): a
# set of instructions as the processor names it, and the option for it.
SETS_BELOW_AMX = {"avx512f": "GGML_AVX512", "avx512vbmi": "GGML_AVX512_VBMI",
                  "avx512_vnni": "GGML_AVX512_VNNI", "avx512_bf16": "GGML_AVX512_BF16"}


def processor_flags():
    with open("/proc/cpuinfo", encoding="ascii") as info:
        return next((line.split() for line in info if line.startswith("flags")), [])


def works(tools, model):
    """Whether the peer computes at all."""
    return subprocess.run([os.path.join(tools, "llama-bench"), "-m", model, "-t", "1", "-p", "64",
                           "-n", "1", "-r", "1"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def build_in(out, tree, cmake, jobs, options):
    options = ["CMAKE_BUILD_TYPE=Release", "LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF",
               "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF", "LLAMA_BUILD_UI=OFF",
               "LLAMA_BUILD_WEBUI=OFF", "LLAMA_BUILD_SERVER=ON", "LLAMA_BUILD_TOOLS=ON"] + options
    run([cmake, "-S", tree, "-B", out] + ["-D" + o for o in options])
    for tool in TOOLS:
        run([cmake, "--build", out, "--target", tool, "-j", str(jobs)])


def build_peer(build, jobs, model):
    """Returns the folder with the peer's tools, built for this processor."""
    os.makedirs(build, exist_ok=True)
    out = os.path.join(build, "llama.cpp")
    tools = os.path.join(out, "bin")
    if not has_tools(tools):
        tree = source_tree(build)
        cmake = find_cmake(build)
        say("building the peer: some minutes")
        build_in(out, tree, cmake, jobs, ["GGML_NATIVE=ON"])
    if not works(tools, model):
        say("the peer as built for this processor breaks off; building it again without AMX")
        flags = processor_flags()
        build_in(out, source_tree(build), find_cmake(build), jobs,
                 ["GGML_NATIVE=OFF"] + [f"{o}=ON" for f, o in SETS_BELOW_AMX.items() if f in flags])
    return tools


# --- a busy neighbour ----------------------------------------------------------------------------

class Neighbour:
    """Another process that computes on the first of our cores for as long as it is open."""

    def __enter__(self):
        self.pid = os.fork()
        if self.pid == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            while True:
                pass
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


# --- llama.cpp -----------------------------------------------------------------------------------

class Peer:
    def __init__(self, tools, model, threads, ggufs):
        self.tools, self.model, self.threads, self.ggufs = tools, model, threads, ggufs
        self.server, self.port = None, 0

    def tool(self, name):
        return [os.path.join(self.tools, name), "-m", self.model, "-t", str(self.threads)]

    def prefill(self):
        out = run(self.tool("llama-bench") + ["-p", "512", "-n", "0", "-r", "1", "-o", "json"])
        return json.loads(out)[0]["avg_ts"]

    def decode(self, batches):
        out = run(self.tool("llama-batched-bench") +
                  ["-c", "16384", "-b", "2048", "-ub", "512", "-npp", "128", "-ntg", "32",
                   "-npl", ",".join(map(str, batches)), "--output-format", "jsonl"])
        rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return {row["pl"]: row["speed_tg"] for row in rows}

    def start_server(self, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = self.tool("llama-server") + [
            "-np", str(USERS), "-c", str(1024 * USERS), "--host", "127.0.0.1",
            "--port", str(self.port), "--lora-init-without-apply"]
        for path in self.ggufs:
            command += ["--lora", path]
        with open(log, "wb") as out:
            self.server = subprocess.Popen(command, stdout=out, stderr=out)
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as r:
                    if r.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            if self.server.poll() is not None:
                break
            time.sleep(0.2)
        sys.exit(f"llama-server did not start: see {log}")

    def stop_server(self):
        if self.server:
            self.server.terminate()
            self.server.wait()
            self.server = None

    def users(self):
        """Generated tokens per second from the first request to the last answer's end."""
        answers = [None] * USERS

        def one(i):
            body = {"prompt": f"User {i}. {TEXT}", "n_predict": ANSWER, "ignore_eos": True,
                    "temperature": 0, "cache_prompt": False, "stream": False,
                    "lora": [{"id": i, "scale": 1.0}]}
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion",
                                             json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=600) as response:
                answers[i] = json.load(response)["timings"]["predicted_n"]

        threads = [threading.Thread(target=one, args=(i,)) for i in range(USERS)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begin
        if None in answers:
            sys.exit("llama-server: a request failed")
        return sum(answers) / seconds


# --- preft ---------------------------------------------------------------------------------------

class Preft:
    def __init__(self, program, model, threads, pefts):
        self.program, self.model, self.threads, self.pefts = program, model, threads, pefts

    def command(self, *words):
        return [self.program, *words, "--model", self.model, "--threads", str(self.threads),
                "--quiet", "--json"]

    def bench(self, kind, context, batches):
        out = run(self.command("bench", kind, "--contexts", str(context), "--batches",
                               ",".join(map(str, batches)), "--repeats", "1"))
        report = json.loads(out)
        return {row["batch"]: row for row in report["rows"]}, report

    def users(self, positions):
        lines = [{"id": i, "prompt": f"User {i}. {TEXT}", "adapter": self.pefts[i], "user": i,
                  "positions": positions, "max_tokens": ANSWER, "ignore_eos": True}
                 for i in range(USERS)]
        command = [self.program, "batch", "-", "--model", self.model, "--threads",
                   str(self.threads), "--quiet"]
        out = run(command, input="".join(json.dumps(line) + "\n" for line in lines))
        answers = [json.loads(line) for line in out.splitlines()]
        for answer in answers:
            if "error" in answer:
                sys.exit(f"preft batch: {answer['error']['message']}")
        longest = max(sum(a["timings"][k] for k in ("queued_ms", "prefill_ms", "decode_ms"))
                      for a in answers)
        return sum(a["usage"]["completion_tokens"] for a in answers) * 1e3 / longest


# --- one run -------------------------------------------------------------------------------------

class Samples:
    """Figures of both, and their ratios in the same repetition."""

    def __init__(self):
        self.peer, self.preft = {}, {}

    def add(self, key, peer, preft):
        self.peer.setdefault(key, []).append(peer)
        self.preft.setdefault(key, []).append(preft)

    def table(self):
        rows = {}
        for key in self.peer:
            ratios = [b / a for a, b in zip(self.peer[key], self.preft[key])]
            rows[key] = {"peer": statistics.median(self.peer[key]),
                         "preft": statistics.median(self.preft[key]),
                         "ratio": statistics.median(ratios)}
        return rows


def measure(peer, preft, repeats, only):
    samples, shares, report = Samples(), {}, None

    def wanted(*keys):
        return not only or any(key in only for key in keys)

    for repeat in range(repeats):
        say(f"repetition {repeat + 1} of {repeats}")
        if wanted("prefill"):
            theirs = peer.prefill()
            rows, report = preft.bench("prefill", 512, [1])
            samples.add("prefill", theirs, rows[1]["rate"])
            shares.setdefault("prefill", []).append(rows[1]["compute_share"])
        if wanted("decode1", "decode8", "decode32", "neighbour"):
            theirs = peer.decode([1, 8, 32])
            ours, report = preft.bench("decode", 128, [1, 8, 32])
            for batch in (1, 8, 32):
                samples.add(f"decode{batch}", theirs[batch], ours[batch]["rate"])
            shares.setdefault("decode1", []).append(ours[1]["read_share"])
        if wanted("users", "users_full"):
            theirs = peer.users()
            samples.add("users", theirs, preft.users("prompt"))
            samples.add("users_full", theirs, preft.users("all"))
        if wanted("neighbour"):
            with Neighbour():
                busy = peer.decode([8])[8], preft.bench("decode", 128, [8])[0][8]["rate"]
            samples.add("neighbour", *busy)
            shares.setdefault("neighbour_peer", []).append(busy[0] / free_rate(samples.peer))
            shares.setdefault("neighbour", []).append(busy[1] / free_rate(samples.preft))
    machine = report["machine"] if report else {}
    return {"machine": machine, "rows": samples.table(),
            "shares": {key: statistics.median(values) for key, values in shares.items()}}


def free_rate(figures):
    """The latest undisturbed rate of 8 sequences."""
    return figures["decode8"][-1]


def goals(result):
    """(words, value, goal) of every goal that this run can judge."""
    avx512 = result["machine"].get("isa") in WITH_AVX512
    out = []
    for key, words, least in GOALS:
        if key in result["rows"] and least:
            goal = least if avx512 else AVX2_GOAL
            out.append((f"{words}, times llama.cpp", result["rows"][key]["ratio"], goal))
    for key, words, least in (("prefill", "prefill, share of the integer peak", 0.65),
                              ("decode1", "decode of one, share of the read bandwidth", 0.70),
                              ("neighbour", "a busy neighbour, share of the free run", 0.45)):
        if key in result["shares"]:
            out.append((words, result["shares"][key], least))
    return out


def print_table(result, out=sys.stdout):
    machine = result["machine"]
    if machine:
        print(f"{machine['isa']}, {machine['threads']} threads, reads {machine['read_gb_s']:.1f} "
              f"GB/s, {machine['int_gop_s']:.0f} integer Gop/s; tokens/s", file=out)
    print(f"{'':44}{'llama.cpp':>10}{'preft':>10}{'ratio':>8}", file=out)
    for key, words, _ in GOALS:
        if key in result["rows"]:
            row = result["rows"][key]
            print(f"{words:44}{row['peer']:10.1f}{row['preft']:10.1f}{row['ratio']:8.2f}", file=out)
    shares = result["shares"]
    if "neighbour" in shares:
        print(f"{'share of the free run with the neighbour':44}{shares['neighbour_peer']:10.2f}"
              f"{shares['neighbour']:10.2f}", file=out)
    if machine and machine["isa"] not in WITH_AVX512:
        print(f"No AVX-512 here: the goal for both on AVX2 is {AVX2_GOAL} times; design goals are "
              "for AVX-512.", file=out)
    for words, value, goal in goals(result):
        verdict = "met" if value >= goal else "missed"
        print(f"{verdict}: {words} is {value:.2f}, goal {goal:.2f}", file=out)


def options(more=()):
    """more: (name, default, help) of further options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--preft", default="./preft")
    parser.add_argument("--model", help="a GGUF file of family llama; default: preft's")
    parser.add_argument("--build", default="build/peer", help="where the peer is built")
    parser.add_argument("--peer", help="a folder with the peer's tools: nothing is built")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", help="keys of the table, with commas: " +
                        ",".join(key for key, *_ in GOALS))
    parser.add_argument("--json", help="write the figures to this file too")
    for name, default, text in more:
        parser.add_argument(name, default=default, help=text)
    o = parser.parse_args()
    if not o.model:
        models = json.loads(run([o.preft, "model", "list", "--json"]))
        o.model = next(m["path"] for m in models if m["installed"])
    return o


def compare(o):
    """Builds or finds the peer, measures both."""
    shape = json.loads(run([o.preft, "check", "--json", o.model]))
    tools = o.peer or build_peer(o.build, o.threads, o.model)
    only = o.only.split(",") if o.only else None
    users = not only or "users" in only or "users_full" in only
    needed = TOOLS if users else TOOLS[:2]
    if not has_tools(tools, needed):
        sys.exit(f"{tools}: {', '.join(needed)} are needed there")
    pefts, ggufs = [], []
    if users:
        pefts, ggufs = lora.write_adapters(os.path.join(o.build, "adapters"), shape, RANK, USERS)
    peer = Peer(tools, o.model, o.threads, ggufs)
    try:
        if ggufs:
            peer.start_server(os.path.join(o.build, "server.log"))
        return measure(peer, Preft(o.preft, o.model, o.threads, pefts), o.repeats, only)
    finally:
        peer.stop_server()


def main():
    o = options()
    result = compare(o)
    print_table(result)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
