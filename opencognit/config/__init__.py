"""The home and its `config.toml`. Owns where a home is, what its configuration may say and how its files are read.

Never writes, and knows neither agents nor the database: a `Home` is paths and checked values.
"""

from opencognit.config.home import Home, find_home, load_config, open_home
from opencognit.config.sections import AdapterSettings, Config, ModelAdapterSettings, Retry, Routine

__all__ = [
    "AdapterSettings",
    "Config",
    "Home",
    "ModelAdapterSettings",
    "Retry",
    "Routine",
    "find_home",
    "load_config",
    "open_home",
]
