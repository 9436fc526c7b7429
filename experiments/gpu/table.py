"""The tables of the README, from the file of results.

    python -m experiments.gpu.table [--out FILE] [--readme README] [--quick]

Beside what a GPU gave stand the figures of two CPU cores from the other READMEs, and the papers'.
Cells without a result are dashes. With `--quick` nothing is written.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import arguments, finish

HERE = Path(__file__).parent
RESULTS, README = HERE / "results.jsonl", HERE / "README.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
DASH = "–"

Row = dict[str, Any]

AS_PUBLISHED = (
    ("", "97.3 ± 0.1, least loss 97.2; 50 min, RTX 2080 Ti", "95.9 ± 3.9, least loss 97.1"),
    ("MNIST-1k", "79.8 ± 6.9, least loss 90.5", "80.8 ± 7.2, least loss 87.1"),
    ("USPS", "86.4 ± 4.1, least loss 89.8", "84.5 ± 2.0, least loss 87.3"),
    ("MNIST-test", "96.6 ± 4.1, least loss 98.0", "97.8 ± 0.1, least loss 98.0"),
    ("color-published", "96.7 ± 0.1, least loss 96.8", "96.0 ± 0.2, least loss 95.8"),
    ("affNIST-like", "95.5 ± 3.3, least loss 97.0", "93.3 ± 5.9, least loss 97.0"),
)
"""A set, and what the paper prints for K-means and for the mixture."""

METHODS: dict[str, tuple[str, str, str]] = {
    "kmeans": ("K-means, 4 restarts", "53.6", "54.8 (DTI, Table 1)"),
    "di-spectral": ("`di-spectral`", "99.05; 84 s", DASH),
    "pssc": ("PSSC, default", "98.5; 45 s", "96.5; 182 s, a GPU and 10 cores"),
    "pssc-as-published": ("PSSC, as published", "96.4; 22 s", "96.5; 182 s, a GPU and 10 cores"),
    "di-kmeans-10000": ("DI K-means, 10,000", DASH, DASH),
    "di-kmeans-60000": ("DI K-means, 60,000", "92.1, 92.3, 92.5 (3 seeds); 15 to 20 min", "92.5"),
    "ai-kmeans-60000": ("AI K-means, 60,000", "90.2 ± 0.2 (3 seeds); 7 to 14 min", "75.3"),
    "kmeans-60000": ("K-means, 60,000", "54.7", "53.5"),
    **{
        name + fit: (f"{title}, 7,000 steps and 1,500 of trials{said}", DASH, paper)
        for fit, said in (("", ""), ("-fit", "; as by default before 30 November"))
        for name, title, paper in (
            ("dti-kmeans", "DTI K-means", "97.3 ± 0.1, least loss 97.2"),
            ("dti-gmm", "DTI mixture", "95.9 ± 3.9, least loss 97.1"),
        )
    },
    "dti-kmeans-authors-steps": (
        "DTI K-means, the authors' 21,880 steps",
        DASH,
        "97.3 ± 0.1, least loss 97.2; 50 min, RTX 2080 Ti",
    ),
    "dti-gmm-authors-steps": (
        "DTI mixture, the authors' 21,880 steps",
        DASH,
        "95.9 ± 3.9, least loss 97.1; 50 min, RTX 2080 Ti",
    ),
    "dti-kmeans-residual": (
        "DTI K-means, the same, residual backbone",
        DASH,
        "97.3 ± 0.1, least loss 97.2",
    ),
    **{
        f"{method}{'-' + name.lower() if name else ''}-as-published": (
            f"{name + ': ' if name else ''}{title}, as published",
            DASH,
            paper,
        )
        for name, *papers in AS_PUBLISHED
        for method, title, paper in zip(
            ("dti-kmeans", "dti-gmm"), ("DTI K-means", "DTI mixture"), papers, strict=True
        )
    },
    **{
        f"{method}-{name}-as-published": (f"{title}, as published", DASH, paper)
        for name, of, *papers in (
            ("affine-mnist", "Affine MNIST", "100.0", "100.0"),
            ("diffeo-mnist", "Diffeo MNIST", "91.7", "99.2"),
            ("mnist", "2,000 test digits", "75.3", "92.5"),
        )
        for method, title, paper in (
            ("ai-kmeans", f"{of}: AI K-means, the best of six rates by distortion", papers[0]),
            ("di-kmeans", f"{of}: DI K-means, the best of 36 settings", papers[1]),
        )
    },
    "ai-kmeans-60000-as-published": (
        "AI K-means, 60,000, as published (one of six rates)",
        DASH,
        "75.3",
    ),
    "di-kmeans-60000-as-published": (
        "DI K-means, 60,000, as published (one of 36 settings)",
        DASH,
        "92.5",
    ),
}
"""Title, two CPU cores, paper."""

CPU_STEP_MS = {
    "dti-kmeans strided": 74,
    "dti-kmeans residual": 230,
    "dti-kmeans residual-batch-norm": DASH,
    "dti-gmm strided": 127,
    "dti-gmm residual": 307,
    "dti-gmm residual-batch-norm": DASH,
}
CPU_PAIRS = {
    "adam, 40 steps, map_coordinates": 8_347,
    "adam, 40 steps": 12_263,
    "default": 51_572,
}
CPU_SCATTERING = {"scattering": 10_679, "kymatio-jax": 2_684, "kymatio-torch": 1_120}


def results(path: Path) -> list[Row]:
    """The last line of each measurement and seed, a failure only where there is nothing else.

    Small runs are left out.
    """
    result: dict[tuple[str, int], Row] = {}
    lines = path.read_text().splitlines() if path.is_file() else []
    for line in filter(str.strip, lines):
        row = json.loads(line)
        if row["quick"]:
            continue
        key = row["name"], row["seed"]
        if key not in result or "failed" not in row or "failed" in result[key]:
            result[key] = row
    return list(result.values())


def figures_of(rows: Sequence[Row], name: str) -> list[Row]:
    return [row["figures"] for row in rows if row["name"] == name and "failed" not in row]


def lines_of(head: Sequence[str], body: Iterable[Sequence[Any]]) -> list[str]:
    cells = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(map(str, row)) + " |" for row in cells]


def spelled(values: Sequence[float], form: Callable[[float], str] = str) -> str:
    """Mean and deviation of several, one as it is, a dash for none."""
    if not values:
        return DASH
    if len(values) == 1:
        return form(values[0])
    return f"{form(float(np.mean(values)))} ± {form(float(np.std(values)))}"


def of(runs: Sequence[Row], name: str) -> list[float]:
    return [run[name] for run in runs if run.get(name) is not None]


def shared(
    rows: Sequence[Row], name: str, figures: Sequence[str], form: Callable[[float], str]
) -> list[str]:
    """Figures of time; of runs side by side those of the quickest, which says so."""
    beside = next((row["beside"] for row in rows if row["name"] == name and "beside" in row), 1)
    runs = figures_of(rows, name)
    if beside == 1 or not runs:
        return [spelled(of(runs, each), form) for each in figures]
    least = min(runs, key=lambda run: run["seconds"])
    return [f"{form(least[each])}, {beside} at a time" for each in figures]


def methods(rows: Sequence[Row]) -> list[str]:
    """Accuracy and time of whole fits."""

    def percent(value: float) -> str:
        return f"{100 * value:.2f}"

    def rounded(value: float) -> str:
        return f"{value:.1f}"

    body = []
    for name, (title, cpu, paper) in METHODS.items():
        runs = figures_of(rows, name)
        best = min(runs, key=lambda run: run["loss"], default=None)
        body.append(
            (
                title,
                len(runs) or DASH,
                spelled(of(runs, "acc"), percent),
                percent(best["acc"]) if best else DASH,
                spelled(of(runs, "nmi"), percent),
                spelled(of(runs, "stability"), percent),
                spelled(of(runs, "first_seconds"), rounded),
                *shared(rows, name, ("seconds", "ms_a_step"), rounded),
                max(of(runs, "device_peak_mb"), default=DASH),
                cpu,
                paper,
            )
        )
    head = (
        "MNIST, if not said otherwise",
        "runs",
        "ACC",
        "of least loss",
        "NMI",
        "stability",
        "s, first fit",
        "s",
        "ms a step",
        "MB on the device",
        "2 CPU cores: ACC; s",
        "paper",
    )
    return lines_of(head, body)


def steps(rows: Sequence[Row]) -> list[str]:
    """A training step, beside the authors' code."""
    ours = (figures_of(rows, "dti-step") or [{}])[-1]
    theirs = (figures_of(rows, "authors-step") or [{}])[-1]

    def ms(result: Row | None) -> str:
        return DASH if not result else f"{1e3 * result['median']:.2f} ({1e3 * result['least']:.2f})"

    body = [
        (
            name,
            ms(ours.get(name)),
            ms(theirs.get(name.split()[0].replace("-", ""))) if "residual" in name else "",
            cpu,
        )
        for name, cpu in CPU_STEP_MS.items()
    ]
    head = ("a step, batch 128, all transforms", "ms, median (least)", "authors' PyTorch code, ms")
    return lines_of((*head, "2 CPU cores, ms"), body)


