"""One training step of ELECTRA-Small by each toolkit: same sizes (paper, table 6), dropout 0.1, AdamW, clipping, random tokens.

A side is a function of (batch size, precision, device) that returns a step to be called again and again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

VOCABULARY, LENGTH, MASKED, MASK = 30_522, 128, 0.15, 103
Step = Callable[[], None]


def networks(attention: str) -> tuple[Any, Any]:
    """Generator and discriminator of `transformers`, sharing their embedding tables."""
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    shape = {"vocab_size": VOCABULARY, "attn_implementation": attention}
    small = ElectraConfig(hidden_size=64, intermediate_size=256, num_attention_heads=1, **shape)
    generator, discriminator = ElectraForMaskedLM(small), ElectraForPreTraining(ElectraConfig(**shape))
    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        shared = getattr(discriminator.electra.embeddings, table).weight
        getattr(generator.electra.embeddings, table).weight = shared
    return generator, discriminator


def adamw(*modules: torch.nn.Module) -> tuple[torch.optim.Optimizer, list[torch.nn.Parameter]]:
    parameters = list({id(p): p for net in modules for p in net.parameters()}.values())
    return torch.optim.AdamW(parameters, lr=5e-4, eps=1e-6, weight_decay=0.01), parameters


def transformers_step(
    attention: str, compiled: bool, batch_size: int, precision: torch.dtype, device: torch.device
) -> Step:
    """The step as a user writes it with the classes: the vocabulary's softmax at every position, Gumbel noise to sample."""
    generator, discriminator = (net.to(device) for net in networks(attention))
    optimizer, parameters = adamw(generator, discriminator)
    attention_mask = torch.ones(batch_size, LENGTH, dtype=torch.long, device=device)
    if compiled:
        generator, discriminator = torch.compile(generator), torch.compile(discriminator)

    def step() -> None:
        ids = torch.randint(105, VOCABULARY, (batch_size, LENGTH), device=device)
        masked = torch.rand(batch_size, LENGTH, device=device) < MASKED
        labels = ids.masked_fill(~masked, -100)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            out = generator(input_ids=ids.masked_fill(masked, MASK), attention_mask=attention_mask, labels=labels)
            with torch.no_grad():
                logits = out.logits[masked].float()
                replaced = ids.clone()
                replaced[masked] = (logits - torch.log(-torch.log(torch.rand_like(logits)))).argmax(-1)
            verdict = discriminator(input_ids=replaced, attention_mask=attention_mask, labels=(replaced != ids).long())
            loss = out.loss + 50.0 * verdict.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def electra_pytorch_step(batch_size: int, precision: torch.dtype, device: torch.device) -> Step:
    """`electra_pytorch.Electra` around the same networks, as its README puts them together."""
    from electra_pytorch import Electra

    class Logits(torch.nn.Module):
        def __init__(self, net: torch.nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.net(input_ids=ids).logits

    generator, discriminator = networks("sdpa")
    model = Electra(
        Logits(generator), Logits(discriminator), num_tokens=VOCABULARY, mask_token_id=MASK, pad_token_id=0,
        mask_prob=MASKED, mask_ignore_token_ids=[101, 102],
    ).to(device)  # fmt: skip
    optimizer, parameters = adamw(model)

    def step() -> None:
        ids = torch.randint(105, VOCABULARY, (batch_size, LENGTH), device=device)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            loss = model(ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def simpletransformers_step(batch_size: int, precision: torch.dtype, device: torch.device) -> Step:
    """The model class of `simpletransformers`, driven as its training loop drives it (it reads the loss twice a step)."""
    from simpletransformers.custom_models.models import ElectraForLanguageModelingModel
    from transformers import ElectraConfig

    shape = {"vocab_size": VOCABULARY, "attn_implementation": "sdpa"}
    main = ElectraConfig(**shape)
    small = ElectraConfig(hidden_size=64, intermediate_size=256, num_attention_heads=1, **shape)
    outer = ElectraConfig(vocab_size=VOCABULARY)  # the class around the two networks does not take sdpa
    model = ElectraForLanguageModelingModel(outer, generator_config=small, discriminator_config=main).to(device)
    optimizer, parameters = adamw(model)

    def step() -> None:
        ids = torch.randint(105, VOCABULARY, (batch_size, LENGTH), device=device)
        masked = torch.rand(batch_size, LENGTH, device=device) < MASKED
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            g_loss, d_loss, *_ = model(ids.masked_fill(masked, MASK), ids.masked_fill(~masked, -100))
            loss = g_loss + 50.0 * d_loss
        loss.item()
        loss.backward()
        loss.item()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        model.zero_grad()

    return step


def our_step(batch_size: int, precision: torch.dtype, device: torch.device) -> Step:
    """The parts of `electra.train.loop` in its order, micro-batches included, on ready batches."""
    from electra.data.loader import Batch
    from electra.data.tokenizer import SpecialIds
    from electra.model.native import keep_memory
    from electra.model.pair import Pair
    from electra.objectives import make_objective
    from electra.objectives.base import Counts
    from electra.presets import small
    from electra.train.optimizer import PairOptimizer, clip_gradients
    from electra.train.run import CPU_MICRO_BATCH_TOKENS

    if device.type == "cpu":
        keep_memory()
    config = small()
    encoder = dataclasses.replace(config.model.discriminator, vocab_size=VOCABULARY)
    pair = Pair(dataclasses.replace(config.model, discriminator=encoder)).to(device)
    optimizer = PairOptimizer(pair, config.optimizer)
    special = SpecialIds(pad=0, unk=100, cls=101, sep=102, mask=MASK)
    objective = make_objective(config.objective, vocab_size=VOCABULARY, special=special, seed=0)
    rows_at_once = CPU_MICRO_BATCH_TOKENS // LENGTH if device.type == "cpu" else batch_size

    def step() -> None:
        ids = torch.randint(105, VOCABULARY, (batch_size, LENGTH))
        ids[:, 0], ids[:, -1] = special.cls, special.sep
        zeros = torch.zeros(batch_size, dtype=torch.long)
        batch = Batch(
            input_ids=ids, attention_mask=None, token_type_ids=None, row_ids=torch.arange(batch_size), epochs=zeros
        )
        parts = [objective.corrupt(part) for part in batch.split(rows_at_once)]
        masked, scored = (sum(getattr(p.counts, name) for p in parts) for name in ("num_masked", "num_scored"))
        for part in parts:
            with torch.autocast(device.type, precision, enabled=precision != torch.float32):
                output = objective.step(pair, part.to(device), Counts(masked, scored))
            output.loss.backward()
        clip_gradients(optimizer.parameters, config.optimizer.clip_norm)
        optimizer.step(1.0)
        optimizer.zero_grad()

    return step


SIDES: dict[str, tuple[Callable[..., Step], str]] = {
    "ours": (our_step, "float32"),
    "transformers sdpa": (lambda *a: transformers_step("sdpa", False, *a), "float32"),
    "transformers eager": (lambda *a: transformers_step("eager", False, *a), "float32"),
    "electra-pytorch": (electra_pytorch_step, "float32"),
    "simpletransformers": (simpletransformers_step, "float32"),
    "ours bf16": (our_step, "bfloat16"),
    "transformers sdpa bf16": (lambda *a: transformers_step("sdpa", False, *a), "bfloat16"),
    "transformers eager bf16": (lambda *a: transformers_step("eager", False, *a), "bfloat16"),
    "transformers sdpa compiled": (lambda *a: transformers_step("sdpa", True, *a), "float32"),
}
"""Name -> (maker of the step, precision). The first is what the others are compared with; "transformers sdpa" is the unit."""
