"""Chooses how the files of an export are read: by the options given, and by the beginnings of some files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from applier.changefeed.table import TableName, TableVersion
from applier.config.dump_form import CsvSection
from applier.decode.dump.csv_form import CsvForm, CsvOptions, Sample, detect
from applier.decode.dump.escapes import UnclearForm, decided
from applier.decode.dump.export import Export, File
from applier.decode.dump.sql_rows import FOLLOW, RAW, texts
from applier.decode.dump.stream import beginning
from applier.decode.dump.typed_rows import BYTES, TEXTS, loaded
from applier.errors import ConfigError

MOST_FILES = 20
"""Files that are looked at."""

SAMPLE_BYTES = 64 << 10
"""Bytes, unpacked, that are read of each."""

_KEYS = {
    "separator": "separator",
    "delimiter": "delimiter",
    "null": "null_value",
    "has_header": "header",
    "escapes": "backslash_escapes",
    "binary": "binary",
}
"""Keys of [upstream.csv]."""

_ENDS = "Lines may end in CR LF or LF (--csv-line-terminator), and nothing else."


def form_of(export: Export, section: CsvSection) -> CsvForm:
    """How the files of an export are written.

    Args:
        export: The export.
        section: Options of `[upstream.csv]`.

    Raises:
        ConfigError: Files and options do not fit, or files can be read in two ways.
    """
    return replace(_form_of(export, section), zone=section.timezone)


def _form_of(export: Export, section: CsvSection) -> CsvForm:
    given = _options(section)
    csv = [(file, _sample(export, name, file)) for name, file in _looked_at(export, "csv")]
    if not csv:
        return replace(CsvForm(), escapes=_escapes_of_sql(export, given))
    form = _checked(export, csv, given)
    if not form.delimiter and not form.escapes and any(sample.texts for _, sample in csv):
        what = f"CSV files of export {export.address} have no delimiter, and nothing shows that a backslash escapes."
        raise ConfigError(
            [f"{what} Set backslash_escapes = true in [upstream.csv] if so; else export with --csv-delimiter."]
        )
    return form


def _options(section: CsvSection) -> CsvOptions:
    texts = (section.separator, section.delimiter, section.null_value)
    separator, delimiter, null = (None if text is None else text.encode() for text in texts)
    return CsvOptions(separator, delimiter, null, section.header, section.backslash_escapes, section.binary)


def _escapes_of_sql(export: Export, given: CsvOptions) -> bool | None:
    if given.escapes is not None:
        return given.escapes
    readings: dict[bool, list[bytes]] = {True: [], False: []}
    for _, file in _looked_at(export, "sql"):
        data = _beginning(export, file)
        for escapes in list(readings):
            found = texts(data, escapes=escapes, is_whole=len(data) <= SAMPLE_BYTES)
            if found is None:
                del readings[escapes]
            else:
                readings[escapes].extend(found)
        if not readings:
            what = f"File {file.name} of export {export.address} does not hold INSERT statements of Dumpling."
            raise ConfigError([f"{what} Export again with `tiup dumpling`, or remove the file."])
    return decided(readings, FOLLOW, RAW)


def _looked_at(export: Export, kind: str) -> Iterator[tuple[TableName, File]]:
    """The first files of some tables: those with binary columns first, then those with text, then large ones."""
    found = []
    for name, files in export.files.items():
        if (file := next((file for file in files if file.kind == kind and file.size), None)) is not None:
            kinds = {column.type.name for column in export.version(name).columns}
            found.append((not kinds & BYTES, not kinds & TEXTS, -file.size, name, file))
    yield from ((name, file) for *_, name, file in sorted(found)[:MOST_FILES])


def _sample(export: Export, name: TableName, file: File) -> Sample:
    data = _beginning(export, file)
    version = export.version(name)
    return Sample(
        data[:SAMPLE_BYTES],
        [column.name for column in loaded(version)],
        names_of_types(version, TEXTS),
        names_of_types(version, BYTES),
        [column.name for column in version.columns if column.generated is not None],
        is_whole=len(data) <= SAMPLE_BYTES,
    )


def _beginning(export: Export, file: File) -> bytes:
    try:
        return beginning(export.address, file, SAMPLE_BYTES)
    except (ValueError, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        what = f"File {file.name} of export {export.address} cannot be read: {reason}."
        raise ConfigError([f"{what} Copy it again, or export again with `tiup dumpling`."]) from None


def names_of_types(version: TableVersion, types: frozenset[str]) -> frozenset[str]:
    """Names of the columns that have one of some types."""
    return frozenset(column.name for column in version.columns if column.type.name in types)


def _checked(export: Export, samples: list[tuple[File, Sample]], given: CsvOptions) -> CsvForm:
    try:
        return detect([sample for _, sample in samples], given)
    except UnclearForm as error:
        raise ConfigError([_refusal(export, samples, given, str(error))]) from None


def _refusal(export: Export, samples: list[tuple[File, Sample]], given: CsvOptions, reason: str) -> str:
    if "binary" in reason:
        what = f"All values of binary columns that were looked at in export {export.address} look like hex or base64."
        return f'{what} Set binary in [upstream.csv] to "raw", or to "hex" or "base64" if Dumpling had a dialect.'
    for file, sample in samples:
        if (misfit := _misfit(sample, given)) is not None:
            what = f"File {file.name} of export {export.address} does not fit {_said(given, sample)}: {misfit}."
            way = "Copy it again if it is cut off; else set [upstream.csv] to the options that Dumpling had."
            return f"{what} {way} {_ENDS}"
    what = f"The CSV files of export {export.address} do not have one form: {reason}."
    return f"{what} Set separator, delimiter and null_value in [upstream.csv] to those that Dumpling had. {_ENDS}"


def _misfit(sample: Sample, given: CsvOptions) -> str | None:
    """What a file looks like, where it does not fit the options."""
    try:
        detect([sample], given)
    except UnclearForm as error:
        try:
            return f"it looks like {_shown(detect([sample]))}"
        except UnclearForm:
            return str(error)
    return None


def _said(given: CsvOptions, sample: Sample) -> str:
    said = [f"{key} = {_text(getattr(given, name))}" for name, key in _KEYS.items() if getattr(given, name) is not None]
    return " and ".join(said) if said else f"its table, which has {len(sample.columns)} columns"


def _shown(form: CsvForm) -> str:
    names = ("separator", "delimiter", "has_header")
    shown = [f"{_KEYS[name]} = {_text(getattr(form, name))}" for name in names]
    return ", ".join(shown if form.escapes is None else [*shown, f"backslash_escapes = {_text(form.escapes)}"])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value.decode("utf-8", "replace")}"' if isinstance(value, bytes) else f'"{value}"'
