"""What one would run instead of `preft train`: transformers + peft, LoRA on the seven maps.

usage: train_peer.py MODEL.gguf CHATS.jsonl DTYPE [--rank 8] [--steps 6] [--threads 2]

Trains on the conversations as they come, four a step, padded to the longest as a collator does, and
prints one line of JSON: tokens per second (median over the steps after the first; only real tokens
count, not padding), the losses, and the peak memory of the process in bytes."""
import argparse
import json
import os
import resource
import statistics
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

MAPS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def read_examples(tokenizer, path):
    """Ids of each conversation and which of them are learned: the answers and their end."""
    examples = []
    end = tokenizer.encode("<|im_end|>", add_special_tokens=False)
    for line in open(path, encoding="utf-8"):
        ids, learned = [], []
        for message in json.loads(line)["messages"]:
            head = tokenizer.encode("<|im_start|>%s\n" % message["role"], add_special_tokens=False)
            body = tokenizer.encode(message["content"], add_special_tokens=False) + end
            answer = message["role"] == "assistant"
            ids += head + body
            learned += [False] * len(head) + [answer] * len(body)
            tail = tokenizer.encode("\n", add_special_tokens=False)
            ids += tail
            learned += [False] * len(tail)
        examples.append((ids, learned))
    return examples


def collate(examples, pad):
    longest = max(len(ids) for ids, _ in examples)
    ids = torch.full((len(examples), longest), pad)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for row, (tokens, learned) in enumerate(examples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
        for i, wanted in enumerate(learned):
            if wanted:
                labels[row, i] = tokens[i]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    folder, file = os.path.dirname(os.path.abspath(o.model)), os.path.basename(o.model)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=getattr(torch, o.dtype)
    )
    model = get_peft_model(
        model, LoraConfig(r=o.rank, lora_alpha=2 * o.rank, target_modules=MAPS, task_type="CAUSAL_LM")
    )
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    examples = read_examples(tokenizer, o.data)
    rates, losses = [], []
    for step in range(o.steps):
        first = step * o.batch % len(examples)
        batch = collate((examples + examples)[first : first + o.batch], 0)
        begin = time.perf_counter()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rates.append(int(batch["attention_mask"].sum()) / (time.perf_counter() - begin))
        losses.append(round(float(loss), 4))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "dtype": o.dtype,
                "tokens_per_second": statistics.median(rates[1:] or rates),
                "losses": losses,
                "peak_bytes": peak,
            }
        )
    )


if __name__ == "__main__":
    main()
