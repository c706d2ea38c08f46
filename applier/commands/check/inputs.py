"""Both sides that have to fit: what the schema registry holds, and what the Iceberg tables are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableVersion
from applier.commands.check.iceberg_side import Replicas
from applier.commands.check.registry_side import VALUE, RegistrySubjects, Subject, keyed, partner, topic_subjects
from applier.commands.check.report import TableReport
from applier.config.settings import Config
from applier.decode.registry.client import SchemaRegistry
from applier.errors import ApplierError, ConfigError


@dataclass(slots=True)
class Sides:
    """What is known of both sides.

    Attributes:
        config: The configuration.
        asked: The one subject to report; None for all.
        replicas: The Iceberg tables; None where the catalog does not answer.
        client: The registry; None without one, or where it does not answer.
        subjects: What is registered of this changefeed, by subject.
        problems: What did not answer, one sentence each.
    """

    config: Config
    asked: str | None
    replicas: Replicas | None = None
    client: RegistrySubjects | None = None
    subjects: dict[str, Subject] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note an error of applier instead of raising it."""
        try:
            yield
        except ConfigError as error:
            self.problems += error.problems
        except ApplierError as error:
            self.problems.append(str(error))

    def load(self, registry: SchemaRegistry, *, everything: bool) -> None:
        """Load the subjects of the changefeed.

        Args:
            registry: The registry.
            everything: Load all subjects although only one is to be reported.

        Raises:
            RegistryError: The registry refuses to answer.
            TransientError: It cannot be reached.
        """
        protocol, kafka = self.config.changefeed.protocol, self.config.source.kafka
        described = [version for _, version in self.replicas.known.items()] if self.replicas else []
        client = RegistrySubjects(registry, protocol, described)
        named = topic_subjects(kafka.topics, protocol) if kafka else frozenset()
        pair = {self.asked, partner(self.asked)} if self.asked else set()

        def wanted(name: str) -> bool:
            if pair and not everything:
                return name in pair
            return name in named or name in pair or not named

        loaded = client.load(wanted)
        certain = named | pair
        self.subjects = {found.name: found for found in loaded if found.name in certain or self._is_ours(found)}
        self.client = client

    def shown(self) -> list[Subject]:
        """Subjects to report."""
        pair = {self.asked, partner(self.asked)} if self.asked else set(self.subjects)
        return [subject for name, subject in self.subjects.items() if name in pair]

    def registered(self) -> dict[str, TableVersion]:
        """Newest registered version of each table, by its upstream name in lower case."""
        values = (subject for subject in self.subjects.values() if subject.role == VALUE)
        found = (version for subject in values for version in keyed(subject, self.subjects).values())
        return {str(version.name).lower(): version for version in found}

    def tables(self) -> Iterator[TableReport]:
        """Whether each table fits: the columns of the registry against Iceberg's, or those of the control tables.

        Raises:
            TransientError: The catalog does not answer.
        """
        replicas = self.replicas
        if replicas is None:
            return
        admits = TableFilter(self.config.tables.include).admits
        if self.client is None:
            versions = [version for name, version in replicas.known.items() if admits(name)]
            yield from (replicas.report(version, "control table") for version in versions)
            return
        for subject in self.shown():
            if subject.role == VALUE:
                for version in keyed(subject, self.subjects).values():
                    if admits(version.name):
                        yield replicas.report(version, "registry", _earlier(subject, version))

    def _is_ours(self, subject: Subject) -> bool:
        admits = TableFilter(self.config.tables.include).admits
        return any(item.table is not None and admits(item.table.name) for item in subject.versions)


def _earlier(subject: Subject, newest: TableVersion) -> list[TableVersion]:
    """Versions of one table before its newest, newest first."""
    found = [item.table for item in subject.versions if item.table is not None and item.table.name == newest.name]
    return found[-2::-1]
