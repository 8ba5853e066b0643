"""Speed and memory of `electra prepare` beside the raw speed of the `tokenizers` library on the same text, in the same run.

Raw is `encode_batch_fast` on all lines, already in memory, on all cores: nothing read, nothing written. Ours is the whole
command's work with the same vocabulary: reading, encoding, hashing, writing. Processes in turn, medians, ratios pair by pair.

    python benchmarks/prepare.py corpus/*.txt --rounds 5 --json benchmarks/results/prepare.json
    python benchmarks/prepare.py corpus/*.txt --rounds 0 --gigabytes 0.2 1 5

`--gigabytes` makes texts of those sizes out of the files, prepares each in a child process, and samples the memory that the
child and its worker processes have resident together (what they share counts once for each: an upper bound). Linux only.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any


def raw(files: list[Path], vocabulary: Path) -> dict[str, float]:
    """In a child: megabytes of text a second that the library encodes."""
    import tokenizers

    from electra.data.tokenizer import load_tokenizer

    backend = tokenizers.Tokenizer.from_str(load_tokenizer(vocabulary).backend_tokenizer.to_str())
    lines = [line for file in files for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    began = time.perf_counter()
    for start in range(0, len(lines), 10_000):
        backend.encode_batch_fast(lines[start : start + 10_000], add_special_tokens=False)
    return {"seconds": time.perf_counter() - began}


def ours(files: list[Path], vocabulary: Path, out: Path) -> dict[str, float]:
    """In a child: the same by `prepare`, start of the process not counted, as above."""
    from electra.data.prepare import prepare

    began = time.perf_counter()
    prepare(files, out, vocab=vocabulary, overwrite=True, quiet=True)
    return {"seconds": time.perf_counter() - began}


def whole(files: list[Path], out: Path, vocab_size: int, deduplicate: Any, shuffle: bool) -> dict[str, float]:
    """In a child: with learning the vocabulary, and what else is asked for."""
    from electra.data.prepare import prepare

    began = time.perf_counter()
    report = prepare(
        files, out, vocab_size=vocab_size, deduplicate=deduplicate, shuffle=shuffle, overwrite=True, quiet=True
    )
    return {
        "seconds": time.perf_counter() - began, "vocabulary_seconds": report.vocabulary_seconds,
        "documents": report.documents, "tokens": report.tokens,
        "exact_duplicates": report.exact_duplicates, "near_duplicates": report.near_duplicates,
    }  # fmt: skip


def write_large(files: list[Path], path: Path, size: int) -> None:
    """A text of `size` bytes: the paragraphs of the files in random order again and again, 20 to a document, and in each
    document a made-up word of its own, so that no two are the same and distinct words keep coming."""
    paragraphs = [line for file in files for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    draw, written = random.Random(0), 0
    with path.open("w", encoding="utf-8") as out:
        while written < size:
            chosen = draw.choices(paragraphs, k=20)
            word = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=9))
            text = "\n".join([f"{word} {chosen[0]}", *chosen[1:]]) + "\n\n"
            written += out.write(text)


def child(what: str, *words: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", what, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples = memory_over_time(process)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: ended with status {process.returncode}")
    return json.loads(output.strip().splitlines()[-1]) | {"peak_mib": max((mib for _, mib in samples), default=0.0)}


def memory_over_time(process: subprocess.Popen[str], every: float = 0.5) -> list[tuple[float, float]]:
    """(seconds, MiB resident) of a child and its children while it runs."""
    samples: list[tuple[float, float]] = []
    began = time.perf_counter()

    def watch() -> None:
        while process.poll() is None:
            samples.append((round(time.perf_counter() - began, 1), round(resident_mib(process.pid), 1)))
            time.sleep(every)

    threading.Thread(target=watch, daemon=True).start()
    return samples


def resident_mib(pid: int) -> float:
    """Of a process and all that it started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):  # it may have ended just now
            parents[int(entry.parent.name)] = int(entry.read_text().rsplit(")", 1)[1].split()[1])
    family, pages = {pid}, 0
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    for member in family:
        with suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{member}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="plain .txt files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument(
        "--gigabytes", type=float, nargs="+", default=[], help="also prepare so much text and watch memory"
    )
    parser.add_argument("--deduplicate", choices=("no", "exact", "near"), default="no", help="of --gigabytes")
    parser.add_argument("--shuffle", action="store_true", help="of --gigabytes")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--vocabulary", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        works = {
            "raw": lambda: raw(options.files, options.vocabulary),
            "ours": lambda: ours(options.files, options.vocabulary, options.out),
            "whole": lambda: whole(
                options.files, options.out, options.vocab_size, options.deduplicate, options.shuffle
            ),
        }
        print(json.dumps(works[options.child]()))
        return

    from electra.studies.speedrun import machine

    size = sum(file.stat().st_size for file in options.files)
    result: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "bytes": size}
    with tempfile.TemporaryDirectory() as scratch:
        store, files = Path(scratch) / "store", [str(file) for file in options.files]
        place = ("--out", str(store), "--vocab-size", str(options.vocab_size))
        if options.rounds:
            result["whole"] = first = child("whole", *files, *place)
            vocabulary = ("--vocabulary", str(store / "tokenizer"), "--out", str(store) + "-again")
            rounds = [
                {what: child(what, *files, *vocabulary)["seconds"] for what in ("raw", "ours")}
                for _ in range(options.rounds)
            ]
            result["rounds"] = rounds
            for what in ("raw", "ours"):
                print(f"{what:>5}: {size / 1e6 / statistics.median(r[what] for r in rounds):6.2f} MB/s")
            ratios = [r["raw"] / r["ours"] for r in rounds]
            print(f"ours / raw: median {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
            print(
                f"with the vocabulary: {first['seconds']:.0f} s, of which {first['vocabulary_seconds']:.0f} s to learn it, "
                f"peak {first['peak_mib']:,.0f} MiB"
            )
        asked = ["--deduplicate", options.deduplicate, *(["--shuffle"] if options.shuffle else [])]
        result["large"] = large = []
        for gigabytes in options.gigabytes:
            text = Path(scratch) / "large.txt"
            write_large(options.files, text, int(gigabytes * 1e9))
            found = child("whole", str(text), *place, *asked)
            large.append({"gigabytes": gigabytes, "options": " ".join(asked), **found})
            print(
                f"{gigabytes:g} GB, {' '.join(asked)}: {found['documents']:,} documents, {found['tokens']:,} tokens in "
                f"{found['seconds']:,.0f} s ({found['vocabulary_seconds']:,.0f} s for the vocabulary), "
                f"peak memory {found['peak_mib']:,.0f} MiB",
                flush=True,
            )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
