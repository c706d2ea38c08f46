"""Both sides that have to fit: what the schema registry holds, and what the Iceberg tables are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from applier.changefeed.table import TableName, TableVersion
from applier.commands.check.iceberg_side import Replicas
from applier.commands.check.registry_side import VALUE, RegistrySubjects, Subject, partner, topic_subjects
from applier.commands.check.report import TableReport
from applier.config.settings import Config
from applier.decode.registry.registries import RegistryClient
from applier.errors import ApplierError, ConfigError


@dataclass(slots=True)
class Sides:
    """What is known of both sides.

    Attributes:
        asked: The one subject to report; None for all.
        replicas: The Iceberg tables; None where the catalog does not answer.
        client: What is registered of this changefeed; None without a registry, or where it does not answer.
        problems: What did not answer, one sentence each.
    """

    config: Config
    asked: str | None
    replicas: Replicas | None = None
    client: RegistrySubjects | None = None
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

    def load(self, registry: RegistryClient, *, everything: bool) -> None:
        """Load the subjects of the changefeed; with `everything` all of them, although only one is to be reported.

        Raises what `RegistrySubjects.load` does.
        """
        protocol, kafka = self.config.changefeed.protocol, self.config.source.kafka
        named, admits = topic_subjects(kafka.topics, protocol) if kafka else frozenset(), self.config.filter.admits
        certain = named | self._pair
        client = RegistrySubjects(registry, protocol, self.replicas.known.values() if self.replicas else ())
        client.load(self._pair if self._pair and not everything else certain if named else None)
        client.subjects = {
            name: item
            for name, item in client.subjects.items()
            if name in certain or any(it.table is not None and admits(it.table.name) for it in item.versions)
        }
        self.client = client

    def shown(self) -> list[Subject]:
        """Subjects to report."""
        found = self.client.subjects.values() if self.client else ()
        return [subject for subject in found if not self.asked or subject.name in self._pair]

    def registered(self) -> dict[TableName, TableVersion]:
        """Newest registered version of each table, by its upstream name."""
        client = self.client
        found = [client.tables(subject) for subject in client.of_values] if client else []
        return {version.name: version for versions in found for version in versions.values()}

    def tables(self) -> Iterator[TableReport]:
        """Whether each table fits: the columns of the registry, or of the control tables, against those of Iceberg."""
        replicas, client, admits = self.replicas, self.client, self.config.filter.admits
        if replicas is None:
            return
        if client is None:
            versions = [version for version in replicas.known.values() if admits(version.name)]
            yield from (replicas.report(version, "control table") for version in versions)
            return
        for subject in self.shown():
            if subject.role == VALUE:
                for version in client.tables(subject).values():
                    if admits(version.name):
                        yield replicas.report(version, "registry", _earlier(subject, version))

    @property
    def _pair(self) -> frozenset[str]:
        return frozenset({self.asked, partner(self.asked)}) if self.asked else frozenset()


def _earlier(subject: Subject, newest: TableVersion) -> list[TableVersion]:
    """Versions of one table before its newest, newest first."""
    found = [item.table for item in subject.versions if item.table is not None and item.table.name == newest.name]
    return found[-2::-1]
