"""Ready-made configurations. Each figure of the paper's three names its source; `PRESETS` is the list that the command
line offers.

Sources: [T6] Clark et al., "ELECTRA", ICLR 2020, table 6 (pre-training hyperparameters); [S3.3] its section 3.3; [A]
its appendix A; [REF] google-research/electra (the file at which to look is named where it is not
`configure_pretraining.py`). The vocabulary is the token store's; the paper's has 30,522 word pieces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from electra.config import (
    DataConfig,
    EncoderConfig,
    GeneratorConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PretrainConfig,
    TrainConfig,
)


def _paper(
    *,
    num_layers: int,
    hidden_size: int,
    embedding_size: int,
    num_heads: int,
    generator_width: float,
    mask_fraction: float,
    peak_learning_rate: float,
    batch_size: int,
    num_steps: int,
    length: int,
) -> PretrainConfig:
    """What the three columns of table 6 have in common."""
    return PretrainConfig(
        # Dense rows are ours; layout two-segment gives the reference's examples [REF build_pretraining_dataset.py].
        data=DataConfig(length=length, layout="dense"),
        model=ModelConfig(
            discriminator=EncoderConfig(
                blocks="classic",
                embedding_size=embedding_size,
                hidden_size=hidden_size,
                num_layers=num_layers,
                num_heads=num_heads,
                intermediate_size=4 * hidden_size,  # FFN inner hidden size 1024, 3072, 4096 [T6]
                max_length=512,  # rows of the position table [REF modeling.py]
                type_vocab_size=2,  # [REF modeling.py]
                hidden_dropout=0.1,  # Dropout [T6]
                attention_dropout=0.1,  # Attention Dropout [T6]
                layer_norm_epsilon=1e-12,  # [REF modeling.py]
                initializer_range=0.02,  # [REF modeling.py]
            ),
            generator=GeneratorConfig(width=generator_width, depth=1.0),  # Generator Size [T6]; all layers [REF]
            tying="embeddings",  # token, position and type tables [REF modeling.py]
        ),
        objective=ObjectiveConfig(
            name="electra",
            mask_fraction=mask_fraction,
            mask_share=0.85,  # 15% of the chosen keep their token [REF pretrain_helpers.py]
            random_share=0.0,  # [REF pretrain_helpers.py]
            generator_weight=1.0,  # [REF]
            discriminator_weight=50.0,  # lambda [A; REF]
            temperature=1.0,  # [REF]
        ),
        optimizer=OptimizerConfig(
            name="adamw",
            peak_learning_rate=peak_learning_rate,
            warmup_steps=10_000,  # [T6]
            final_learning_rate_fraction=0.0,  # Linear decay [T6], to zero [REF optimization.py]
            beta1=0.9,  # [T6]
            beta2=0.999,  # [T6]
            epsilon=1e-6,  # [T6]
            weight_decay=0.01,  # [T6]
            bias_correction=False,  # [REF optimization.py]
            clip_norm=1.0,  # [REF optimization.py]
        ),
        train=TrainConfig(num_steps=num_steps, batch_size=batch_size),
    )


def small() -> PretrainConfig:
    """ELECTRA-Small, 14 million parameters."""
    return _paper(
        num_layers=12,
        hidden_size=256,
        embedding_size=128,
        num_heads=4,  # head size 64 [T6]
        generator_width=1 / 4,
        mask_fraction=0.15,
        peak_learning_rate=5e-4,
        batch_size=128,  # [T6]
        num_steps=1_000_000,  # "1.45M/1M": BERT/ELECTRA [T6]
        length=128,  # [S3.3; REF]
    )


def base() -> PretrainConfig:
    """ELECTRA-Base, 110 million parameters."""
    return _paper(
        num_layers=12,
        hidden_size=768,
        embedding_size=768,
        num_heads=12,  # head size 64 [T6]
        generator_width=1 / 3,
        mask_fraction=0.15,
        peak_learning_rate=2e-4,
        batch_size=256,  # [T6]
        num_steps=766_000,  # "1M/766K" [T6]
        length=512,  # [REF]
    )


def large() -> PretrainConfig:
    """ELECTRA-Large, 335 million parameters, the 400K-step run."""
    return _paper(
        num_layers=24,
        hidden_size=1024,
        embedding_size=1024,
        num_heads=16,  # head size 64 [T6]
        generator_width=1 / 4,
        mask_fraction=0.25,
        peak_learning_rate=2e-4,
        batch_size=2048,  # [T6]
        num_steps=400_000,  # "464K/400K" [T6]; ELECTRA-1.75M is the same for 1,750,000 steps
        length=512,  # [REF]
    )


def _modern(
    *,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    intermediate_size: int,
    max_length: int,
    generator: GeneratorConfig,
) -> ModelConfig:
    """Our pairs of modern blocks: vocabulary from the token store, no dropout (ModernBERT, arXiv 2412.13663)."""
    return ModelConfig(
        discriminator=EncoderConfig(
            blocks="modern",
            embedding_size=hidden_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            intermediate_size=intermediate_size,
            max_length=max_length,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            layer_norm_epsilon=1e-5,
        ),
        generator=generator,
        tying="embeddings",
    )


def small_modern() -> PretrainConfig:
    """Ours: depth and width of Small with modern blocks. A gated layer of 704 is about as large as a plain 1,024."""
    return PretrainConfig(
        data=DataConfig(length=128),
        model=_modern(
            num_layers=12,
            hidden_size=256,
            num_heads=4,
            intermediate_size=704,
            max_length=512,
            generator=GeneratorConfig(width=0.25),
        ),
        optimizer=OptimizerConfig(name="muon", peak_learning_rate=5e-4, bias_correction=True),
        train=TrainConfig(num_steps=1_000_000, batch_size=128),
    )


def base_modern() -> PretrainConfig:
    """Ours: depth and width of Base with modern blocks. A gated layer of 2,048 is as large as a plain one of 3,072."""
    return PretrainConfig(
        data=DataConfig(length=512),
        model=_modern(
            num_layers=12,
            hidden_size=768,
            num_heads=12,
            intermediate_size=2048,
            max_length=1024,
            generator=GeneratorConfig(width=1 / 3),
        ),
        optimizer=OptimizerConfig(name="muon", peak_learning_rate=2e-4, bias_correction=True),
        train=TrainConfig(num_steps=766_000, batch_size=256),
    )


def tiny() -> PretrainConfig:
    """Ours: for minutes on a laptop's processor. What each choice gave is measured in docs/architecture.md."""
    model = _modern(
        num_layers=3,
        hidden_size=128,
        num_heads=4,
        intermediate_size=256,
        max_length=512,
        generator=GeneratorConfig(width=1.0, depth=1 / 3),
    )
    encoder = dataclasses.replace(
        model.discriminator, neighbour_heads=2, global_attention_every=1, global_rope_theta=10_000.0
    )
    return PretrainConfig(
        data=DataConfig(length=128),
        model=dataclasses.replace(model, discriminator=encoder, unigram_bias=True, embedding_start="cooccurrence"),
        objective=ObjectiveConfig(mask_fraction=0.2, mask_share=1.0, discriminator_start=0.2),
        optimizer=OptimizerConfig(
            name="muon",
            muon_learning_rate=0.02,
            peak_learning_rate=3e-3,
            embedding_learning_rate=3e-4,
            beta2=0.98,
            epsilon=1e-8,
            weight_decay=0.0,
            bias_correction=True,
            clip_norm=0.0,
            warmup_fraction=0.02,
            decay_fraction=0.5,
        ),
        train=TrainConfig(num_minutes=5.0, batch_size=16, eval_every=500, eval_batches=20),
    )


CONTINUED_SHARE = 0.1  # of the peak rates from scratch


def continued(config: PretrainConfig) -> PretrainConfig:
    """The same settings for going on from trained weights (`init_from`): rates that do not undo them.

    Ours: every peak rate is a tenth of what it was, warmed up again over a twentieth of the budget (the averages of the
    optimizer are not kept by any published checkpoint), and both networks train from the first step.
    """
    optimizer, embedding_rate = config.optimizer, config.optimizer.embedding_learning_rate
    return dataclasses.replace(
        config,
        objective=dataclasses.replace(config.objective, discriminator_start=0.0),
        optimizer=dataclasses.replace(
            optimizer,
            peak_learning_rate=optimizer.peak_learning_rate * CONTINUED_SHARE,
            embedding_learning_rate=None if embedding_rate is None else embedding_rate * CONTINUED_SHARE,
            muon_learning_rate=optimizer.muon_learning_rate * CONTINUED_SHARE,
            warmup_fraction=0.05,
        ),
    )


PRESETS: dict[str, Callable[[], PretrainConfig]] = {
    "tiny": tiny,
    "small": small,
    "base": base,
    "large": large,
    "small-modern": small_modern,
    "base-modern": base_modern,
}
