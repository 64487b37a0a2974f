"""Networks on words and sounds: the classes of the `transformers` package with random weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers

Inputs = dict[str, Any]


def _ids(batch: int, length: int, words: int) -> Any:
    return torch.randint(0, words, (batch, length))


def bert(layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522, batch: int = 1, length: int = 128) -> tuple[Any, Inputs]:
    """BERT with its head of masked words; as it stands the base one."""
    config = transformers.BertConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width
    )
    ids = _ids(batch, length, words)
    return transformers.BertForMaskedLM(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def gpt2(layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257, batch: int = 1, length: int = 128) -> tuple[Any, Inputs]:
    """GPT-2; as it stands the small one."""
    config = transformers.GPT2Config(vocab_size=words, n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
    ids = _ids(batch, length, words)
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def llama(layers: int = 8, width: int = 512, heads: int = 8, words: int = 32000, batch: int = 1, length: int = 128) -> tuple[Any, Inputs]:
    """Llama with two heads of queries for one of keys."""
    config = transformers.LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=11 * width // 4, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads // 2, use_cache=False,
    )  # fmt: skip
    ids = _ids(batch, length, words)
    return transformers.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}


def t5(layers: int = 6, width: int = 512, heads: int = 8, words: int = 32128, batch: int = 1, length: int = 64) -> tuple[Any, Inputs]:
    """T5; as it stands the small one."""
    config = transformers.T5Config(
        vocab_size=words, d_model=width, d_kv=width // heads, d_ff=4 * width, num_layers=layers, num_heads=heads, use_cache=False,
        decoder_start_token_id=0,
    )  # fmt: skip
    ids = _ids(batch, length, words)
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids}


def whisper(
    layers: int = 4, width: int = 384, heads: int = 6, words: int = 51865, frames: int = 3000, batch: int = 1, length: int = 32
) -> tuple[Any, Inputs]:
    """Whisper; as it stands the tiny one."""
    config = transformers.WhisperConfig(
        vocab_size=words, d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, max_source_positions=frames // 2,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    sound = torch.randn(batch, 80, frames)
    return transformers.WhisperForConditionalGeneration(config), {"input_features": sound, "labels": _ids(batch, length, words)}
