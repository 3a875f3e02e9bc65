"""A home: where it is, what its folders are called, and its checked configuration. Makes none of the folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from opencognit.config.overrides import LayeredSource, overlay, read_overrides
from opencognit.config.problems import first_of, problems
from opencognit.config.sections import Config
from opencognit.config.tomlfile import read_toml
from opencognit.errors import ConfigError

CONFIG_NAME = "config.toml"


@dataclass(frozen=True)
class Home:
    """One company's folder. `root` is absolute, its links resolved."""

    root: Path
    config: Config

    @property
    def agents_dir(self) -> Path:
        return self.root / "agents"

    @property
    def souls_dir(self) -> Path:
        return self.root / "souls"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def postgres(self) -> Path:
        return self.data / "postgres"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def backups(self) -> Path:
        return self.data / "backups"

    @property
    def workspaces(self) -> Path:
        return self.data / "workspaces"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def runtime(self) -> Path:
        return self.data / "runtime"


def find_home(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the home: `option` (--home), else OPENCOGNIT_HOME, else the nearest folder from `cwd` up with a config.toml."""
    named = option if option is not None else Path(text) if (text := environ.get("OPENCOGNIT_HOME")) else None
    if named is not None:
        root = (cwd / named.expanduser()).resolve()
        if not (root / CONFIG_NAME).exists():
            source = "--home" if option is not None else "OPENCOGNIT_HOME"
            raise ConfigError(f"{source} is no home, it has no {CONFIG_NAME}: make one with `opencognit init {root}`", path=root)
        return root
    start = cwd.resolve()
    for folder in (start, *start.parents):
        if (folder / CONFIG_NAME).exists():
            return folder
    raise ConfigError(
        f"no {CONFIG_NAME} here or in any folder above: make a home with `opencognit init`, or name one with --home", path=start
    )


def load_config(home: Path, environ: Mapping[str, str]) -> Config:
    """Return the checked configuration of `home`, `environ` winning over the file; ConfigError for the first problem."""
    file = read_toml(home / CONFIG_NAME)
    overrides = read_overrides(Config, environ)
    source = LayeredSource(file, overrides)
    try:
        config = Config.model_validate(overlay(file.data, overrides))
    except ValidationError as error:
        raise first_of(problems(error, Config, source)) from None
    config.resolve_database(environ, source)
    return config


def open_home(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Home:
    """Find a home and load its configuration."""
    root = find_home(option, environ, cwd)
    return Home(root, load_config(root, environ))
