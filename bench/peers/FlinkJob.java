import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs the statements of a file, parted by lines that hold only ";", on a Flink in this process: CONF_DIR SQL_FILE. */
final class FlinkJob {
  public static void main(String[] arguments) throws Exception {
    var configuration = GlobalConfiguration.loadConfiguration(arguments[0]);
    var settings = EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build();
    var environment = TableEnvironment.create(settings);
    say("started");
    for (String statement : Files.readString(Path.of(arguments[1])).split("\n;\n")) {
      var result = environment.executeSql(statement.strip());
      if (result.getJobClient().isPresent()) {
        result.await();
        say("step");
      }
    }
    System.exit(0);
  }

  private static void say(String event) {
    System.out.println("{\"event\": \"" + event + "\"}");
  }
}
