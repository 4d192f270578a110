"""Makes a random model whose speed has the shape of a large one's, for measuring the time to the first token.

On a CPU a small real model spends most of a prefill outside the layers that a cached prefix saves. This one (Llama,
wide feed-forward layers, one small key-value head) does not: a cached prefix of 2,000 tokens makes the first token come
many times sooner, as it would on a GPU. What it says is noise, but noise that ends by itself after some dozens of
tokens and is read back as the very tokens it was made of, as a trained model's answers are: whole words, each with a
space before it. 53 MB, made in seconds:

    .backend/bin/python deploy/sglang/build_shaped.py .backend/models/shaped
    MODEL_PATH=.backend/models/shaped deploy/sglang/launch.sh
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 2048
SEED = 20260101
SPECIAL = {"bos_token": "<|start|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
# How sure the noise is of its next token, and how much it likes to end: at temperature 1, after 44 tokens on average.
SHARPNESS = 4.0
ENDING = 9.0
NEVER = -400.0
CHAT_TEMPLATE = (
    "{% if tools %}{{ '<|start|>tools\n' }}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "{{ '<|end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


def texts() -> Iterator[str]:
    """Some English prose that every Python has: the docstrings of its own standard library."""
    for path in sorted(Path(shutil.__file__).parent.glob("*.py")):
        yield path.read_text("utf-8", "replace")


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of ``VOCABULARY`` tokens."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL.values()), initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator(texts(), trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=trained, **SPECIAL)
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def shape_speech(model: LlamaForCausalLM, words: PreTrainedTokenizerFast) -> None:
    """Let it say whole words only, and end.

    Llama's output layer has no bias. So the first dimension of the hidden state is made a constant (every embedding has
    it, no layer writes to it), and what the output layer multiplies it with is then a bias for each token.
    """
    spoken = torch.full((VOCABULARY,), NEVER)
    for text, number in words.get_vocab().items():
        if re.fullmatch("Ġ[a-z]{3,}", text):
            spoken[number] = 0.0
    spoken[words.eos_token_id] = ENDING
    with torch.no_grad():
        embeddings, output = model.model.embed_tokens.weight, model.lm_head.weight
        constant = float(embeddings.std()) * embeddings.shape[1] ** 0.5
        embeddings[:, 0] = constant
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0, :] = 0
            layer.mlp.down_proj.weight[0, :] = 0
        # Were half of the squared length the constant's, it would be the root of half the width after the last norm.
        output *= SHARPNESS
        output[:, 0] = spoken / (embeddings.shape[1] / 2) ** 0.5


def build(target: Path) -> None:
    """Write the model folder; it appears under its name only when complete."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    words = tokenizer()
    words.save_pretrained(partial)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=4096,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=16384,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model = LlamaForCausalLM(config).to(torch.float32)
    shape_speech(model, words)
    model.save_pretrained(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def main() -> None:
    """Command line: one argument, the folder to make."""
    parser = argparse.ArgumentParser(description="Make a random model for measuring the time to the first token.")
    parser.add_argument("target", type=Path, help="folder to make; left alone where it already holds a model")
    target: Path = parser.parse_args().target
    if (target / "config.json").exists():
        sys.stderr.write(f"{target} is already there\n")
        return
    build(target)


if __name__ == "__main__":
    main()
