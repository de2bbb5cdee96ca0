"""What a GGUF file says about itself, read without loading the model."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from canary_replay.errors import DamagedFileError, UsageError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
TEXT, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a number, by its type's code


@dataclass(frozen=True)
class Header:
    """The head of a GGUF file.

    :ivar version: of the file format.
    :ivar texts: the entries that are text, by their full keys (``general.architecture``); numbers and arrays are left out.
    """

    version: int
    texts: dict[str, str]

    @property
    def chat_template(self) -> str:
        """The Jinja template that turns messages into the model's prompt; empty when the file has none."""
        return self.texts.get("tokenizer.chat_template", "")


def read_header(path: Path) -> Header:
    """Read the head of a GGUF file; takes some 20 to 60 ms for its vocabulary.

    :raises UsageError: when the file cannot be opened, is no GGUF file, or its head is damaged.
    """
    try:
        with path.open("rb") as file:
            return _header(_Reader(file, path))
    except OSError as error:
        raise UsageError(f"the model file {str(path)!r} cannot be read: {error.strerror or error}") from error


def _header(reader: _Reader) -> Header:
    if reader.file.read(len(MAGIC)) != MAGIC:
        raise DamagedFileError(reader.path, "", "this is no GGUF file: it does not start with 'GGUF'; name one that is")
    version = reader.number("<I")
    if version not in VERSIONS:
        raise DamagedFileError(reader.path, "", f"GGUF version {version} is not known here; known: 2, 3")
    reader.number("<Q")  # of tensors; they follow after the head
    texts = {}
    for _ in range(reader.number("<Q")):
        key = reader.text()
        value = reader.value(reader.number("<I"))
        if value is not None:
            texts[key] = value
    return Header(version, texts)


class _Reader:
    """Walks over the entries of a head; every step stays within the file."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path
        self.size = path.stat().st_size

    def value(self, code: int) -> str | None:
        """The next entry's value when it is text; anything else is passed over."""
        if code == TEXT:
            return self.text()
        if code == ARRAY:
            self.pass_array()
        else:
            self.skip(self.size_of(code))
        return None

    def pass_array(self) -> None:
        code, length = self.number("<I"), self.number("<Q")
        if code != TEXT:
            self.skip(self.size_of(code) * length)
            return
        for _ in range(length):
            self.skip(self.number("<Q"))

    def text(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", "replace")

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)

    def size_of(self, code: int) -> int:
        if code not in SIZES:
            raise self.damaged(f"an entry has the unknown type {code}")
        return SIZES[code]

    def take(self, length: int) -> bytes:
        # Compared first: a damaged length may ask for more bytes than there is memory.
        if length > self.size or len(taken := self.file.read(length)) < length:
            raise self.damaged("the file ends within its head")
        return taken

    def skip(self, length: int) -> None:
        if self.file.tell() + length > self.size:
            raise self.damaged("the file ends within its head")
        self.file.seek(length, 1)

    def damaged(self, problem: str) -> DamagedFileError:
        return DamagedFileError(self.path, f"byte {self.file.tell()}", f"{problem}; fetch the model again")
