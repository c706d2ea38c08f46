"""How the CSV files of an export are written, and how their own first rows show it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple, TypeAlias

from applier.decode.dump.escapes import UnclearForm, decided

BinaryForm: TypeAlias = Literal["raw", "hex", "base64"]
"""How values of binary columns are written: as they are, or as Dumpling's `--csv-output-dialect` has them."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """Options of Dumpling that say how its CSV files are written; the defaults are Dumpling's.

    Both ends of lines, CR LF and LF, are understood. A text without delimiters that equals `null` cannot be told
    from NULL; only escapes prevent that, and only where `null` begins with a backslash.

    Attributes:
        separator: Stands between two values (`--csv-separator`).
        delimiter: Stands around text (`--csv-delimiter`); empty for none.
        null: Stands for NULL, never within delimiters (`--csv-null-value`).
        has_header: The first row of each file has the names of the columns (not with `--no-header`).
        escapes: A backslash escapes (`--escape-backslash`); else a delimiter within text is written twice. None where
            nothing shows it: a backslash within text is refused then.
        binary: See `BinaryForm`. None where nothing shows it: values that can be read in two ways are refused then.
        zone: IANA zone of TIMESTAMP values.
    """

    separator: bytes = b","
    delimiter: bytes = b'"'
    null: bytes = b"\\N"
    has_header: bool = True
    escapes: bool | None = True
    binary: BinaryForm | None = "raw"
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """What is known of the form before files are looked at; None for what they show."""

    separator: bytes | None = None
    delimiter: bytes | None = None
    null: bytes | None = None
    has_header: bool | None = None
    escapes: bool | None = None
    binary: BinaryForm | None = None

    def admits(self, form: CsvForm) -> bool:
        """Whether a form has the separator, the delimiter, the header and the escapes that are given."""
        pairs = (
            (self.separator, form.separator),
            (self.delimiter, form.delimiter),
            (self.has_header, form.has_header),
            (self.escapes, form.escapes),
        )
        return all(given is None or given == found for given, found in pairs)


NOTHING_GIVEN = CsvOptions()


class Sample(NamedTuple):
    """The beginning of a file.

    Attributes:
        data: Its first bytes.
        columns: Names of its columns, in the order of the table.
        texts: Which of them hold text, which stands within delimiters.
        binaries: Which of these hold bytes.
        extras: Names of columns that the file has only where its header says so.
        is_whole: The file has no more than this.
    """

    data: bytes
    columns: Sequence[str]
    texts: frozenset[str]
    binaries: frozenset[str] = frozenset()
    extras: Sequence[str] = ()
    is_whole: bool = False


class _Token(NamedTuple):
    text: bytes
    is_text: bool


_Rows: TypeAlias = list[dict[str, _Token]]

_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|-?\.[0-9]+")

BINARY_LOOKS = {
    "hex": re.compile(rb"([0-9a-fA-F]{2})*"),
    "base64": re.compile(rb"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
}
"""What values of the other forms of binary columns look like."""


def detect(samples: Iterable[Sample], given: CsvOptions = NOTHING_GIVEN) -> CsvForm:
    """Find out how the files of one export are written: all have the same form.

    Args:
        samples: The beginnings of some files, best of all.
        given: What is known beforehand.

    Raises:
        UnclearForm: Nothing, or more than one form, fits all of them.
    """
    filled = [sample for sample in samples if sample.data]
    if not filled:
        return _laid_over(CsvForm(escapes=None, binary=None), given)
    candidates = [form for form in _candidates(filled, given) if given.admits(form)]
    fitting = [(form, rows) for form in candidates if (rows := _all_rows(form, filled, given.null)) is not None]
    if not fitting:
        raise UnclearForm("the first rows have no separator and delimiter with which each has all columns")
    best = _best(fitting)
    alike = [(form, rows) for form, rows in fitting if replace(form, escapes=best.escapes) == best]
    form = replace(best, null=_null(best, filled, alike[0][1], given))
    form = replace(form, escapes=_escapes(form, alike, filled, given))
    rows = next(rows for other, rows in alike if form.escapes in (None, other.escapes))
    return replace(form, binary=given.binary or _binary(filled, rows))


def _best(fitting: Sequence[tuple[CsvForm, list[_Rows]]]) -> CsvForm:
    """The form that most of the samples show: a header shows it beyond doubt."""
    has_header = any(form.has_header for form, _ in fitting)
    counts = Counter[tuple[bytes, bytes]]()
    for form, rows in fitting:
        if form.has_header == has_header:
            structure = (form.separator, form.delimiter)
            counts[structure] = max(counts[structure], sum(map(len, rows)))
    # What begins a text once, and never ends it, hides the rows behind it.
    most = max((count for structure, count in counts.items() if structure[1]), default=0)
    kept = {structure for structure, count in counts.items() if not structure[1] or count == most}
    # A part of a separator separates, too; and text within delimiters reads as text without any.
    best = max(kept, key=lambda structure: tuple(map(len, structure)))
    alike = [delimiter for separator, delimiter in kept if separator == best[0] and delimiter]
    if max(counts.values()) > counts[best] or len(alike) > 1:
        raise UnclearForm("the first rows do not show which delimiter text has, or that it has none")
    forms = [form for form, _ in fitting if (form.separator, form.delimiter, form.has_header) == (*best, has_header)]
    return forms[0]


def _laid_over(form: CsvForm, given: CsvOptions) -> CsvForm:
    known = {field.name: value for field in fields(given) if (value := getattr(given, field.name)) is not None}
    return replace(form, **known)


def names_of(header: bytes, form: CsvForm) -> list[bytes]:
    """The values of a header, as they stand there."""
    row = next(_tokens(header, form, 0), None)
    return [token.text for token in row] if row else []


def _candidates(samples: Sequence[Sample], given: CsvOptions) -> Iterator[CsvForm]:
    for separator, delimiter in _structures(samples, given):
        for has_header in (True, False):
            for escapes in (True, False):
                yield CsvForm(separator, delimiter, has_header=has_header, escapes=escapes)


def _structures(samples: Sequence[Sample], given: CsvOptions) -> Iterator[tuple[bytes, bytes]]:
    """Separators and delimiters that the first lines may have."""
    wide = [sample for sample in samples if len(sample.columns) > 1]
    lines = [sample.data.split(b"\n", 1)[0].rstrip(b"\r") for sample in wide or samples]
    # A value of the first row may hold the end of its line.
    counts = Counter(part for line in lines for part in _marks(line))
    separators = {part for part, count in counts.items() if 2 * count > len(lines)} if wide else {b","}
    openers = {line[:size] for line in lines for size in range(1, 5) if not line[:1].isalnum()}
    openers |= {part for part in _marks(b"\n".join(lines)) if len(part) <= 3}
    for separator in separators if given.separator is None else {given.separator}:
        found = [b"", *(opener for opener in openers if opener not in separator)]
        for delimiter in found if given.delimiter is None else [given.delimiter]:
            yield separator, delimiter


def _marks(line: bytes) -> set[bytes]:
    """All parts of a line, of up to four bytes, that could be structure: no letters, digits or backslashes."""
    found = set[bytes]()
    for run in re.findall(rb"[^A-Za-z0-9\\\x80-\xff]+", line):
        found.update(run[at : at + size] for size in range(1, 5) for at in range(len(run) - size + 1))
    return found


def _all_rows(form: CsvForm, samples: Sequence[Sample], null: bytes | None) -> list[_Rows] | None:
    """The whole rows of each sample, if the form fits all of them."""
    found = []
    for sample in samples:
        if (rows := _rows_of(form, sample, null)) is None:
            return None
        found.append(rows)
    return found


def _rows_of(form: CsvForm, sample: Sample, null: bytes | None) -> _Rows | None:
    """Rows of which each has all columns, and a number where the column holds numbers."""
    names, start = list(sample.columns), 0
    if form.has_header:
        start = sample.data.find(b"\n") + 1
        found = _header_names(form, sample)
        if found is None:
            return None
        names = found
    rows, nulls = list[dict[str, _Token]](), set() if null is None else {null}
    for row in _tokens(sample.data, form, start, is_whole=sample.is_whole):
        if row is None or len(row) != len(names):
            return None
        rows.append(dict(zip(names, row, strict=True)))
        nulls.update(token.text for name, token in rows[-1].items() if _is_null(name, token, form, sample))
        if len(nulls) > 1 or not all(_is_number(name, token, sample) for name, token in rows[-1].items()):
            return None
    return rows


def _header_names(form: CsvForm, sample: Sample) -> list[str] | None:
    end = sample.data.find(b"\n")
    known = {name.lower(): name for name in (*sample.columns, *sample.extras)}
    own = [_meant(text, form) for text in names_of(sample.data[: end + 1 or None], form)]
    texts = [text.decode("utf-8", "replace").lower() for text in own]
    is_whole = len(set(texts)) == len(texts) and {name.lower() for name in sample.columns} <= set(texts) <= known.keys()
    return [known[text] for text in texts] if is_whole else None


def _meant(name: bytes, form: CsvForm) -> bytes:
    """A name of a header without what escapes in it."""
    if form.escapes:
        return re.sub(rb"\\(.)", rb"\1", name)
    return name.replace(form.delimiter * 2, form.delimiter) if form.delimiter else name


def _is_null(name: str, token: _Token, form: CsvForm, sample: Sample) -> bool:
    if token.is_text or (not form.delimiter and name in sample.texts):
        return False
    return name in sample.texts or not _NUMBER.fullmatch(token.text)


def _is_number(name: str, token: _Token, sample: Sample) -> bool:
    """Whether a value within delimiters may be one of its column: drivers show some numbers as text."""
    return (
        not token.is_text or name not in sample.columns or name in sample.texts or bool(_NUMBER.fullmatch(token.text))
    )


def _tokens(data: bytes, form: CsvForm, at: int, *, is_whole: bool = False) -> Iterator[list[_Token] | None]:
    """The values of each whole row of a sample, as they stand there; None where one goes on behind its delimiter."""
    mark, separator = re.escape(form.delimiter), re.escape(form.separator)
    text = rb"(?:\\.|(?!%s)[^\\])*+" % mark if form.escapes else rb"(?:%s%s|(?!%s).)*+" % (mark, mark, mark)
    plain = rb"(?:\\.|(?!%s)[^\r\n])*+" % separator if form.escapes else rb"(?:(?!%s)[^\r\n])*+" % separator
    either = rb"%s(?P<text>%s)%s|(?!%s)" % (mark, text, mark, mark) if mark else b""
    either += rb"(?P<plain>%s)" % plain
    value = re.compile(rb"(?:%s)(?P<end>%s|\r?\n|\Z)?" % (either, separator), re.DOTALL)
    row = list[_Token]()
    while at < len(data):
        found = value.match(data, at)
        is_cut = found is None or len(data) - found.end() < len(form.separator)
        if found is None or not found["end"]:
            if is_whole or not is_cut:
                yield None
            return
        row.append(_Token(found["plain"], False) if found["plain"] is not None else _Token(found["text"], True))
        at = found.end()
        if found["end"] != form.separator:
            yield row
            row = []


def _null(form: CsvForm, samples: Sequence[Sample], rows: Sequence[_Rows], given: CsvOptions) -> bytes:
    if given.null is not None:
        return given.null
    found = {
        token.text
        for sample, own in zip(samples, rows, strict=True)
        for row in own
        for name, token in row.items()
        if _is_null(name, token, form, sample)
    }
    if len(found) > 1:
        raise UnclearForm("several values without delimiters are no numbers, and only one stands for NULL")
    return found.pop() if found else b"\\N"


def _escapes(
    form: CsvForm, alike: Sequence[tuple[CsvForm, list[_Rows]]], samples: Sequence[Sample], given: CsvOptions
) -> bool | None:
    if given.escapes is not None:
        return given.escapes
    follow = b"0nr\\" + (form.delimiter or form.separator)[:1]
    readings = {bool(other.escapes): _texts(form, samples, rows) for other, rows in alike}
    found = decided(readings, follow, b"\x00\r\n")
    # Without a delimiter, what was taken for escapes may be text whose delimiter the first rows do not show.
    return found if form.delimiter or len(readings) == 1 else None


def _texts(form: CsvForm, samples: Sequence[Sample], rows: Sequence[_Rows]) -> Iterator[bytes]:
    for sample, own in zip(samples, rows, strict=True):
        for row in own:
            yield from (
                token.text
                for name, token in row.items()
                if token.is_text or (name in sample.texts and token.text != form.null)
            )


def _binary(samples: Sequence[Sample], rows: Sequence[_Rows]) -> BinaryForm | None:
    """Raw where a value shows it, or where there are too few values to doubt Dumpling's default.

    No value shows the other forms, as bytes may look like them.
    """
    values = [
        row[name].text
        for sample, own in zip(samples, rows, strict=True)
        for row in own
        for name in sample.binaries
        if name in row and row[name].is_text and row[name].text
    ]
    if any(not look_encoded(value) for value in values):
        return "raw"
    is_padded = any(value.endswith(b"=") for value in values)
    is_hex = all(BINARY_LOOKS["hex"].fullmatch(value) for value in values)
    if len(values) >= _MANY and (is_hex or is_padded):
        raise UnclearForm("values of binary columns may be bytes as they are, or written in hex or base64")
    return None


_MANY = 8
"""Values that hardly all look like hex by chance."""


def look_encoded(value: bytes) -> bool:
    """Whether bytes look like hex or base64."""
    return any(look.fullmatch(value) for look in BINARY_LOOKS.values())
