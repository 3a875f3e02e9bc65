"""`model show` and `model pull` against a hub on the loopback interface that can cut, tamper and refuse."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from opencognit.brain.embed import lock, places
from opencognit.brain.embed.manifest import DEFAULT_FILES, REVISION
from tests.cli_kit import Cli, Said, assert_one_line
from tests.conftest import MakeHome

NAME = "all-MiniLM-L6-v2"
BASE = f"/sentence-transformers/{NAME}/resolve/{REVISION}/"
WEIGHTS = f"{BASE}model.safetensors"
SIZE = 90_868_376
PUBLISHED = places.locate(NAME, Path("/nowhere"))[0].folder


@dataclass
class Hub:
    """What the server answers with, and what it was asked: (path, Range header or "")."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    cut_after: int | None = None
    knows_ranges: bool = True
    misreads_ranges: bool = False
    status: int = 200
    address: str = ""

    def ranges(self, path: str) -> list[str]:
        return [asked for name, asked in self.asked if name == path]


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            hub.asked.append((self.path, wanted))
            body = hub.files.get(self.path)
            if hub.status != 200 or body is None:
                self.send_error(hub.status if hub.status != 200 else 404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and hub.knows_ranges else 0
            start = 0 if hub.misreads_ranges else start
            if start >= len(body) > 0:
                self.send_error(416)
                return
            partial = start > 0 or (hub.misreads_ranges and wanted)
            self.send_response(206 if partial else 200)
            if partial:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            end = len(body) if hub.cut_after is None else start + hub.cut_after
            with contextlib.suppress(ConnectionError):  # a command that gives up closes in mid-answer
                self.wfile.write(memoryview(body)[start:end])

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing on standard error: that is the command's."""

    return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that has the published files; the installed package is out of sight."""
    found = Hub({f"{BASE}{file.path}": (PUBLISHED / file.path).read_bytes() for file in DEFAULT_FILES})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(found))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(places, "_PACKAGE", "no_such_package")
    monkeypatch.setenv("HF_ENDPOINT", found.address)
    monkeypatch.setenv("NO_PROXY", "*")
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    (tmp_path / "config.toml").write_text("")
    return Cli(tmp_path)


@pytest.fixture
def models(cli: Cli) -> Path:
    return cli.home / "data" / "models"


def failed(said: Said, code: int, told: str) -> None:
    """The command failed with one line, after what it had to say of its progress."""
    assert (said.code, said.out) == (code, ""), said
    assert_one_line("".join(line for line in said.err.splitlines(True) if not line.startswith("fetching ")), told)


def scratch(models: Path) -> Path:
    return models / f".pull-{NAME}"


# --- pull ---------------------------------------------------------------------------------------------------------


def test_a_pulled_model_is_whole_and_works(hub: Hub, cli: Cli, models: Path) -> None:
    """From nothing to a usable embedder; a second pull finds it usable and asks for nothing."""
    before = cli("model", "show", "--json")
    assert before.code == 1
    assert "run `opencognit model pull`" in before.json["problem"]
    said = cli.ok("model", "pull", "--json")
    folder = models / NAME
    fetched = sum(file.size or 0 for file in DEFAULT_FILES)
    assert said.json == {"model": NAME, "origin": "pulled", "folder": str(folder), "bytes_fetched": fetched}
    assert "fetching model.safetensors (90.9 MB)" in said.err
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        file.path for file in DEFAULT_FILES
    }
    assert not scratch(models).exists()
    shown = cli.ok("model", "show", "--json").json
    assert (shown["name"], shown["dimensions"], shown["origin"], shown["problem"]) == (NAME, 384, "pulled", None)
    hub.asked.clear()
    assert "usable already" in cli.ok("model", "pull", f"sentence-transformers/{NAME}").out
    assert hub.asked == []


def test_an_installed_package_needs_no_pull(hub: Hub, cli: Cli, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    said = cli.ok("model", "pull")
    assert f"usable already, in {PUBLISHED} (an installed package): nothing to do" in said.out
    assert (hub.asked, models.exists()) == ([], False)


def test_a_damaged_model_is_replaced(hub: Hub, cli: Cli, models: Path) -> None:
    """What lies there under the model's name and is not the published file goes only once the new one is whole."""
    folder = models / NAME
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "stray"):
        (folder / name).write_text("damaged")
    hub.status = 503
    assert cli("model", "pull").code == 1
    assert (folder / "stray").exists()
    hub.status = 200
    cli.ok("model", "pull")
    assert places.damage(folder) is None
    assert {path.name for path in models.iterdir()} == {NAME, ".pull.lock"}
    assert not (folder / "stray").exists()


