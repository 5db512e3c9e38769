"""The embedded default model: found, converted once, never left half-made. The unpacking itself is a real test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import default_pair
from engine.errors import PairError


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"weights")
    monkeypatch.setenv("SPECVIEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(default_pair, "embedded_file", lambda: file)
    return file


def unpack(_source: Path, folder: Path, progress: object) -> None:
    (folder / "model.safetensors").write_bytes(b"x")
    (folder / "config.json").write_text("{}")


def test_it_is_converted_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[float | None] = []
    monkeypatch.setattr(default_pair, "_unpack", unpack)
    folder = default_pair.default_target(lambda _sentence, share: said.append(share))
    assert (Path(folder) / "model.safetensors").is_file()
    assert said[0] == 0.0
    assert said[-1] == 1.0
    monkeypatch.setattr(default_pair, "_unpack", None)
    assert default_pair.default_target(lambda *_: None) == folder


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_conversion_leaves_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    def interrupted(_source: Path, folder: Path, progress: object) -> None:
        (folder / "config.json").write_text("{}")
        raise failure

    monkeypatch.setattr(default_pair, "_unpack", interrupted)
    with pytest.raises(failure):
        default_pair.default_target(lambda *_: None)
    assert list(default_pair.cache_folder().iterdir()) == []


def test_a_full_disk_is_one_sentence(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(default_pair, "_unpack", full)
    with pytest.raises(PairError, match=r"No space left on device.*SPECVIEW_CACHE"):
        default_pair.default_target(lambda *_: None)


def test_another_process_may_have_been_faster(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raced(source_: Path, folder: Path, progress: object) -> None:
        unpack(source_, folder, progress)
        final = default_pair.cache_folder() / folder.name.rsplit(".", 2)[0]
        final.mkdir()
        (final / "config.json").write_text("theirs")

    monkeypatch.setattr(default_pair, "_unpack", raced)
    folder = Path(default_pair.default_target(lambda *_: None))
    assert (folder / "config.json").read_text() == "theirs"
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_only_old_left_overs_are_swept(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_pair, "_unpack", unpack)
    cache = default_pair.cache_folder()
    stem = f"{default_pair.NAME}-{source.stat().st_size:x}"
    old, young = cache / f"{stem}.a.partial", cache / f"{stem}.b.partial"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    default_pair.default_target(lambda *_: None)
    assert not old.exists()
    assert young.exists()


def test_without_the_package_the_hub_id_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_pair, "PACKAGE", "a_package_that_nobody_has")
    assert default_pair.default_target(lambda *_: None) == default_pair.HUB_ID
