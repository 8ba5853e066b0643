"""What surrounds the steps of a run: the clock, the stop signal, metrics, held-out scores and checkpoints."""

from __future__ import annotations

import signal
import time
from types import TracebackType

import torch

from electra.data.loader import BatchLoader
from electra.errors import UserError
from electra.model.pair import Pair
from electra.objectives.base import Objective, StepOutput
from electra.train import distributed
from electra.train.checkpoint import TrainState, load_newest_checkpoint, save_checkpoint
from electra.train.continued import before_and_after
from electra.train.heldout import heldout_scores
from electra.train.metrics import MetricsLog, ProgressDisplay, Totals, describe
from electra.train.optimizer import PairOptimizer
from electra.train.run import Budget, Run


class Session:
    """One sitting of a run, from its newest checkpoint to the end of its budget or to Ctrl-C. Use as a context manager.

    All decisions (is the budget used up, is it time to save, shall we stop) come from numbers that the ranks agreed on,
    so that no rank waits for one that has left.
    """

    def __init__(self, run: Run, pair: Pair, objective: Objective, optimizer: PairOptimizer, quiet: bool) -> None:
        self.run, self.pair, self.objective, self.optimizer = run, pair, objective, optimizer
        self.display, self.totals, self.budget = ProgressDisplay(quiet), Totals(), Budget(run.config.train)
        loaded = load_newest_checkpoint(run.config.run_dir, pair, optimizer, self.totals, self.display.say)
        self.state = loaded or TrainState(store_fingerprint=run.store.fingerprint)
        if self.state.store_fingerprint != run.store.fingerprint:
            raise UserError(
                f"{run.config.run_dir} began on another store than {run.config.data.store}: "
                f"name that one, or a new --run-dir"
            )
        if loaded:
            self.display.say(f"going on from step {self.state.step:,} of {run.config.run_dir}")
        self.log = (
            MetricsLog(run.config.run_dir, self.state.step if loaded else -1, run.config.train.tensorboard)
            if distributed.rank() == 0
            else None
        )
        self._stop_asked = False

    def __enter__(self) -> Session:
        self.first_progress, self.first_seconds = self.progress, self.state.seconds
        self.logged_tokens, self.logged_seconds = self.state.tokens, self.state.seconds
        self.logged_wait, self.saved_seconds = 0.0, self.state.seconds
        self.began, self.paused_seconds = time.perf_counter() - self.state.seconds, 0.0
        self._old_handlers = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._old_handlers[number] = signal.signal(number, self._ask_to_stop)
            except ValueError:  # not the main thread (a notebook's worker): signals are somebody else's
                break
        for note in self.run.notes:
            self.display.say(note)
        self.display.start()
        if self.state.step == 0 and self.run.config.init_from is not None and self.run.heldout is not None:
            self._evaluate()  # what the weights can do before this run changes them
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self.display.close()
        if self.log is not None:
            self.log.close()

    def _ask_to_stop(self, number: int, frame: object) -> None:
        if self._stop_asked:  # asked twice: at once, at the cost of the steps since the last checkpoint
            raise KeyboardInterrupt
        self._stop_asked = True

    @property
    def progress(self) -> float:
        """Share of the budget used, 0 to 1."""
        return self.budget.progress(self.state)

    def after_step(
        self, outputs: list[StepOutput], gradient_norm: torch.Tensor, rate: float, loader: BatchLoader
    ) -> None:
        """Take a step into account; log, evaluate and save what is due. Raises KeyboardInterrupt once saved after Ctrl-C."""
        settings, state = self.run.config.train, self.state
        for output in outputs:
            self.totals.add(output)
        self.totals.add_scalar("gradient_norm", gradient_norm)

        clock = time.perf_counter() - self.began - self.paused_seconds
        stops, seconds = distributed.sum_over_ranks([float(self._stop_asked), clock])
        state.seconds = seconds / distributed.world_size()
        finished, stopping = self.progress >= 1.0, stops > 0
        self.display.advance(self.progress, state.step, self._seconds_left())

        overdue = 0 < settings.save_minutes < (state.seconds - self.saved_seconds) / 60.0
        logging = finished or state.step % settings.log_every == 0
        saving = finished or stopping or overdue or _due(state.step, settings.save_every)
        if logging or saving:
            self._stop_if_diverged(weights=saving)
        if logging:
            self._log(rate, loader)
        if self.run.heldout is not None and (finished or _due(state.step, settings.eval_every)):
            self._evaluate()
            if finished and self.run.config.init_from is not None and self.log is not None:
                for line in before_and_after(self.run.config.run_dir):
                    self.display.say(line)
        if saving:
            self._save()
        if stopping and not finished:
            self.display.say(f"stopped and saved at step {state.step:,}; the same command goes on from there")
            raise KeyboardInterrupt

    def _stop_if_diverged(self, weights: bool) -> None:
        """Raises UserError, on every rank, when a loss, the gradient or (asked for before saving) a weight is not finite."""
        broken = self.totals.not_finite()
        if weights and not broken and not all(bool(p.isfinite().all()) for p in self.pair.parameters()):
            broken = "a weight"
        [count] = distributed.sum_over_ranks([float(broken is not None)])
        if count:
            raise UserError(
                f"{broken or 'a loss of another process'} is not finite at step {self.state.step}: the rate is probably too "
                f"high; lower optimizer.peak_learning_rate in a new --run-dir (checkpoints up to the last one are intact)"
            )

    def _log(self, rate: float, loader: BatchLoader) -> None:
        state = self.state
        elapsed = max(1e-9, state.seconds - self.logged_seconds)
        values = {
            "tokens": state.tokens,
            "flops": state.flops,
            "seconds": state.seconds,
            "tokens_per_second": (state.tokens - self.logged_tokens) / elapsed,
            "data_wait_share": (loader.wait_seconds - self.logged_wait) / elapsed,
            "learning_rate": rate,
            **self.totals.means(),
        }
        self.totals.reset()
        self.logged_tokens, self.logged_seconds, self.logged_wait = state.tokens, state.seconds, loader.wait_seconds
        if self.log is not None:
            self.log.write("train", state.step, values)
        self.display.show(self.progress, state.step, self._seconds_left(), values)

    def _evaluate(self) -> None:
        started = time.perf_counter()
        scores = heldout_scores(self.run, self.pair, self.objective, self.progress)
        if self.log is not None:
            progress = {"tokens": self.state.tokens, "flops": self.state.flops, "seconds": self.state.seconds}
            self.log.write("heldout", self.state.step, progress | scores)
        self.display.say(f"held-out at step {self.state.step:,}: {describe(scores)}")
        self.paused_seconds += time.perf_counter() - started

    def _save(self) -> None:
        started = time.perf_counter()
        if distributed.rank() == 0:
            keep = self.run.config.train.keep_checkpoints
            save_checkpoint(self.run.config.run_dir, self.pair, self.optimizer, self.state, self.totals, keep)
        distributed.barrier()
        self.saved_seconds = self.state.seconds
        self.paused_seconds += time.perf_counter() - started

    def _seconds_left(self) -> float | None:
        done = self.progress - self.first_progress
        return (self.state.seconds - self.first_seconds) / done * (1.0 - self.progress) if done > 0 else None


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