def test_a_broken_connection_is_gone_on_with(hub: Hub, cli: Cli, models: Path) -> None:
    """Within one pull a few times, then by the next: no byte of the weights is fetched twice."""
    hub.cut_after = 10_000_000
    failed(
        cli("model", "pull"), 1, "the connection broke after 50000000 bytes (of 90868376): run it again, it goes on from there"
    )
    assert hub.ranges(WEIGHTS) == ["", *(f"bytes={at}0000000-" for at in range(1, 5))]
    assert (scratch(models) / "model.safetensors.part").stat().st_size == 50_000_000
    assert not (models / NAME).exists()
    hub.asked.clear()
    hub.cut_after = None
    assert cli.ok("model", "pull", "--json").json["bytes_fetched"] == SIZE - 50_000_000
    assert hub.asked == [(WEIGHTS, "bytes=50000000-")]
    assert places.damage(models / NAME) is None


@pytest.mark.parametrize("oddity", [{"knows_ranges": False}, {"misreads_ranges": True}])
def test_a_hub_that_sends_another_range_begins_anew(oddity: dict[str, bool], hub: Hub, cli: Cli, models: Path) -> None:
    part = scratch(models) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes((PUBLISHED / "model.safetensors").read_bytes()[:1000])
    vars(hub).update(oddity)
    cli.ok("model", "pull")
    assert hub.ranges(WEIGHTS) == ["bytes=1000-"]
    assert places.damage(models / NAME) is None


@pytest.mark.parametrize("length", [1000, SIZE, SIZE + 5])
def test_a_beginning_that_is_of_another_file_is_thrown_away(length: int, hub: Hub, cli: Cli, models: Path) -> None:
    part = scratch(models) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * length)
    cli.ok("model", "pull")
    assert hub.ranges(WEIGHTS) == [f"bytes={length}-", ""]
    assert places.damage(models / NAME) is None


def test_a_whole_part_is_not_fetched_again(hub: Hub, cli: Cli, models: Path) -> None:
    """As after a kill between the last byte and the rename."""
    part = scratch(models) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.symlink_to(PUBLISHED / "model.safetensors")
    cli.ok("model", "pull")
    assert hub.ranges(WEIGHTS) == [f"bytes={SIZE}-"]


def test_another_file_than_the_published_one_is_refused(hub: Hub, cli: Cli, models: Path) -> None:
    hub.files[WEIGHTS] = hub.files[WEIGHTS][:-1] + b"\0"
    failed(cli("model", "pull"), 1, "not the published file (wrong SHA-256), so it was removed")
    assert not (models / NAME).exists()
    assert not (scratch(models) / "model.safetensors.part").exists()
    assert (scratch(models) / "tokenizer.json").exists(), "what was right is kept for the next pull"


def test_a_model_that_the_hub_does_not_have_is_exit_3(hub: Hub, cli: Cli) -> None:
    for status in (404, 401):
        hub.status = status
        failed(
            cli("model", "pull", "acme/nothing"), 3, f"no model 'acme/nothing': 127.0.0.1:{hub.address.rpartition(':')[2]} has no"
        )


def test_a_hub_in_trouble_is_said(hub: Hub, cli: Cli) -> None:
    hub.status = 503
    failed(cli("model", "pull"), 1, "the hub refuses (HTTP 503): try again later")
    failed(cli("model", "pull", "acme/tiny"), 1, "the hub refuses (HTTP 503): try again later")


@pytest.mark.usefixtures("hub")
def test_no_network_is_said_with_the_ways_around_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        failed(cli("model", "pull"), 1, "cannot be reached (connection refused): check the network, name a mirror in HF_ENDPOINT")


def test_a_full_disk_is_said(hub: Hub, cli: Cli, models: Path) -> None:
    scratch(models).mkdir(parents=True)
    (scratch(models) / "model.safetensors.part").symlink_to("/dev/full")
    failed(cli("model", "pull"), 1, f"{models}: the model cannot be written (no space left on device)")


@pytest.mark.usefixtures("hub")
def test_two_pulls_do_not_write_into_one_folder(cli: Cli, models: Path) -> None:
    models.mkdir(parents=True)
    with lock.held(models / ".pull.lock", wait=True):
        failed(cli("model", "pull"), 4, "another `opencognit model pull` is at work there: wait for it")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["../x", "/etc", "a b", "a/b/c", ".hidden", "x..y"])
