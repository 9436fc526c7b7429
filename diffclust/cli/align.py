"""`diffclust align`: pictures aligned to their common mean, as K-means with one cluster does it."""

from pathlib import Path

from diffclust.cli.commands import fit
from diffclust.cli.export import export, mark_export
from diffclust.cli.options import Align, Export, Fit
from diffclust.cli.runs import GO_ON, interruption_says, remove_staged
from diffclust.plotting import as_picture, displayable
from diffclust.storage import checkpoint
from diffclust.storage.staging import staged_file


def align(options: Align) -> None:
    """Aligns images to their common mean, and writes the mean and every image aligned to it.

    Args:
        options: The command's options.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    out, replace = Path(options.out), options.overwrite or options.resume
    is_own = (out / "run").is_dir() or (out / "run.partial").is_dir()
    if out.is_dir() and any(out.iterdir()) and not (is_own and replace):
        remedy = "give --overwrite or --resume" if is_own else "give another --out"
        raise ValueError(f"{options.out!r} is not empty; {remedy}")
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
