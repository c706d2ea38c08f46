"""Builds the pipeline of a configuration, which holds the changefeed's lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.filter import exactly
from applier.changefeed.table import TableName
from applier.config.readers import refuse_unreadable
from applier.config.settings import Config
from applier.config.upstream import admitted, supplied_tables
from applier.consume.offsets import refuse_gaps
from applier.consume.runner import Runner
from applier.consume.source import Source
from applier.consume.spark import ArchiveSource, KafkaSource, places
from applier.consume.staging_folder import staging_folder
from applier.consume.storage.folder import StorageFolder
from applier.consume.storage.spark import StorageSource
from applier.consume.tasks.spark import TaskRows
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.namesakes import Lives
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import ApplierError, CheckpointConflict, OutsideRefused, TransientError
from applier.order.feed_order import ORDERS
from applier.pipeline import topics
from applier.pipeline.first_look import look_first, lost_catalog, new_lake
from applier.pipeline.heartbeat import beating
from applier.pipeline.maintenance import Maintenance
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.reduced_rows import ReducedRows
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.schema_changes.upstream import AskedUpstream
from applier.pipeline.state import State, keep_end, take_names
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import completeness, lost_control
from applier.pipeline.tables.changefeed import Changefeed, Recorder
from applier.pipeline.tables.table_maker import TableMaker
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import terminal
from applier.runtime.jvm.spark_session import running
from applier.runtime.logs import logger
from applier.runtime.places import Places
from applier.runtime.retry import with_retry
from applier.runtime.stop_requests import STOPPING, leaving
from applier.runtime.tasks.spark import map_in_tasks
from applier.sink.commit.fence import Fenced, fence
from applier.sink.control import checkpoints
from applier.sink.control.append_table import AppendOnlyTable
from applier.sink.control.control import Control, unix_ms
from applier.sink.control.lease import this_process
from applier.sink.control.rows import newest_checkpoint
from applier.sink.control.tables import CHECKPOINTS, CONTROL_TABLES, SCHEMA_CHANGES, namespace
from applier.sink.control.whereabouts import CATALOG_FILE, refuse_foreign
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.java import FileTasks
from applier.sink.iceberg.maintenance import set_property
from applier.sink.iceberg.table import Table
from applier.wording import WAY_TO_THE_LAKE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_UNEXPECTED = ApplierError(
    "It failed unexpectedly.", "its standard error says why, and names the file with the traceback."
)

Look = Callable[[State, Source], object]
"""Looks at the last state of a changefeed before it is taken, and raises what speaks against that."""


@contextmanager
def assembled(
    config: Config,
    *,
    take_over: bool = False,
    look: Look | None = None,
    is_run: bool = False,
    spark: ExitStack | None = None,
) -> Iterator[Pipeline]:
    """Start Spark, take the changefeed, and hold it until the block ends.

    Args:
        config: The configuration.
        take_over: Take the changefeed even if another applier seems to hold it.
        look: Called before anything is written.
        is_run: What ends the block is kept for `applier status`.
        spark: Keeps Spark running until it is closed. Default: it ends with the block.

    Raises:
        ConfigError: Spark cannot start, the messages so far were of another protocol, or one of `tables.readers` cannot
            read the tables; nothing was written.
        CheckpointConflict: Another applier holds the changefeed.
        TransientError: Catalog or source do not answer.
    """
    refuse_unreadable(config.tables.readers, config.tables.format_version)
    is_told = _announce_new_catalog(config)
    with ExitStack() as own:
        session = (own if spark is None else spark).enter_context(running(config, config.catalog.properties))
        where = places(session, config.source.engine)
        tasks = FileTasks(partial(map_in_tasks, session), where) if where.has_tasks else None
        with leaving(), STOPPING.waiting(), terminal.waiting("opening the catalog"):
            catalog = with_retry(lambda: Catalog(session, config.catalog.name, tasks))
        with open_runner(config, session, where) as runner:
            me = this_process(unix_ms())
            with leaving(), terminal.waiting("reading the checkpoint and taking the lease"):
                control, checkpoint = with_retry(
                    lambda: taken(config, catalog, runner.source, me, look, take_over=take_over, is_told=is_told)
                )
                state = with_retry(lambda: State.load(control, checkpoint))
            try:
                with beating(state, config.run.heartbeat_seconds), leaving(state.control.release):
                    STOPPING.check()
                    with terminal.waiting("reading the tables, and fencing them if another applier held them"):
                        pipeline = with_retry(lambda: _assembled(config, runner, catalog, state))
                        with_retry(lambda: completeness.keep(state, pipeline.targets))
                    STOPPING.check()
                    yield pipeline
            except BaseException as error:
                if is_run and isinstance(error, Exception):
                    with suppress(Exception):
                        keep_end(state, error if isinstance(error, ApplierError) else _UNEXPECTED)
                # What went wrong counts, not that the changefeed could then not be released either.
                with suppress(ApplierError):
                    state.control.release()
                raise
            _release(state)


def _release(state: State) -> None:
    """Say that this process has stopped; where storage takes nothing, the next one finds out by itself."""
    try:
        state.control.release()
    except (TransientError, OutsideRefused) as error:
        logger().warning("changefeed not released", error=str(error))


def _announce_new_catalog(config: Config) -> bool:
    """Name the file of a catalog that is about to be made: another one than before would be another lake.

    Raises:
        TerminalError: The warehouse holds files of the changefeed, so there was a catalog.
    """
    file = config.catalog.sqlite_file
    if file is None or file.exists():
        return False
    if (error := lost_catalog(config)) is not None:
        raise error
    logger().info("catalog is new", file=str(file.absolute()), reason=new_lake(config))
    return True


def _announce_new_changefeed(config: Config, *, is_empty: bool) -> None:
    """Log that a catalog knows no such changefeed: if it is not empty, the name may be another one than before."""
    if is_empty:
        logger().info("changefeed is new", reason=new_lake(config))
    else:
        logger().warning("changefeed is new", reason=new_lake(config), hint=WAY_TO_THE_LAKE)


def last_state(catalog: Catalog, name: str) -> State:
    """What the last holder of a changefeed left, to look at without the lease; no table is made."""
    found = {kind: catalog.load((namespace(name), kind.name)) for kind in CONTROL_TABLES}
    control = Control(name, {kind: AppendOnlyTable(table, kind) for kind, table in found.items() if table})
    # Only an applier that takes the changefeed fences the tables.
    last = control.last_checkpoint() or Checkpoint(Lease(0, Holder("", "")), step=0, resolved_ts=0, written_at=0)
    return State.load(control, replace(last, lease=replace(last.lease, unfenced=0, fenced=0)))


def taken(
    config: Config,
    catalog: Catalog,
    source: Source,
    me: Holder,
    look: Look | None,
    *,
    take_over: bool,
    is_told: bool = False,
) -> tuple[Control, Checkpoint]:
    """The control tables, and the checkpoint from which this process goes on."""
    name = config.changefeed.name
    # Nothing is held yet, so that a stop request need not wait for the lease.
    with STOPPING.waiting():
        refuse_copy(config, catalog)
        is_lost = checkpoints.lost_epoch(catalog.load, name) > 0
        if is_lost:
            refuse_gaps(name, catalog.name, source.bounds())
        elif checkpoints.is_absent(catalog.load, name):
            if (error := lost_catalog(config)) is not None and not catalog.namespaces():
                raise error
            decoder = build(config.changefeed.protocol, decoder_options(config))
            with terminal.waiting("asking the source what it holds"):
                look_first(source, decoder, config.changefeed.protocol, config.catalog)
            if not is_told:  # Behind what may have to be asked again.
                _announce_new_changefeed(config, is_empty=not catalog.namespaces())
        elif (table := catalog.load((namespace(name), CHECKPOINTS.name))) is not None:
            last = newest_checkpoint(AppendOnlyTable(table, CHECKPOINTS).newest().to_pylist())
            topics.refuse_protocol(last, config.changefeed.protocol)
        if look is not None and not is_lost:
            look(last_state(catalog, name), source)
        control = Control.open(catalog, name, is_new=not is_lost and checkpoints.is_unwritten(catalog.load, name))
        left = lost_control.left_tables(catalog, name) if is_lost else []
        lost_epoch = 0
        if is_lost:  # Any table of the changefeed may have the highest stamp, control tables included.
            lost_epoch = max([checkpoints.lost_epoch(catalog.load, name), *(item.stamp.epoch for item in left)])
    checkpoint, why = control.take(me, config.run.lease_seconds, take_over=take_over, lost_epoch=lost_epoch)
    _keep_catalog_file(config, control.tables[CHECKPOINTS].table)
    if is_lost:
        logger().warning("checkpoints are lost, the feed is read from its beginning", epoch=checkpoint.lease.epoch)
    elif checkpoint.is_lost and control.tables[SCHEMA_CHANGES].is_lost:
        # The start before this one died, or was refused, behind its checkpoint.
        left = lost_control.left_tables(catalog, name)
    lost_control.keep_decided(control, checkpoint, left)
    logger().info("changefeed taken", changefeed=config.changefeed.name, epoch=checkpoint.lease.epoch, because=why)
    return control, checkpoint


def refuse_copy(config: Config, catalog: Catalog) -> None:
    """Refuse, by ForeignLake, a catalog that is a copy of that of another lake; any control table shows it."""
    places = ((namespace(config.changefeed.name), kind.name) for kind in CONTROL_TABLES)
    if (table := next(filter(None, map(catalog.load, places)), None)) is not None:
        refuse_foreign(config.catalog, str(table), table.location, table.metadata_file, table.setting(CATALOG_FILE))


def _keep_catalog_file(config: Config, table: Table) -> None:
    """Let a control table say which file is its catalog; one that was moved is at another place now."""
    file = config.catalog.sqlite_file
    if file is not None and table.setting(CATALOG_FILE) != str(file.absolute()):
        set_property(table, CATALOG_FILE, str(file.absolute()))


def _assembled(config: Config, runner: Runner, catalog: Catalog, state: State) -> Pipeline:
    """The pipeline, unless tables are newer than the checkpoint that this process has just taken."""
    try:
        return assemble(config, runner, catalog, state)
    except CheckpointConflict as error:
        state.control.confirm()
        raise lost_control.outdated(config.changefeed.name, error.what) from error


def assemble(config: Config, runner: Runner, catalog: Catalog, state: State) -> Pipeline:
    """Put the stages together."""
    topics.refuse_protocol(state.checkpoint, config.changefeed.protocol)
    state.protocol = config.changefeed.protocol
    if state.protocol == "avro":
        state.lives = Lives()
        state.lives.settle(state.checkpoint.feed.homes)
        take_names(state.lives, state.control.decisions())
    state.supplied = supplied(config, state)
    rules = config.type_rules
    order = ORDERS[config.changefeed.order]
    lease = state.checkpoint.lease
    feed = Changefeed(config.changefeed.name, lease.epoch, order, config.changefeed.filtered)
    options = decoder_options(config)
    targets = TargetTables(
        catalog,
        feed,
        TableMaker(catalog.create, config.tables, rules, config.changefeed.start == "midstream", catalog.is_far),
        config.route,
        config.sink,
        confirm=state.control.confirm,
        fenced=max(lease.fenced, lease.unfenced),
        spelt=lambda name: state.tables.spelt(name),  # noqa: PLW0108 A restart begins with other tables.
        records=Recorder(lambda name: state.completeness.get(name)),  # noqa: PLW0108 As above.
    )
    if state.checkpoint.is_lost:
        state.found = [item.name for item in lost_control.left_tables(catalog, feed.name)]
    state.identity = lambda name: targets.tracked_identity(name, is_settled=name not in state.unsettled)
    _fence(state, targets)
    scanner = WindowScanner(
        runner,
        DecodeTask(
            protocol=config.changefeed.protocol,
            options=options,
            rules=rules,
            include=config.tables.include,
            versions=(),
            upto=0,
            order=order,
        ),
        rows_describe=config.changefeed.traits.carries.schema != "messages",
        keep_bad=config.changefeed.on_bad_message == "dead_letter",
        parks=config.changefeed.on_bad_message == "stop" and config.changefeed.on_table_error == "park",
        reduced=None if (login := config.upstream.login) is None else ReducedRows(login, rules, state.protocol),
    )
    ddl_handler = DdlApplier(targets, state, config.ddl, upstream=AskedUpstream(config.asked) if config.asked else None)
    ddl_handler.is_stopped = config.changefeed.on_table_error == "stop"
    maintenance = Maintenance(config.maintenance, targets)
    state.ways = config.ways_out
    pipeline = Pipeline(config, runner.source, scanner, targets, ddl_handler, state, maintenance)
    pipeline.restore()
    return pipeline


def _fence(state: State, targets: TargetTables) -> None:
    """Let no table take a commit of a process that lost the changefeed but may be alive."""
    upto = state.checkpoint.lease.unfenced
    targets.catalog.java.clock.begin(state.checkpoint.cut.at)
    if upto:
        cast("Control", state.control).fence(upto)
        tables = fence_tables(targets, state.names, upto)
        listed = state.checkpoint.cut.heads
        moved = {item.table: item.head for item in tables if listed.get(item.table) == item.before}
        heads = {**listed, **{table: head for table, head in moved.items() if table in listed}}
        # The cut lists the heads that the fences made. Its moment stays: then the heads of before show the same rows,
        # and commits that a step which failed has left below other fences do not show.
        cut = replace(state.checkpoint.cut, heads=heads)
        state.write(lambda last: replace(last, lease=replace(last.lease, unfenced=0, fenced=upto), cut=cut))
        logger().info("tables fenced", tables=len(tables), upto=upto)


def fence_tables(targets: TargetTables, names: Iterable[TableName], upto: int) -> list[Fenced]:
    """Make every table that there may be refuse what processes up to an epoch may still send; it shows what it showed.

    Returns:
        Tables that needed a commit for it.

    Raises:
        CheckpointConflict: A newer applier holds a table.
    """

    def guarded(identifier: tuple[str, ...]) -> Fenced | None:
        table = targets.catalog.load(identifier)
        return None if table is None else fence(table, targets.feed.name, targets.feed.epoch, upto)

    tables = dict.fromkeys(targets.identifier(name) for name in names)
    return [fenced for fenced in targets.side_by_side(guarded, list(tables)) if fenced is not None]


@contextmanager
def open_runner(config: Config, session: SparkSession, where: Places) -> Iterator[Runner]:
    """What reads the source that the configuration names, with a folder for what it stages, until the block ends."""
    section = config.source
    with staging_folder() as staging, ExitStack() as opened:
        source: Source
        if section.archive is not None:
            source = ArchiveSource(session, Path(section.archive), staging)
        elif section.storage is not None:
            folder = StorageFolder(section.storage.uri, config.files_end)
            source = StorageSource(session, folder, section.bytes_per_step)
        else:
            source = opened.enter_context(closing(KafkaSource(session, section, f"applier-{config.changefeed.name}")))
        yield opened.enter_context(closing(Runner(source, TaskRows(session, source.reading), where)))


def supplied(config: Config, state: State | None = None) -> Tables:
    """The tables that the configuration declares beside the feed: by an export, or by CREATE TABLE texts.

    Those that were loaded from the export keep their names in it, even if they were renamed since.

    Raises:
        ConfigError: They cannot be read.
    """
    section, include = config.upstream, config.tables.include
    if section.dump is None:
        return supplied_tables(section, include)
    if config.changefeed.traits.carries.schema == "messages":
        return Tables()
    export = Export.find(section.dump)
    loaded = {name for name, number in state.versions if number == export.tso} if state is not None else set()
    return admitted(export.tables, [*include, *(f"!{rule}" for rule in exactly(loaded))])


def decoder_options(config: Config) -> DecoderOptions:
    """What the decoder needs to know."""
    section = config.changefeed
    keys: dict[str, tuple[str, ...]] = {}
    if not section.traits.keys_in_rows:
        keys = {str(name): version.key for name, version in supplied(config).items()}
    return DecoderOptions(
        section.timezone,
        section.compression,
        section.claim_check,
        config.registry,
        by_offset=section.order == "offset",
        keys={**keys, **config.tables.keys},
        nameless_zone=section.named_zone,
        is_stored=config.source.storage is not None,
        max_bytes=config.source.most_bytes,
        asks_upstream=config.upstream.login is not None,
        csv=_csv_form(config),
        csv_old_values=config.source.storage is not None and config.source.storage.csv.output_old_value,
    )


def _csv_form(config: Config) -> CsvForm | None:
    """How files of the storage sink in CSV are written."""
    if config.source.storage is None:
        return None
    keys = config.source.storage.csv
    delimiter, quote, null = (text.encode() for text in (keys.delimiter, keys.quote, keys.null))
    return CsvForm(delimiter, quote, null, has_header=False, escapes=False, binary=keys.binary_encoding_method)