def test_a_name_that_is_none_is_usage(name: str, cli: Cli, models: Path) -> None:
    failed(cli("model", "pull", name), 2, "is no model's name: write NAME or PUBLISHER/NAME")
    assert not models.exists()


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("endpoint", ["file:///etc", "hub.example.org", "http://"])
def test_an_endpoint_that_is_no_address_is_usage(endpoint: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    failed(cli("model", "pull"), 2, f"HF_ENDPOINT: {endpoint!r} is not an address")


# --- any other model ----------------------------------------------------------------------------------------------


def publish(hub: Hub, files: dict[str, bytes]) -> None:
    """Publish acme/tiny: large files with their SHA-256, as a hub does."""
    siblings = [
        {"rfilename": path, "size": len(body)}
        | (
            {"lfs": {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}}
            if path.endswith((".safetensors", ".bin"))
            else {}
        )
        for path, body in files.items()
    ]
    hub.files["/api/models/acme/tiny?blobs=true"] = json.dumps({"sha": "abc123", "siblings": siblings}).encode()
    hub.files |= {f"/acme/tiny/resolve/abc123/{path}": body for path, body in files.items()}


def test_another_model_comes_with_what_its_library_loads(hub: Hub, cli: Cli, models: Path) -> None:
    """Not with other runtimes' weights, pickles beside safetensors, or a path that leads elsewhere."""
    wanted = {"modules.json": b"[]", "config.json": b"{}", "1_Pooling/config.json": b"{}", "model.safetensors": b"weights"}
    publish(hub, wanted | {"onnx/config.json": b"{}", "pytorch_model.bin": b"pickle", "README.md": b"", "../../evil.json": b"{}"})
    assert cli.ok("model", "pull", "acme/tiny", "--json").json["bytes_fetched"] == sum(map(len, wanted.values()))
    folder = models / "acme--tiny"
    assert {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == wanted
    assert "usable already" in cli.ok("model", "pull", "acme/tiny").out


def test_pickles_come_only_where_there_is_nothing_else(hub: Hub, cli: Cli, models: Path) -> None:
    publish(hub, {"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    cli.ok("model", "pull", "acme/tiny")
    assert {path.name for path in (models / "acme--tiny").iterdir()} == {"config.json", "pytorch_model.bin"}


def test_another_models_weights_are_checked_too(hub: Hub, cli: Cli, models: Path) -> None:
    publish(hub, {"config.json": b"{}", "model.safetensors": b"weights"})
    hub.files["/acme/tiny/resolve/abc123/model.safetensors"] = b"others!"
    failed(cli("model", "pull", "acme/tiny"), 1, "not the published file")
    assert not (models / "acme--tiny").exists()


@pytest.mark.parametrize(
    ("listing", "told"),
    [
        (b"<html>", "the answer is not JSON"),
        (b"[]", "no list of a model's files"),
        (b'{"sha": "a", "siblings": [{}]}', "no list of a model's files"),
        (b'{"sha": "a", "siblings": [{"rfilename": "config.json"}]}', "lists no weights"),
        (b'{"sha": "../..", "siblings": [{"rfilename": "a.safetensors"}]}', "lists no weights"),
    ],
)
def test_an_odd_listing_is_said(listing: bytes, told: str, hub: Hub, cli: Cli) -> None:
    hub.files["/api/models/acme/tiny?blobs=true"] = listing
    failed(cli("model", "pull", "acme/tiny"), 1, told)


# --- show and doctor ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {"embedder": "onnx", "model": NAME, "name": NAME, "dimensions": 384, "origin": "package", "folder": str(PUBLISHED)}),
        ('embedder = "hash"', {"embedder": "hash", "model": None, "name": "hash-v1", "dimensions": 384, "origin": None}),
        ('embedder = "off"', {"embedder": "off", "model": None, "name": None, "dimensions": None, "folder": None}),
    ],
)
def test_show_tells_which_embedder_is_active(settings: str, expected: dict[str, Any], cli: Cli) -> None:
    (cli.home / "config.toml").write_text(f"[brain]\n{settings}\n")
    shown = cli.ok("model", "show", "--json").json
    assert shown["problem"] is None
    assert {key: shown[key] for key in expected} == expected
    assert expected["embedder"] in cli.ok("model", "show").out


@pytest.mark.usefixtures("hub")
def test_doctor_says_what_finds_memories(make_home: MakeHome) -> None:
    """Without a model nothing fails: it is a warning with its mend; with one, where it lies."""

    def finding(home_config: str) -> dict[str, Any]:
        cli = Cli(make_home(config=home_config).root)
        (found,) = [one for one in cli("doctor", "--json").json["items"] if one["name"] == "model"]
        return dict(found)

    missing = finding("")
    assert missing["status"] == "warn"
    assert "run `opencognit model pull`" in missing["detail"]
    assert finding(f'[brain]\nmodel = "{PUBLISHED}"\n')["status"] == "ok"
    assert finding('[brain]\nembedder = "off"\n')["status"] == "ok"
    assert finding('[brain]\nembedder = "hash"\n')["status"] == "warn"
