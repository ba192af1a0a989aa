"""Start the labelling app, which is a package of its own: this file is where prefrl names it."""

from __future__ import annotations

import importlib
import importlib.util

from prefrl.config import AnnotateConfig
from prefrl.errors import ConfigError

NEEDED = ("fastapi", "gradio", "nh3", "pwdlib", "sqlalchemy", "uvicorn")


def run(config: AnnotateConfig) -> None:
    """Serve a project until it is interrupted.

    Raises:
        ConfigError: no project was named, the port is taken, or what the app needs is not installed.
        DataError: the store of the project cannot be used.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"The labelling app needs {', '.join(missing)}. Type: pip install 'prefrl[annotate]'")
    if not config.project:
        raise ConfigError("No project was named. Type: prefrl annotate FOLDER, or prefrl annotate FOLDER --demo")
    importlib.import_module("annotate.serve").serve(
        config.project,
        store=config.store,
        demo=config.demo,
        host=config.host,
        port=config.port,
        url=config.url,
        browser=config.browser,
        invite=config.invite,
    )
