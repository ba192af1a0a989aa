"""A labelling app that is started from Python, in a process and an environment of its own.

    python host.py feedloop FOLDER PAIRS.json       or       python host.py annotate FOLDER PAIRS.json

It says what it does in lines of JSON, and does what lines of JSON on its input ask for.
"""

import contextlib
import importlib
import json
import sys
from pathlib import Path


class Feedloop:
    """feedloop, as its own documentation starts it."""

    def __init__(self, module, folder):
        self._module = module
        module.start(db_path=str(folder / "feedloop.db"), open_browser=False)
        self.url = self.link = module._server.url

    def compare(self, prompt, outputs):
        return self._module.compare(prompt, outputs)

    def wait(self, id):
        return self._module.wait(id, timeout=2)

    def export(self, path):
        return self._module.export(path)

    def invite(self, name):
        return ""


class Annotate:
    """The labelling app of this project."""

    def __init__(self, module, folder):
        self._session = module.start(folder, browser=False)
        self.url, self.link = self._session.url, self._session.link

    def compare(self, prompt, outputs):
        return self._session.compare(prompt, outputs)

    def wait(self, id):
        answer = self._session.wait(id, timeout=2)
        return {"outcome": answer.outcome, "chosen": answer.chosen}

    def export(self, path):
        return len(self._session.export(path).rows)

    def invite(self, name):
        return f"{self.url}/join/{self._session.store.people.invite('annotator', 1.0, name)}"


def main(name, folder, pairs):
    with contextlib.redirect_stdout(sys.stderr):
        app = {"feedloop": Feedloop, "annotate": Annotate}[name](importlib.import_module(name), Path(folder))
        ids = [
            app.compare(pair["prompt"], [pair["first"], pair["second"]]) for pair in json.loads(Path(pairs).read_text())
        ]
    print(json.dumps({"url": app.url, "link": app.link, "ids": ids}), flush=True)
    for line in sys.stdin:
        what, argument = json.loads(line)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                done = getattr(app, what)(argument)
        except Exception as error:
            done = f"{type(error).__name__}: {error}"
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
