"""ELECTRA pre-training: raw text to a small, strong text encoder.

The names below are loaded when first used, so `import electra` is instant and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from electra.config_finetune import FinetuneConfig
    from electra.data.prepare import prepare
    from electra.errors import UserError
    from electra.evaluate.detect import detect
    from electra.evaluate.finetune import finetune
    from electra.model.hf import load_encoder as load
    from electra.presets import PRESETS
    from electra.studies.report import write_report
    from electra.train.export import export
    from electra.train.loop import pretrain

__version__ = "0.1.0"

# Public name -> (module, name there).
_PUBLIC = {
    "prepare": ("electra.data.prepare", "prepare"),
    "pretrain": ("electra.train.loop", "pretrain"),
    "export": ("electra.train.export", "export"),
    "load": ("electra.model.hf", "load_encoder"),
    "finetune": ("electra.evaluate.finetune", "finetune"),
    "detect": ("electra.evaluate.detect", "detect"),
    "write_report": ("electra.studies.report", "write_report"),
    "PRESETS": ("electra.presets", "PRESETS"),
    "UserError": ("electra.errors", "UserError"),
    **{
        name: ("electra.config", name)
        for name in (
            "DataConfig", "EncoderConfig", "GeneratorConfig", "ModelConfig", "ObjectiveConfig", "OptimizerConfig",
            "PretrainConfig", "TrainConfig",
        )
    },
    "FinetuneConfig": ("electra.config_finetune", "FinetuneConfig"),
}  # fmt: skip

__all__ = [
    "PRESETS",
    "DataConfig",
    "EncoderConfig",
    "FinetuneConfig",
    "GeneratorConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "PretrainConfig",
    "TrainConfig",
    "UserError",
    "__version__",
    "detect",
    "export",
    "finetune",
    "load",
    "prepare",
    "pretrain",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'electra' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
