"""One training step of ELECTRA-Small by each toolkit: same sizes (paper, table 6), rows, dropout (0.1), AdamW and clipping.

A side makes a step, to be called again and again, from (batch size, precision, device).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

VOCABULARY, LENGTH, MASKED = 30_522, 128, 0.15
NARROW = {"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 1}
"""The generator; the defaults of `ElectraConfig` are the discriminator of ELECTRA-Small."""
PAD, UNKNOWN, CLS, SEP, MASK = 0, 100, 101, 102, 103
Step = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Side:
    """A row of the table."""

    make: Callable[[int, torch.dtype, torch.device], Step]
    precision: str = "float32"


def endless_rows(batch_size: int) -> Iterator[torch.Tensor]:
    """Batches [B, L] of random word pieces between [CLS] and [SEP]: the same ones for every side."""
    source = torch.Generator().manual_seed(0)
    while True:
        ids = torch.randint(MASK + 1, VOCABULARY, (batch_size, LENGTH), generator=source)
        ids[:, 0], ids[:, -1] = CLS, SEP
        yield ids


def autocast(precision: torch.dtype, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(device.type, precision, enabled=precision != torch.float32)


# ---------------------------------------------------------------------------------------------------------------- rivals


def configurations(attention: str) -> tuple[Any, Any]:
    """Of generator and discriminator."""
    from transformers import ElectraConfig

    shape = {"vocab_size": VOCABULARY, "attn_implementation": attention}
    return ElectraConfig(**NARROW, **shape), ElectraConfig(**shape)


def networks(attention: str) -> tuple[Any, Any]:
    """Generator and discriminator of `transformers`, sharing all that ours share: tables, their norm, the last matrix."""
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    small, main = configurations(attention)
    generator, discriminator = ElectraForMaskedLM(small), ElectraForPreTraining(main)
    for part in ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm"):
        setattr(generator.electra.embeddings, part, getattr(discriminator.electra.embeddings, part))
    generator.generator_lm_head.weight = generator.get_input_embeddings().weight
    return generator, discriminator


def adamw(*modules: torch.nn.Module) -> tuple[torch.optim.Optimizer, list[torch.nn.Parameter]]:
    parameters = list({id(p): p for net in modules for p in net.parameters()}.values())
    return torch.optim.AdamW(parameters, lr=5e-4, eps=1e-6, weight_decay=0.01), parameters


def transformers_step(
    batch_size: int, precision: torch.dtype, device: torch.device, attention: str = "sdpa", compiled: bool = False
) -> Step:
    """The step as a user writes it with the classes: the vocabulary's softmax at every position, Gumbel noise to sample."""
    generator, discriminator = (net.to(device) for net in networks(attention))
    optimizer, parameters = adamw(generator, discriminator)
    attention_mask = torch.ones(batch_size, LENGTH, dtype=torch.long, device=device)
    rows = endless_rows(batch_size)
    if compiled:
        generator, discriminator = torch.compile(generator), torch.compile(discriminator)

    def step() -> None:
        ids = next(rows).to(device)
        masked = torch.rand(batch_size, LENGTH, device=device) < MASKED
        labels = ids.masked_fill(~masked, -100)
        with autocast(precision, device):
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


def eager_step(batch_size: int, precision: torch.dtype, device: torch.device) -> Step:
    return transformers_step(batch_size, precision, device, attention="eager")


