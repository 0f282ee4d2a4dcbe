"""Random LoRA adapters, the same numbers in two forms: a PEFT folder and llama.cpp's GGUF.

Float16 numbers of either sign between 1/64 and 1/32, from a seed; all seven maps of every layer.
Only the standard library is used.
"""
import json
import os
import random
import struct

# name in GGUF, name in PEFT, input width, output width, heads whose rows GGUF holds in pairs
MAPS = (
    ("attn_q", "self_attn.q_proj", "width", "q", "heads"),
    ("attn_k", "self_attn.k_proj", "width", "kv", "kv_heads"),
    ("attn_v", "self_attn.v_proj", "width", "kv", None),
    ("attn_output", "self_attn.o_proj", "q", "width", None),
    ("ffn_gate", "mlp.gate_proj", "width", "feed_forward", None),
    ("ffn_up", "mlp.up_proj", "width", "feed_forward", None),
    ("ffn_down", "mlp.down_proj", "feed_forward", "width", None),
)
# Sign and the two highest digits of a number stay, its exponent becomes that of 1/64.
HIGH_BYTE = bytes((b & 0x83) | 0x24 for b in range(256))
GGUF_STRING, GGUF_FLOAT32, GGML_F16 = 8, 6, 1


def numbers(rng, count):
    data = bytearray(rng.randbytes(2 * count))
    data[1::2] = data[1::2].translate(HIGH_BYTE)
    return bytes(data)


def pair_rows(data, row_bytes, heads):
    """Rows i and i + half of a head become neighbours, as llama files have them."""
    rows = [data[i:i + row_bytes] for i in range(0, len(data), row_bytes)]
    size = len(rows) // heads
    out = []
    for head in range(heads):
        for i in range(size // 2):
            out.append(rows[head * size + i])
            out.append(rows[head * size + size // 2 + i])
    return b"".join(out)


def tensors(shape, rank, seed):
    """Yields (GGUF name, PEFT name, rows, columns, bytes, bytes for GGUF)."""
    rng = random.Random(seed)
    sizes = dict(shape, q=shape["heads"] * shape["head_size"],
                 kv=shape["kv_heads"] * shape["head_size"])
    for layer in range(shape["layers"]):
        for gguf, peft, width_in, width_out, heads in MAPS:
            a = numbers(rng, rank * sizes[width_in])
            b = numbers(rng, rank * sizes[width_out])
            paired = pair_rows(b, 2 * rank, shape[heads]) if heads else b
            name = f"blk.{layer}.{gguf}.weight.lora_"
            key = f"base_model.model.model.layers.{layer}.{peft}.lora_"
            yield name + "a", key + "A.weight", rank, sizes[width_in], a, a
            yield name + "b", key + "B.weight", sizes[width_out], rank, b, paired


def write_peft(folder, rank, alpha, items):
    os.makedirs(folder, exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "lora_dropout": 0.0,
              "target_modules": [peft.split(".")[1] for _, peft, *_ in MAPS], "bias": "none",
              "task_type": "CAUSAL_LM", "fan_in_fan_out": False, "use_rslora": False}
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    header, at = {}, 0
    for _, key, rows, columns, data, _ in items:
        header[key] = {"dtype": "F16", "shape": [rows, columns],
                       "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for item in items:
            f.write(item[4])


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def write_gguf(path, alpha, items):
    keys = [("general.architecture", "llama"), ("general.type", "adapter"),
            ("adapter.type", "lora"), ("adapter.lora.alpha", float(alpha))]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(items), len(keys))
    for key, value in keys:
        head += gguf_string(key)
        if isinstance(value, str):
            head += struct.pack("<I", GGUF_STRING) + gguf_string(value)
        else:
            head += struct.pack("<If", GGUF_FLOAT32, value)
    at = 0
    for name, _, rows, columns, _, data in items:
        head += gguf_string(name) + struct.pack("<IQQIQ", 2, columns, rows, GGML_F16, at)
        at += len(data) + -len(data) % 32
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for item in items:
            f.write(item[5] + bytes(-len(item[5]) % 32))


def write_adapters(folder, shape, rank, count):
    """shape: layers, width, heads, kv_heads, head_size, feed_forward. Returns PEFT folders and
    GGUF files."""
    pefts, ggufs = [], []
    os.makedirs(folder, exist_ok=True)
    for seed in range(count):
        items = list(tensors(shape, rank, seed))
        pefts.append(os.path.join(folder, f"peft-{seed}"))
        ggufs.append(os.path.join(folder, f"lora-{seed}.gguf"))
        write_peft(pefts[-1], rank, 2 * rank, items)
        write_gguf(ggufs[-1], 2 * rank, items)
    return pefts, ggufs
