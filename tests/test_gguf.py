"""What a GGUF file says about itself."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay.errors import DamagedFileError, UsageError
from canary_replay.gguf import Header, read_header


def text(value: str) -> bytes:
    """A text as GGUF writes it, its length first."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, code: int, value: bytes) -> bytes:
    """An entry of the head."""
    return text(key) + struct.pack("<I", code) + value


def array(code: int, length: int, values: bytes) -> bytes:
    """The value of an entry that is an array."""
    return struct.pack("<IQ", code, length) + values


ENTRIES = (
    entry("general.architecture", 8, text("llama")),
    entry("llama.block_count", 4, struct.pack("<I", 30)),
    entry("tokenizer.ggml.tokens", 9, array(8, 3, text("a") + text("é") + text(""))),
    entry("tokenizer.ggml.token_type", 9, array(5, 3, struct.pack("<3i", 1, 1, 3))),
    entry("tokenizer.chat_template", 8, text("{{ '日本 🙂' }}")),
    entry("general.quantization_version", 4, struct.pack("<I", 2)),
)


def head(*entries: bytes, version: int = 3) -> bytes:
    """A whole head."""
    return b"GGUF" + struct.pack("<IQQ", version, 1, len(entries)) + b"".join(entries)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to write over and over; Hypothesis runs many examples within one test."""
    return tmp_path_factory.mktemp("gguf") / "model.gguf"


def written(path: Path, content: bytes) -> Path:
    """The path, with this content."""
    path.write_bytes(content)
    return path


class TestReadHeader:
    """Reading the head of a file."""

    @pytest.mark.parametrize("version", [2, 3])
    def test_texts(self, scratch: Path, version: int) -> None:
        """Texts are read in full, wherever they stand; numbers and arrays are passed over."""
        path = written(scratch, head(*ENTRIES, version=version) + b"the tensors")

        header = read_header(path)

        assert header == Header(version, {"general.architecture": "llama", "tokenizer.chat_template": "{{ '日本 🙂' }}"})
        assert header.chat_template == "{{ '日本 🙂' }}"

    def test_without_a_template(self, scratch: Path) -> None:
        """A file without a chat template has an empty one."""
        assert read_header(written(scratch, head(ENTRIES[0]))).chat_template == ""

    @given(st.integers(0, len(head(*ENTRIES)) - 1))
    def test_cut(self, scratch: Path, length: int) -> None:
        """A file that was cut anywhere in its head is named as damaged."""
        path = written(scratch, head(*ENTRIES)[:length])

        with pytest.raises(DamagedFileError, match=r"model\.gguf"):
            read_header(path)

    @given(st.integers(4, len(head(*ENTRIES)) - 1), st.integers(0, 255))
    def test_any_byte_changed(self, scratch: Path, place: int, value: int) -> None:
        """Whatever a byte is changed to, the head is read or named as damaged, and no memory is taken for it."""
        content = bytearray(head(*ENTRIES))
        content[place] = value
        path = written(scratch, bytes(content))

        try:
            header = read_header(path)
        except DamagedFileError:
            return

        assert header.version in {2, 3}

    def test_another_format(self, scratch: Path) -> None:
        """A file of another format is told apart from a damaged one."""
        with pytest.raises(DamagedFileError, match="this is no GGUF file"):
            read_header(written(scratch, b"PK\x03\x04 a zip file"))

    def test_a_later_version(self, scratch: Path) -> None:
        """A version of the format that is not known is named."""
        with pytest.raises(DamagedFileError, match="GGUF version 4 is not known here"):
            read_header(written(scratch, head(version=4)))

    def test_missing(self, tmp_path: Path) -> None:
        """A file that is not there is the user's mistake, with its path."""
        with pytest.raises(UsageError, match=r"absent\.gguf.* cannot be read: No such file"):
            read_header(tmp_path / "absent.gguf")
