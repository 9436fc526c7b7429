"""Types that several commands' options share, with what the help says of them."""

from typing import Annotated, Literal

from tyro.conf import Positional, arg

Split = Literal["all", "train", "test"]

Flag = Annotated[bool, arg(help_behavior_hint="")]
Folder = Annotated[str, arg(metavar="DIR")]
Source = Annotated[Positional[str], arg(metavar="SOURCE")]
File = Annotated[str | None, arg(metavar="FILE", help_behavior_hint="")]
Run = Annotated[str | None, arg(metavar="RUN", help_behavior_hint="")]
Labels = Annotated[str | None, arg(metavar="COLUMN", help_behavior_hint="")]
Limit = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: all)")]
Size = Annotated[str | None, arg(metavar="PIXELS", help_behavior_hint="(default: as they are)")]
Channels = Annotated[
    Literal[1, 3] | None, arg(metavar="{1,3}", help_behavior_hint="(default: as they are)")
]
ChunkSize = Annotated[
    int | None, arg(metavar="N", help_behavior_hint="(default: from the device's memory)")
]
Maps = Annotated[int, arg(metavar="N")]
