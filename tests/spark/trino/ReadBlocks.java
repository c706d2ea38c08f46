import static io.trino.testing.TestingSession.testSessionBuilder;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.spi.type.SqlDecimal;
import io.trino.spi.type.SqlTimestampWithTimeZone;
import io.trino.spi.type.SqlVarbinary;
import io.trino.testing.MaterializedResult;
import io.trino.testing.MaterializedRow;
import io.trino.testing.StandaloneQueryRunner;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** Does for Trino what read_blocks.py does: arguments are a catalog's properties, a file of blocks, and one for rows. */
public class ReadBlocks {
    private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx");

    public static void main(String[] args) throws Exception {
        Properties file = new Properties();
        file.load(new StringReader(Files.readString(Path.of(args[0]))));
        Map<String, String> properties = new HashMap<>();
        file.forEach((key, value) -> properties.put((String) key, (String) value));
        String connector = properties.remove("connector.name");

        ObjectMapper json = new ObjectMapper();
        List<List<Object>> read = new ArrayList<>();
        try (StandaloneQueryRunner trino = new StandaloneQueryRunner(testSessionBuilder().build())) {
            trino.installPlugin(new IcebergPlugin());
            trino.createCatalog("lake", connector, properties);
            for (String[] blocks : json.readValue(Path.of(args[1]).toFile(), String[][].class)) {
                List<Object> rows = new ArrayList<>();
                for (String block : blocks) {
                    try {
                        rows.add(rowsOf(trino.execute(block)));
                    } catch (RuntimeException error) {
                        rows.add(error.toString());
                    }
                }
                read.add(rows);
            }
        }
        json.writeValue(Path.of(args[2]).toFile(), read);
        System.exit(0);
    }

    private static List<Map<String, Object>> rowsOf(MaterializedResult result) {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (MaterializedRow row : result.getMaterializedRows()) {
            Map<String, Object> named = new LinkedHashMap<>();
            for (int i = 0; i < row.getFieldCount(); i++) {
                named.put(result.getColumnNames().get(i), plain(row.getField(i)));
            }
            rows.add(named);
        }
        rows.sort(Comparator.comparingLong(row -> ((Number) row.get("id")).longValue()));
        return rows;
    }

    private static Object plain(Object value) {
        return switch (value) {
            case null -> null;
            case SqlTimestampWithTimeZone moment -> MOMENT.format(moment.toZonedDateTime());
            case SqlVarbinary bytes -> new String(bytes.getBytes(), StandardCharsets.ISO_8859_1);
            case SqlDecimal number -> number.toBigDecimal().stripTrailingZeros().toPlainString();
            case Integer number -> number;
            case Long number -> number;
            default -> value.toString();
        };
    }
}
