"""What `crates/flashvm-python` has for this package."""

from collections.abc import Iterator
from os import PathLike

class References:
    """All references of a trace."""

    name: str
    pages: int
    pages_written: int
    def __len__(self) -> int: ...

def read_file(path: str | PathLike[str], format: str | None) -> References: ...
def read_chunks(
    chunks: Iterator[tuple[bytes, bytes | None]], item_bytes: int, signed: bool, pages: bool
) -> References: ...
def sweep(
    references: References,
    policies: str,
    frames: str,
    device_model: str,
    live: bool,
    threads: int | None,
) -> list[str]: ...
def policies() -> list[tuple[str, str]]: ...
def formats() -> list[tuple[str, str]]: ...
def device_models() -> list[tuple[str, str]]: ...
