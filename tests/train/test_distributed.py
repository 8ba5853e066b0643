"""Two processes with half of each batch give the run of one process."""

import dataclasses
import subprocess
import sys

import torch
from safetensors.torch import load_file

from electra.config_files import save_config
from electra.train.checkpoint import newest_checkpoint
from electra.train.loop import pretrain

PROGRAM = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.train.loop import pretrain
pretrain(load_config(PretrainConfig, Path(sys.argv[1])), quiet=True)
"""


def test_two_ranks_equal_one(run_config, tmp_path):
    encoder = dataclasses.replace(run_config.model.discriminator, hidden_dropout=0.0, attention_dropout=0.0)
    config = dataclasses.replace(run_config, model=dataclasses.replace(run_config.model, discriminator=encoder))
    alone = dataclasses.replace(config, run_dir=tmp_path / "alone")
    pretrain(alone, quiet=True)
    save_config(config, tmp_path / "config.yaml")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        "0",
        "--standalone",
    ]
    subprocess.run([*command, str(tmp_path / "program.py"), str(tmp_path / "config.yaml")], check=True, timeout=300)
    one = load_file(newest_checkpoint(alone.run_dir) / "pair.safetensors")
    two = load_file(newest_checkpoint(config.run_dir) / "pair.safetensors")
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=2e-5, rtol=1e-3, msg=name)
