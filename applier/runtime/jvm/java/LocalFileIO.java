package applier;

import java.io.File;
import org.apache.iceberg.Files;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;

/**
 * Reads and writes local files without Hadoop, which starts a process (`chmod`) for each file that it makes; anything else
 * is left to Hadoop.
 */
public class LocalFileIO extends HadoopFileIO {
  public InputFile newInputFile(String location) {
    String path = path(location);
    return path == null ? super.newInputFile(location) : Files.localInput(path);
  }

  public InputFile newInputFile(String location, long length) {
    return newInputFile(location);
  }

  public OutputFile newOutputFile(String location) {
    String path = path(location);
    if (path == null) {
      return super.newOutputFile(location);
    }
    // Iceberg fails the one of two tasks that finds the folder made between its look and its own attempt.
    new File(path).getParentFile().mkdirs();
    return Files.localOutput(new File(path));
  }

  /** The path of a local file; null for any other location. */
  private static String path(String location) {
    String path = location.startsWith("file:") ? location.substring(5) : location;
    while (path.startsWith("//")) {
      path = path.substring(1);
    }
    return path.startsWith("/") ? path : null;
  }
}