def compiled_step(batch_size: int, precision: torch.dtype, device: torch.device) -> Step:
    return transformers_step(batch_size, precision, device, compiled=True)


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
        Logits(generator), Logits(discriminator), num_tokens=VOCABULARY, mask_token_id=MASK, pad_token_id=PAD,
        mask_prob=MASKED, mask_ignore_token_ids=[CLS, SEP],
    ).to(device)  # fmt: skip
    optimizer, parameters = adamw(model)
    rows = endless_rows(batch_size)

    def step() -> None:
        ids = next(rows).to(device)
        with autocast(precision, device):
            loss = model(ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def simpletransformers_step(batch_size: int, precision: torch.dtype, device: torch.device) -> Step:
    """The training loop of its `LanguageModelingModel` as it is, in a thread that is held before each batch. It has float16 on
    CUDA and no bfloat16."""
    from simpletransformers.language_modeling import LanguageModelingModel
    from transformers import ElectraTokenizer

    scratch = Path(tempfile.mkdtemp(prefix="simpletransformers-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    pieces = [f"w{number}" for number in range(VOCABULARY)]
    for number, special in ((PAD, "[PAD]"), (UNKNOWN, "[UNK]"), (CLS, "[CLS]"), (SEP, "[SEP]"), (MASK, "[MASK]")):
        pieces[number] = special
    (scratch / "vocab.txt").write_text("\n".join(pieces))
    ElectraTokenizer(vocab=str(scratch / "vocab.txt")).save_pretrained(scratch / "tokenizer")
    settings = {
        "tokenizer_name": str(scratch / "tokenizer"),
        "generator_config": {**NARROW, "vocab_size": VOCABULARY},
        "discriminator_config": {"vocab_size": VOCABULARY},
        "vocab_size": VOCABULARY,
        "train_batch_size": batch_size,
        "fp16": False,
        "silent": True,
        "tensorboard_dir": str(scratch / "tensorboard"),
    }
    trainer = LanguageModelingModel("electra", None, use_cuda=device.type == "cuda", args=settings)
    trainer._move_model_to_device()

    rows, num_threads = endless_rows(batch_size), torch.get_num_threads()
    go, waits = threading.Semaphore(0), threading.Semaphore(0)
    failures: list[BaseException] = []

    class Held(torch.utils.data.Dataset):
        """Says that the loop is back for another batch, then waits until it is wanted."""

        def __len__(self) -> int:
            return 10_000 * batch_size

        def __getitems__(self, _: list[int]) -> list[torch.Tensor]:
            waits.release()
            go.acquire()
            return list(next(rows))

    def loop() -> None:
        torch.set_num_threads(num_threads)  # a thread does not take over the number of the one that starts it
        try:
            trainer.train(Held(), str(scratch))
        except BaseException as error:
            failures.append(error)
        finally:
            waits.release()

    def until_it_waits() -> None:
        waits.acquire()
        if failures:
            raise failures[0]

    def step() -> None:
        go.release()
        until_it_waits()

    threading.Thread(target=loop, daemon=True).start()
    until_it_waits()
    return step


# ------------------------------------------------------------------------------------------------------------------ ours


def our_precision(precision: torch.dtype, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """How `electra.train.loop` runs its networks in a precision."""
    return autocast(precision, device)


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
    special = SpecialIds(pad=PAD, unk=UNKNOWN, cls=CLS, sep=SEP, mask=MASK)
    objective = make_objective(config.objective, vocab_size=VOCABULARY, special=special, seed=0)
    rows_at_once = CPU_MICRO_BATCH_TOKENS // LENGTH if device.type == "cpu" else batch_size
    rows, row_ids, epochs = endless_rows(batch_size), torch.arange(batch_size), torch.zeros(batch_size).long()

    def step() -> None:
        batch = Batch(input_ids=next(rows), attention_mask=None, token_type_ids=None, row_ids=row_ids, epochs=epochs)
        parts = [objective.corrupt(part) for part in batch.split(rows_at_once)]
        counts = Counts(
            num_masked=sum(part.counts.num_masked for part in parts),
            num_scored=sum(part.counts.num_scored for part in parts),
        )
        for part in parts:
            with our_precision(precision, device):
                output = objective.step(pair, part.to(device), counts)
            output.loss.backward()
        clip_gradients(optimizer.parameters, config.optimizer.clip_norm)
        optimizer.step(1.0)
        optimizer.zero_grad()

    return step


SIDES = {
    "ours": Side(our_step),
    "transformers sdpa": Side(transformers_step),
    "transformers eager": Side(eager_step),
    "electra-pytorch": Side(electra_pytorch_step),
    "simpletransformers": Side(simpletransformers_step),
    "transformers sdpa compiled": Side(compiled_step),
    "ours bf16": Side(our_step, "bfloat16"),
    "transformers sdpa bf16": Side(transformers_step, "bfloat16"),
    "transformers eager bf16": Side(eager_step, "bfloat16"),
    "electra-pytorch bf16": Side(electra_pytorch_step, "bfloat16"),
}
OURS, UNIT, COMPILED = "ours", "transformers sdpa", "transformers sdpa compiled"
"""What is compared, what the ratios are of, and what `--compile` adds."""
