#!/usr/bin/env python3
"""Measures and writes the figures of README's section "Speed": the table beside llama.cpp, the
decode rates over the number of profiles as a table and a plot, the plot as SVG.

Everything between the two marks in README.md is replaced. Run it on a machine that does nothing
else. Options are peer.py's.
"""
import json
import re
import sys

import peer

README, SVG = "README.md", "tests/bench/decode.svg"
BEGIN, END = "<!-- figures: written by `make bench-readme` -->", "<!-- end of figures -->"


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join(["---"] * len(header)) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def peer_lines(result):
    machine, shares = result["machine"], result["shares"]
    judged = {words: goal for words, _, goal in peer.goals(result)}
    rows = []
    for key, words, _ in peer.GOALS:
        if key not in result["rows"]:
            continue
        row, goal = result["rows"][key], judged.get(f"{words}, times llama.cpp")
        rows.append([words, f"{row['peer']:.0f}", f"{row['preft']:.0f}", f"{row['ratio']:.1f}",
                     f"{goal:g}" if goal else ""])
    text = [f"Tokens per second with {machine['threads']} threads ({machine['isa']}), the same model "
            "file, medians of interleaved repetitions in one run:", ""]
    text += markdown(["", "llama.cpp", "preft", "times", "goal"], rows) + [""]
    parts = []
    if "prefill" in shares:
        parts.append(f"prefill reaches {100 * shares['prefill']:.0f} % of the machine's peak integer rate")
    if "decode1" in shares:
        parts.append(f"decoding one sequence reaches {100 * shares['decode1']:.0f} % of its read bandwidth")
    if "neighbour" in shares:
        parts.append(f"beside a busy process {100 * shares['neighbour']:.0f} % of the undisturbed rate "
                     f"remains (llama.cpp: {100 * shares['neighbour_peer']:.0f} %)")
    return text + ["; ".join(parts).capitalize() + ".", ""] if parts else text


def ratio_text(row):
    error = f" ± {2 * row['ratio_error']:.3f}" if "ratio_error" in row else ""
    return f"{row['ratio']:.3f}{error}"


def adapter_lines(report):
    kinds = ("base", "lorap", "direftp", "lora", "direft")
    rates, why, lorap = {}, {}, {}
    for row in report["rows"]:
        if "rate" in row:
            rates.setdefault(row["profiles"], {})[row["kind"]] = row["rate"]
            why.setdefault(row["profiles"], {})[row["kind"]] = row["reason"]
            if row["kind"] == "lorap":
                lorap[row["profiles"]] = row
    rows = []
    for n, of in sorted(rates.items()):
        rows.append([str(n)] + [f"{of[k]:.0f}" if k in of else "" for k in kinds] +
                    [ratio_text(lorap[n]),
                     f"{lorap[n]['full_ratio']:.2f}" if "full_ratio" in lorap[n] else "",
                     f"{why[n].get('lorap', '')} / {why[n].get('lora', '')}"])
    rank = max(row.get("rank", 0) for row in report["rows"])
    text = ["From another run: decode rates with as many sequences as profiles, each with its own adapter "
            f"of rank {rank} (bfloat16). `lora` and `direft` act on every token, as is usual in multi-LoRA "
            "serving. Ratios are medians over pairs of consecutive single steps, ± two standard errors. "
            "The last column says whether memory traffic (bytes) or arithmetic (operations) limits a step "
            "of `lorap` / `lora`, and what share of the step it explains at the machine's peak rates:", ""]
    text += markdown(["profiles", *kinds, "lorap : base", "lorap : lora", "limited by"], rows)
    notes = [note for note in report["notes"] if "|" in note]
    if notes:
        text += ["", "```", notes[0].strip("\n"), "```"]
    return text + ["", f"![Decode rate over the number of profiles]({SVG})", ""]


def adapters(o):
    # Short prompts: what is measured begins when all of them are read.
    command = [o.preft, "bench", "adapters", "--model", o.model, "--threads", str(o.threads),
               "--profiles", o.profiles, "--phases", "decode", "--prompt", "4", "--seconds", "30",
               "--svg", SVG, "--quiet", "--json"]
    return json.loads(peer.run(command))


def main():
    o = peer.options([("--profiles", "1,8,32,128,512", "numbers of profiles")])
    report = adapters(o)
    result = peer.compare(o)
    peer.print_table(result)
    lines = peer_lines(result) + adapter_lines(report)
    with open(README, encoding="utf-8") as f:
        text = f.read()
    figures = BEGIN + "\n\n" + "\n".join(lines) + "\n" + END
    new, n = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: figures, text, flags=re.S)
    if n != 1:
        sys.exit(f"{README}: the marks {BEGIN} and {END} are not there once")
    with open(README, "w", encoding="utf-8") as f:
        f.write(new)


if __name__ == "__main__":
    main()
