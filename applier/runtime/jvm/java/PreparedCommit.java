package applier;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.DeleteFiles;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotAncestryValidator;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.util.JsonUtil;

/**
 * One commit to a table, which Python describes in one JSON text (sink/iceberg/commit.py): one call through the gateway
 * where each file and each entry of the summary would be three.
 *
 * Janino compiles it, which knows generics only as casts.
 */
public class PreparedCommit {
  /** Milliseconds that a commit waits for the clock; Iceberg refuses a snapshot that is older by more as well. */
  private static final long LONGEST_WAIT = 60000L;

  private final Transaction transaction;
  private final long snapshotId;

  private PreparedCommit(Transaction transaction, long snapshotId) {
    this.transaction = transaction;
    this.snapshotId = snapshotId;
  }

  /** Write manifests and the snapshot; the catalog does not know of them before `commit`. */
  public static PreparedCommit prepare(Table table, Transaction begun, String description) throws Exception {
    JsonNode change = JsonUtil.mapper().readTree(description);
    Transaction transaction = begun == null ? table.newTransaction() : begun;
    Table pending = transaction.table();
    JsonNode schema = change.get("schema");
    if (!schema.isNull() && pending.schema().schemaId() != schema.asInt()) {
      throw new ValidationException("its columns have changed meanwhile");
    }
    Long expected = change.get("expected").isNull() ? null : Long.valueOf(change.get("expected").asLong());
    SnapshotUpdate update = update(table, transaction, change, expected);
    Iterator entries = change.get("summary").fields();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      update.set((String) entry.getKey(), ((JsonNode) entry.getValue()).asText());
    }
    Fence fence = new Fence(expected, change.get("after").asLong());
    update.validateWith(fence);
    String folder = CachingFileIO.begin(table);
    Snapshot written = null;
    try {
      update.commit();
      written = pending.currentSnapshot();
    } finally {
      // The catalog must not show a snapshot before all of its files are there.
      CachingFileIO.end(folder, written, table.io());
    }
    refuseOld(written, fence.youngest);
    setProperties(transaction, change.get("properties"), change.get("unset"));
    return new PreparedCommit(transaction, written.snapshotId());
  }

  public long snapshotId() {
    return snapshotId;
  }

  /** Let the catalog show the snapshot, and return its time: it is another one where Iceberg had to try again. */
  public long commit() {
    transaction.commitTransaction();
    return transaction.table().currentSnapshot().timestampMillis();
  }

  /**
   * Lets a commit pass only on the expected head; null where there is none. `validateWith` is the one check of Iceberg
   * that runs again whenever a commit is tried again over a newer head, and the last one before the snapshot gets its
   * time: so it is also where a commit waits for the clock, see `awaitClock`.
   */
  public static SnapshotAncestryValidator fence(String expected, long after) {
    return new Fence(expected == null ? null : Long.valueOf(expected), after);
  }

  /**
   * Wait until a new snapshot is younger than the head of its table, and than the moment `after` of the newest cut;
   * that is -1 for a table that is in none.
   */
  public static void awaitClock(Snapshot head, long after) {
    long youngest = youngest(head, after);
    try {
      for (long wait = waiting(System.currentTimeMillis(), youngest); wait > 0L;
          wait = waiting(System.currentTimeMillis(), youngest)) {
        Thread.sleep(wait);
      }
    } catch (InterruptedException error) {
      throw new IllegalStateException("the wait for the clock was interrupted");
    }
  }

  /** Milliseconds until the clock, which is at `now`, is above a time. */
  public static long waiting(long now, long time) {
    long behind = time - now;
    if (behind > LONGEST_WAIT) {
      throw new IllegalStateException("the clock of this machine is " + (behind + 999L) / 1000L
          + " s behind the snapshots of this changefeed: set the clock");
    }
    return Math.max(0L, behind + 1L);
  }

  /** Refuse a snapshot that is not above a time, as the clock was set back while it was made. */
  public static void refuseOld(Snapshot made, long after) {
    if (made != null && made.timestampMillis() <= after) {
      throw new IllegalStateException("the clock of this machine was set back meanwhile");
    }
  }

  private static long youngest(Snapshot head, long after) {
    return head == null || after < 0L ? after : Math.max(after, head.timestampMillis());
  }

  private static SnapshotUpdate update(Table table, Transaction transaction, JsonNode change, Long expected)
      throws Exception {
    Map specs = transaction.table().specs();
    if (change.get("replace").asBoolean()) {
      OverwriteFiles overwrite = transaction.newOverwrite();
      overwrite.overwriteByRowFilter(Expressions.alwaysTrue());
      for (Object row : change.get("rows")) {
        overwrite.addFile((DataFile) file(row, specs));
      }
      return overwrite;
    }
    if (change.get("truncate").asBoolean()) {
      return transaction.newDelete().deleteFromRowFilter(Expressions.alwaysTrue());
    }
    if (change.get("dropped").size() > 0) {
      DeleteFiles delete = transaction.newDelete().validateFilesExist();
      for (Object row : change.get("dropped")) {
        delete.deleteFile((DataFile) file(row, specs));
      }
      return delete;
    }
    if (change.get("rewritten").size() > 0) {
      return rewrite(table, transaction, change, specs);
    }
    if (change.get("deletes").size() == 0) {
      AppendFiles append = transaction.newAppend();
      for (Object row : change.get("rows")) {
        append.appendFile((DataFile) file(row, specs));
      }
      return append;
    }
    RowDelta delta = transaction.newRowDelta();
    for (Object row : change.get("rows")) {
      delta.addRows((DataFile) file(row, specs));
    }
    for (Object delete : change.get("deletes")) {
      delta.addDeletes((DeleteFile) file(delete, specs));
    }
    for (Object delete : replaced(table, transaction, change, specs)) {
      delta.removeDeletes((DeleteFile) delete);
    }
    if (expected != null) {
      delta.validateFromSnapshot(expected.longValue());
    }
    List touched = new ArrayList();
    for (Object path : change.get("touched")) {
      touched.add(((JsonNode) path).asText());
    }
    return delta.validateDataFilesExist(touched);
  }

  /**
   * The new files are younger than every delete file of old: none of those applies to them, and the fence lets none
   * come. The delete files that come along are those of rows that died while the new files were written.
   */
  private static SnapshotUpdate rewrite(Table table, Transaction transaction, JsonNode change, Map specs)
      throws Exception {
    RewriteFiles rewrite = transaction.newRewrite();
    for (Object row : change.get("rewritten")) {
      rewrite.deleteFile((DataFile) file(row, specs));
    }
    for (Object delete : replaced(table, transaction, change, specs)) {
      rewrite.deleteFile((DeleteFile) delete);
    }
    for (Object row : change.get("rows")) {
      rewrite.addFile((DataFile) file(row, specs));
    }
    for (Object delete : change.get("deletes")) {
      rewrite.addFile((DeleteFile) file(delete, specs));
    }
    return rewrite.validateFromSnapshot(change.get("expected").asLong());
  }

  private static List replaced(Table table, Transaction transaction, JsonNode change, Map specs) throws Exception {
    List replaced = new ArrayList();
    for (Object delete : change.get("replaced")) {
      replaced.add(file(delete, specs));
    }
    Snapshot head = transaction.table().currentSnapshot();
    return head == null ? replaced : DeleteManifests.found(table, head, replaced);
  }

  private static Object file(Object description, Map specs) {
    return ContentFileParser.fromJson((JsonNode) description, specs);
  }

  private static void setProperties(Transaction transaction, JsonNode properties, JsonNode unset) {
    if (properties.size() == 0 && unset.size() == 0) {
      return;
    }
    UpdateProperties update = transaction.updateProperties();
    Iterator entries = properties.fields();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      update.set((String) entry.getKey(), ((JsonNode) entry.getValue()).asText());
    }
    for (Object key : unset) {
      update.remove(((JsonNode) key).asText());
    }
    update.commit();
  }

  private static class Fence implements SnapshotAncestryValidator {
    private final Long expected;
    private final long after;
    private Long seen;
    private long youngest;

    Fence(Long expected, long after) {
      this.expected = expected;
      this.after = after;
    }

    /** Janino makes no bridge from `Function.apply`. */
    public Boolean apply(Iterable ancestors) {
      return Boolean.valueOf(validate(ancestors));
    }

    public boolean validate(Iterable ancestors) {
      Iterator newest = ancestors.iterator();
      Snapshot head = newest.hasNext() ? (Snapshot) newest.next() : null;
      seen = head == null ? null : Long.valueOf(head.snapshotId());
      if (!Objects.equals(seen, expected)) {
        return false;
      }
      youngest = PreparedCommit.youngest(head, after);
      PreparedCommit.awaitClock(head, after);
      return true;
    }

    public String errorMessage() {
      return "head is " + seen + ", not " + expected;
    }
  }
}
