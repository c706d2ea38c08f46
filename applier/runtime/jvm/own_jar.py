"""Our few classes of Java, compiled once for each version of them and of the jars that they are compiled against.

Janino compiles them, which Spark has for its own generated code: so no JDK is needed, and no compiled file is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from applier.errors import ConfigError
from applier.runtime.jvm.bare_jvm import bare_jvm

SOURCES = Path(__file__).parent / "java"
"""One class a file, with those that it encloses. It knows the classes of the files before it, by their names."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The same sources give the same jar."""


def built(against: Sequence[Path], folder: Path) -> Path:
    """The jar of our classes in a folder, compiled now if it is not there; others may do the same at the same time.

    Raises:
        ConfigError: No Java was found, the folder cannot be written, or the sources do not compile.
    """
    sources = sorted(SOURCES.glob("*.java"))
    contents = [source.read_bytes() for source in sources] + [jar.name.encode() for jar in against]
    jar = folder / f"applier-{hashlib.sha256(b'/'.join(contents)).hexdigest()[:12]}.jar"
    if jar.is_file():
        return jar
    classes = _compiled_apart(sources, against)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".jar-") as staging:
            made = Path(staging) / jar.name
            with zipfile.ZipFile(made, "w") as archive:
                for name, code in sorted(classes.items()):
                    archive.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", _EPOCH), code)
            made.replace(jar)
    except OSError as error:
        hint = (
            "run `python -m applier.runtime.jvm.jars` as a user who may write there, or set APPLIER_JARS to a folder."
        )
        raise ConfigError([f"Cannot write {jar}: {error.strerror}; {hint}"]) from error
    return jar


def _compiled_apart(sources: Sequence[Path], against: Sequence[Path]) -> dict[str, bytes]:
    """The classes of some sources by their names, compiled in a process of its own: this one may have a JVM already."""
    command = [sys.executable, "-m", __name__, os.pathsep.join(map(str, sources)), os.pathsep.join(map(str, against))]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ConfigError([f"The classes of applier cannot be compiled: {' '.join(reason)}."])
    return {name: base64.b64decode(code) for name, code in json.loads(done.stdout).items()}


def _compiled(sources: Sequence[Path], against: Sequence[Path]) -> dict[str, bytes]:
    with bare_jvm(against) as jvm:
        found: dict[str, bytes] = {}
        known = None
        for source in sources:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            if known is not None:
                compiler.setParentClassLoader(known)
            compiler.cook(source.read_text(encoding="utf-8"))
            known = compiler.getClassLoader()
            found |= {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
        return found


if __name__ == "__main__":
    given = ([Path(place) for place in argument.split(os.pathsep)] for argument in sys.argv[1:3])
    sys.stdout.write(json.dumps({name: base64.b64encode(code).decode() for name, code in _compiled(*given).items()}))
