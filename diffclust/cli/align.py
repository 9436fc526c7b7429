"""`diffclust align`: pictures aligned to their common mean, as K-means with one cluster does it."""

from pathlib import Path

from diffclust.cli.commands import fit
from diffclust.cli.export import export, mark_export
from diffclust.cli.options import Align, Export, Fit
from diffclust.cli.runs import (
    GO_ON,
    interruption_says,
    partial_folder,
    refuse_holding,
    remove_staged,
)
from diffclust.plotting import as_picture, displayable
from diffclust.storage import checkpoint
from diffclust.storage.staging import EXPORT_MARK, read_object, staged_file


def _check_folder(out: Path, options: Align) -> None:
    """Refuses a folder that holds anything but an earlier alignment, or the start of one."""
    held = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if not held:
        return
    # What a killed process was writing begins with a dot.
    is_own = {name for name in held if not name.startswith(".run.")} <= {
        "run",
        partial_folder(out / "run").name,
    }
    is_own = is_own or read_object(out / EXPORT_MARK).get("what") == "align"
    if not (is_own and (options.overwrite or options.resume)):
        remedy = "give --overwrite or --resume" if is_own else "give another --out"
        raise ValueError(f"{options.out!r} is not empty; {remedy}")
    refuse_holding(options.out, [options.source])


def align(options: Align) -> None:
    """Aligns images to their common mean, and writes the mean and every image aligned to it.

    Args:
        options: The command's options.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    out, replace = Path(options.out), options.overwrite or options.resume
    _check_folder(out, options)
    run = str(out / "run")
    settings = {"num_restarts": 1, **options.settings}
    fit(Fit(**{**vars(options), "out": run, "settings": settings}, clusters=1))
    with interruption_says(GO_ON):
        # Marked first: within its source it would be read as pictures of that.
        mark_export(out, "align", run)
        remove_staged(out / "aligned")
        export(Export(run, "aligned", str(out / "aligned"), overwrite=replace))
        (mean,) = checkpoint.load(run).prototypes
        with staged_file(str(out / "mean.png"), overwrite=replace) as path:
            as_picture(displayable(mean, own_range=True)).save(path, format="png")
