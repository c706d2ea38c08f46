package applier;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SortOrderParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.StorageCredential;
import org.apache.iceberg.io.SupportsStorageCredentials;
import org.apache.iceberg.rest.PlanStatus;
import org.apache.iceberg.rest.responses.FetchPlanningResultResponse;
import org.apache.iceberg.rest.responses.FetchPlanningResultResponseParser;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.util.JsonUtil;

/**
 * What Python asks of a table when it begins to write it, as one JSON text each: a question through the gateway for
 * every part of the answer costs more than the answer.
 */
public class TableText {
  private TableText() {}

  /** One property; null where the table has none of that name. */
  public static String property(Table table, String key) {
    return (String) table.properties().get(key);
  }

  /** Whether the FileIO of a table can list files. */
  public static boolean lists(Table table) {
    return CachingFileIO.lists(table.io());
  }

  /** The properties of a table's FileIO, over them the credentials that a REST catalog gives for the table's files. */
  public static Map storage(Table table) {
    Map found = new HashMap(table.io().properties());
    if (table.io() instanceof SupportsStorageCredentials) {
      String prefix = "";
      for (Object each : ((SupportsStorageCredentials) table.io()).credentials()) {
        StorageCredential credential = (StorageCredential) each;
        if (table.location().startsWith(credential.prefix()) && credential.prefix().length() >= prefix.length()) {
          prefix = credential.prefix();
          found.putAll(credential.config());
        }
      }
    }
    return found;
  }

  /** How the files of a table are written: see the members of the text. */
  public static String facts(Table table) throws Exception {
    TableMetadata metadata = ((HasTableOperations) table).operations().current();
    ObjectMapper mapper = JsonUtil.mapper();
    ObjectNode facts = mapper.createObjectNode();
    facts.put("format", metadata.formatVersion());
    facts.put("location", metadata.location());
    facts.set("schema", mapper.readTree(SchemaParser.toJson(metadata.schema())));
    facts.set("spec", mapper.readTree(PartitionSpecParser.toJson(metadata.spec())));
    facts.set("order", mapper.readTree(SortOrderParser.toJson(metadata.sortOrder())));
    facts.set("properties", mapper.valueToTree(metadata.properties()));
    ArrayNode specs = facts.putArray("specs");
    for (Object spec : metadata.specs()) {
      specs.add(mapper.readTree(PartitionSpecParser.toJson((PartitionSpec) spec)));
    }
    return mapper.writeValueAsString(facts);
  }

  /**
   * The data files of the head with their delete files; null if the head is not the expected snapshot. `columns`
   * is a JSON array of those whose bounds are wanted.
   */
  public static String head(Table table, long expected, String columns) throws Exception {
    // Not useSnapshot(): it would plan with the columns of that time, which may have had other names.
    TableScan scan = table.newScan();
    if (scan.snapshot() == null || scan.snapshot().snapshotId() != expected) {
      return null;
    }
    List names = new ArrayList();
    for (Object name : JsonUtil.mapper().readTree(columns)) {
      names.add(((JsonNode) name).asText());
    }
    return files(table, names.isEmpty() ? scan : (TableScan) scan.includeColumnStats(names));
  }

  /**
   * The data files of a scan with their delete files. The REST protocol's answer to a scan is the one form in which
   * Iceberg writes a whole plan as one text. It lacks the data sequence numbers, which are added as one more member.
   */
  public static String files(Table table, TableScan scan) throws Exception {
    List found = new ArrayList();
    List numbers = new ArrayList();
    CloseableIterable tasks = scan.planFiles();
    try {
      Iterator each = tasks.iterator();
      while (each.hasNext()) {
        FileScanTask task = (FileScanTask) each.next();
        found.add(task);
        numbers.add(((DataFile) task.file()).dataSequenceNumber());
      }
    } finally {
      tasks.close();
    }
    FetchPlanningResultResponse.Builder response = FetchPlanningResultResponse.builder(table.specs());
    response.withPlanStatus(PlanStatus.COMPLETED);
    response.withFileScanTasks(found);
    String text = FetchPlanningResultResponseParser.toJson((FetchPlanningResultResponse) response.build());
    String member = ",\"data-sequence-numbers\":" + JsonUtil.mapper().writeValueAsString(numbers) + "}";
    return text.substring(0, text.lastIndexOf('}')) + member;
  }
}