def rates(rows: Sequence[Row]) -> list[str]:
    """Judged pairs and scattering transforms a second."""
    pairs = (figures_of(rows, "pairs") or [{}])[-1]

    def scattered(name: str) -> str:
        figures = next((row["figures"] for row in rows if row["name"] == name), {})
        sizes = {size: row for size, row in figures.items() if isinstance(row, dict)}
        medians = (f"{float(np.median(sizes[s]['images_a_second'])):,.0f}" for s in sizes)
        return " / ".join(medians) or DASH

    def judged(result: Row | None) -> str:
        return f"{result['pairs_a_second']:,}" if result else DASH

    body = [(f"pairs judged: {k}", judged(pairs.get(k)), f"{v:,}") for k, v in CPU_PAIRS.items()]
    body += [
        (f"images scattered: `{name}`, batches of 256 / 1,024 / 4,096", scattered(name), f"{cpu:,}")
        for name, cpu in CPU_SCATTERING.items()
    ]
    return lines_of(("a second", "GPU", "2 CPU cores"), body)


def passes(rows: Sequence[Row]) -> list[str]:
    """A pass of Lloyd's algorithm: seconds and memory over N, seconds over landmarks."""
    result = next((row["figures"] for row in rows if row["name"] == "passes"), {})
    body = [
        (f"N = {row['n']:,}", row["ai-kmeans"], row["di-kmeans"], row["device_peak_mb"] or DASH)
        for row in result.get("by_n", [])
    ]
    count = f"{result.get('landmarks_n', 0):,}"
    body += [
        (f"N = {count}, {landmarks} landmarks", "", seconds, "")
        for landmarks, seconds in result.get("by_landmarks", {}).items()
    ]
    head = ("a pass", "AI K-means, s", "DI K-means (6² landmarks), s", "MB on the device so far")
    return lines_of(head, body or [(DASH,) * 4])


