#!/usr/bin/env python3
"""`preft train` beside transformers + peft: the same model file, the same conversations, one run,
repetitions in turn, medians of real tokens per second, and the processes' peak memory.

usage: train.py [--model FILE.gguf] [--repeats 2] [--steps 8] [--threads 2] [--dtypes bfloat16,float32]

The peer is tests/bench/train_peer.py in the environment $TORCH_ENV, or in build/torch-env, which is
made from the package index if need be (several GB). The goals against each dtype:
1.3 times its rate, a third of its memory. A dtype for which the processor has no instructions can
take very long; after --patience seconds its rate is given as a bound."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PACKAGES = ["torch", "transformers", "peft", "gguf", "accelerate"]
GOAL_RATE, GOAL_MEMORY = 1.3, 1 / 3

QUESTIONS = ["How do I keep %s fresh?", "Tell me about %s.", "What goes well with %s?",
             "Why do people like %s?", "Where does %s come from?"]
THINGS = ["bread", "green tea", "a small garden", "old maps", "winter apples", "wool socks",
          "sea salt", "paper lamps", "brown rice", "a bicycle", "wild honey", "clay pots"]
ANSWERS = ["Keep it cool and dry, and look at it once a week.",
           "It has a long history. Most of it was made by hand, and much still is.",
           "Try it plain first. Then add one thing at a time until it is right.",
           "People have used it for hundreds of years, mostly because it is simple.",
           "It comes from the north, where the summers are short and the evenings long."]


def write_chats(path, n=48):
    """Conversations of one to three turns, the same ones every time."""
    chance = random.Random(1)
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(n):
            messages = []
            for _ in range(chance.randint(1, 3)):
                question = chance.choice(QUESTIONS) % chance.choice(THINGS)
                answer = " ".join(chance.sample(ANSWERS, chance.randint(1, 2)))
                messages += [{"role": "user", "content": question},
                             {"role": "assistant", "content": answer}]
            out.write(json.dumps({"messages": messages}) + "\n")


def find_python(build):
    folder = os.environ.get("TORCH_ENV") or os.path.join(build, "torch-env")
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        print("making %s: %s" % (folder, " ".join(PACKAGES)), file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def run_with_peak(command, patience=None):
    """Standard output and peak memory in bytes; (None, 0) if it takes longer than patience."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        begin = time.monotonic()
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if patience and time.monotonic() - begin > patience:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                return None, 0
            time.sleep(0.05)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit("%s ended with exit code %d" % (command[0], process.returncode))
        out.seek(0)
        return out.read().decode(), usage.ru_maxrss * 1024


class Figures:
    def __init__(self, name):
        self.name, self.rates, self.peaks, self.bound = name, [], [], False

    def rate(self):
        return statistics.median(self.rates)

    def peak(self):
        return max(self.peaks) if self.peaks else 0


def run_preft(o, chats, folder, figures):
    text, peak = run_with_peak(
        [o.preft, "train", "--model", o.model, "--threads", str(o.threads), "--data", chats, "--out",
         os.path.join(folder, "adapter"), "--rank", "8", "--batch", "4", "--steps", str(o.steps),
         "--json", "--quiet"])
    figures.rates.append(json.loads(text)["tokens_per_second"])
    figures.peaks.append(peak)


def run_peer(o, python, chats, dtype, figures):
    begin = time.monotonic()
    text, _ = run_with_peak(
        [python, os.path.join(HERE, "train_peer.py"), o.model, chats, dtype, "--steps",
         str(o.steps), "--threads", str(o.threads)], o.patience)
    if text is None:  # not one run in that time: its steps have some 350 tokens each
        figures.rates.append(o.steps * 350 / (time.monotonic() - begin))
        figures.bound = True
        return
    result = json.loads(text)
    figures.rates.append(result["tokens_per_second"])
    figures.peaks.append(result["peak_bytes"])


def report(ours, peers):
    print("%-28s %12s %10s %10s %10s" % ("", "tokens/s", "peak MiB", "rate", "memory"))
    print("%-28s %12.1f %10.0f" % (ours.name, ours.rate(), ours.peak() / 2**20))
    met = True
    for peer in peers:
        rate, memory = ours.rate() / peer.rate(), ours.peak() / peer.peak() if peer.peaks else 0
        good = rate >= GOAL_RATE and memory <= GOAL_MEMORY
        met = met and good
        print("%-28s %s%11.1f %10s %9.2fx %10s  %s" % (
            peer.name, "<" if peer.bound else " ", peer.rate(),
            "%.0f" % (peer.peak() / 2**20) if peer.peaks else "-", rate,
            "%.2fx" % memory if peer.peaks else "-", "met" if good else "missed"))
    print("goals: at least %.1f times the rate, at most a third of the memory" % GOAL_RATE)
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preft", default=os.path.join(TOP, "preft"))
    parser.add_argument("--model")
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--patience", type=float, default=300, help="seconds for a run of the peer")
    o = parser.parse_args()
    if not o.model:
        shown = subprocess.run([o.preft, "model", "show", "--json"], check=True, capture_output=True)
        o.model = json.loads(shown.stdout)["path"]
    python = find_python(o.build)
    ours = Figures("preft train, lorap r8")
    peers = {dtype: Figures("transformers + peft, " + dtype) for dtype in o.dtypes.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        chats = os.path.join(folder, "chats.jsonl")
        write_chats(chats)
        for repeat in range(o.repeats):
            run_preft(o, chats, folder, ours)
            for dtype, figures in peers.items():
                if not figures.bound:
                    run_peer(o, python, chats, dtype, figures)
    return 0 if report(ours, peers.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