def rest(rows: Sequence[Row]) -> list[str]:
    """`pmap`, what failed, and the machine."""
    lines = []
    for result in figures_of(rows, "pmap"):
        lines.append(
            f"`pmap` over {result['devices']} device(s): {1e3 * result['seconds_per_step']:.1f} ms "
            f"a step (43 on two cores), loss {result['loss']}."
        )
    for row in rows:
        if "failed" in row:
            lines.append(f"Not measured: {row['name']}, seed {row['seed']}: {row['failed']}.")
    machines = {
        f"{row['device']}, {row['cores']} cores; driver {versions['driver']}, "
        f"{versions['platform']}; "
        f"Python {versions['python']}, JAX {versions['jax']}, jaxlib {versions['jaxlib']}"
        for row in rows
        if (versions := row.get("versions"))
    }
    where = "; ".join(sorted(machines))
    lines.append(f"Machine: {where}." if where else "**Not run yet.**")
    return lines


def text(rows: Sequence[Row]) -> str:
    parts = (methods(rows), steps(rows), rates(rows), passes(rows), rest(rows))
    return "\n\n".join("\n".join(part) for part in parts)


def fill(readme: Path, path: Path) -> None:
    """Writes the tables between the marks of a README."""
    before, rest_of = readme.read_text().split(BEGIN)
    after = rest_of.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n\n{text(results(path))}\n\n{END}{after}")


def main() -> None:
    args = arguments(
        __doc__,
        out={"type": Path, "default": RESULTS, "help": "JSON lines of the results"},
        readme={"type": Path, "default": README, "help": "where the tables go"},
    )
    rows = results(args.out)
    print(text(rows))
    if not args.quick:
        fill(args.readme, args.out)
    finish({"experiment": "gpu tables", "results": len(rows)})


if __name__ == "__main__":
    main()
