package applier;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.hadoop.HadoopConfigurable;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.DelegateFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.io.SupportsBulkOperations;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.io.SupportsStorageCredentials;

/**
 * Keeps metadata files of tables in memory, as far as their names have a UUID: such a file never becomes another one. What
 * this process wrote or read is not asked for again, and a file that is written is not looked for first.
 *
 * Any other file, and all that is kept nowhere, goes through the FileIO that the property `applier.io-impl` names.
 */
public class CachingFileIO implements DelegateFileIO, SupportsStorageCredentials, HadoopConfigurable {
  private static final String INNER = "applier.io-impl";
  private static final String UUID = "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}";
  private static final Pattern KEPT =
      Pattern.compile(".*/(snap-[^/]*" + UUID + "\\.avro|[^/]*" + UUID + "-m[0-9]+\\.avro|[^/]*" + UUID + "[^/]*\\.metadata\\.json)");

  private static final int FILE_BYTES = 8 << 20;
  private static final int ALL_BYTES = 96 << 20;

  /** In the order in which they were asked for last. All access holds the lock of the map. */
  private static final LinkedHashMap CACHE = new LinkedHashMap(16, 0.75f, true);

  /** By folder, the newest metadata of a table that is kept; an older one is hardly asked for, and each is large. */
  private static final Map NEWEST = new HashMap();

  private static long held = 0;

  /** Fewer than the connections that a client of S3 has, or some would wait for one until they fail. */
  private static final ExecutorService UPLOADS = Executors.newFixedThreadPool(40, new Daemons());

  /** By the folder of their metadata, the tables whose commits are under way. All access holds the lock of the map. */
  private static final Map COMMITS = new HashMap();

  private FileIO inner;
  private transient Configuration conf;
  private transient List given;

  public void initialize(Map properties) {
    List credentials = given == null ? new ArrayList() : given;
    inner = CatalogUtil.loadFileIO((String) properties.get(INNER), properties, conf, credentials);
  }

  public Map properties() {
    return inner.properties();
  }

  public InputFile newInputFile(String location) {
    return input(location, inner.newInputFile(location), -1);
  }

  public InputFile newInputFile(String location, long length) {
    return input(location, inner.newInputFile(location, length), length);
  }

  private static InputFile input(String location, InputFile file, long length) {
    if (!KEPT.matcher(location).matches() || length > FILE_BYTES) {
      return file;
    }
    byte[] body = kept(location);
    return body == null ? new Input(file, length) : new InMemoryInputFile(location, body);
  }

  public OutputFile newOutputFile(String location) {
    OutputFile file = inner.newOutputFile(location);
    return KEPT.matcher(location).matches() ? new Output(file, this) : file;
  }

  public void deleteFile(String location) {
    forget(location);
    inner.deleteFile(location);
  }

  public void deleteFiles(Iterable locations) {
    Iterator each = locations.iterator();
    while (each.hasNext()) {
      forget((String) each.next());
    }
    if (inner instanceof SupportsBulkOperations) {
      ((SupportsBulkOperations) inner).deleteFiles(locations);
    } else {
      CatalogUtil.deleteFiles(inner, locations, "table", true);
    }
  }

  /** Whether the files of a table can be listed: a FileIO need not be able to. */
  static boolean lists(FileIO io) {
    return (io instanceof CachingFileIO ? ((CachingFileIO) io).inner : io) instanceof SupportsPrefixOperations;
  }

  public Iterable listPrefix(String prefix) {
    return ((SupportsPrefixOperations) inner).listPrefix(prefix);
  }

  public void deletePrefix(String prefix) {
    ((SupportsPrefixOperations) inner).deletePrefix(prefix);
  }

  public void setCredentials(List credentials) {
    given = credentials;
    if (inner instanceof SupportsStorageCredentials) {
      ((SupportsStorageCredentials) inner).setCredentials(credentials);
    }
  }

  public List credentials() {
    boolean has = inner instanceof SupportsStorageCredentials;
    return has ? ((SupportsStorageCredentials) inner).credentials() : new ArrayList();
  }

  public void setConf(Configuration conf) {
    this.conf = conf;
    if (inner instanceof HadoopConfigurable) {
      ((HadoopConfigurable) inner).setConf(conf);
    }
  }

  public Configuration getConf() {
    return inner instanceof HadoopConfigurable ? ((HadoopConfigurable) inner).getConf() : conf;
  }

  public void serializeConfWith(java.util.function.Function confSerializer) {
    if (inner instanceof HadoopConfigurable) {
      ((HadoopConfigurable) inner).serializeConfWith(confSerializer);
    }
  }

  public void close() {
    inner.close();
  }

  /** Let manifests and lists of a table go out side by side until `await`, before which the catalog shows none of them. */
  static String begin(Table table) {
    String folder = folder(((HasTableOperations) table).operations().metadataFileLocation("any"));
    synchronized (COMMITS) {
      Uploads uploads = (Uploads) COMMITS.get(folder);
      if (uploads == null) {
        uploads = new Uploads();
        COMMITS.put(folder, uploads);
      }
      uploads.commits++;
    }
    return folder;
  }

  /** Wait until all that was written to a folder since `begin` is there. */
  static void await(String folder) {
    List begun;
    synchronized (COMMITS) {
      Uploads uploads = (Uploads) COMMITS.get(folder);
      begun = new ArrayList(uploads.begun);
      uploads.commits--;
      if (uploads.commits == 0) {
        COMMITS.remove(folder);
      }
    }
    RuntimeException failure = null;
    for (Object upload : begun) {
      try {
        ((Future) upload).get();
      } catch (ExecutionException error) {
        Throwable cause = error.getCause();
        failure = cause instanceof RuntimeException ? (RuntimeException) cause : new RuntimeException(cause);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        failure = new RuntimeException(error);
      }
    }
    if (failure != null) {
      throw failure;
    }
  }

  private static String folder(String location) {
    return location.substring(0, location.lastIndexOf('/'));
  }

  /** Whether a commit awaits an upload, which has begun then. */
  private static boolean isAwaited(String location, Callable upload) {
    synchronized (COMMITS) {
      Uploads uploads = (Uploads) COMMITS.get(folder(location));
      if (uploads != null) {
        uploads.begun.add(UPLOADS.submit(upload));
      }
      return uploads != null;
    }
  }

  private static byte[] kept(String location) {
    synchronized (CACHE) {
      return (byte[]) CACHE.get(location);
    }
  }

  private static void keep(String location, byte[] body) {
    synchronized (CACHE) {
      forget(location);
      if (location.endsWith(".json")) {
        String before = (String) NEWEST.put(folder(location), location);
        if (before != null) {
          forget(before);
        }
      }
      CACHE.put(location, body);
      held += body.length;
      Iterator eldest = CACHE.values().iterator();
      while (held > ALL_BYTES) {
        held -= ((byte[]) eldest.next()).length;
        eldest.remove();
      }
    }
  }

  private static void forget(String location) {
    synchronized (CACHE) {
      byte[] body = (byte[]) CACHE.remove(location);
      held -= body == null ? 0 : body.length;
    }
  }

  /** A file that is read whole the first time, unless it is too large to be kept. */
  private static class Input implements InputFile {
    private final InputFile file;
    private final long length;

    Input(InputFile file, long length) {
      this.file = file;
      this.length = length;
    }

    public String location() {
      return file.location();
    }

    public boolean exists() {
      return kept(location()) != null || file.exists();
    }

    public long getLength() {
      if (length >= 0) {
        return length;
      }
      byte[] body = body();
      return body == null ? file.getLength() : body.length;
    }

    public SeekableInputStream newStream() {
      byte[] body = body();
      return body == null ? file.newStream() : new InMemoryInputFile(location(), body).newStream();
    }

    private byte[] body() {
      byte[] body = kept(location());
      if (body != null) {
        return body;
      }
      InputStream stream = file.newStream();
      try {
        try {
          body = stream.readNBytes(FILE_BYTES + 1);
        } finally {
          stream.close();
        }
      } catch (IOException error) {
        throw new RuntimeIOException(error, "Failed to read file: %s", new Object[] {location()});
      }
      // A part of a file must not be kept for the whole.
      if (body.length > FILE_BYTES || length >= 0 && body.length != length) {
        return null;
      }
      keep(location(), body);
      return body;
    }
  }

  /** A file of a new name: it is not there yet, which `create` need not find out. */
  private static class Output implements OutputFile {
    private final OutputFile file;
    private final FileIO io;

    Output(OutputFile file, FileIO io) {
      this.file = file;
      this.io = io;
    }

    public PositionOutputStream create() {
      return createOrOverwrite();
    }

    public PositionOutputStream createOrOverwrite() {
      return new Stream(file.location(), file.createOrOverwrite());
    }

    public String location() {
      return file.location();
    }

    public InputFile toInputFile() {
      return io.newInputFile(location());
    }
  }

  private static class Stream extends PositionOutputStream implements Callable {
    private final String location;
    private final PositionOutputStream stream;
    private ByteArrayOutputStream body = new ByteArrayOutputStream();
    private long position = 0;
    private boolean closed = false;

    Stream(String location, PositionOutputStream stream) {
      this.location = location;
      this.stream = stream;
    }

    public long getPos() {
      return position;
    }

    public void write(int value) throws IOException {
      write(new byte[] {(byte) value}, 0, 1);
    }

    public void write(byte[] bytes, int start, int count) throws IOException {
      stream.write(bytes, start, count);
      position += count;
      if (body != null && position <= FILE_BYTES) {
        body.write(bytes, start, count);
      } else {
        body = null;
      }
    }

    public void flush() throws IOException {
      stream.flush();
    }

    public void close() throws IOException {
      if (closed) {
        return;
      }
      closed = true;
      boolean isKept = body != null;
      if (isKept) {
        // The same commit may read it before it is there.
        keep(location, body.toByteArray());
        // Many uploads may wait, and what is kept has a limit.
        body = null;
      }
      // The catalog shows metadata as soon as it is written, of tables as well that share the folder with a commit.
      if (!isKept || location.endsWith(".json") || !isAwaited(location, this)) {
        call();
      }
    }

    /** End the upload. A file that did not come is not known. */
    public Object call() throws IOException {
      boolean done = false;
      try {
        stream.close();
        done = true;
      } finally {
        if (!done) {
          forget(location);
        }
      }
      return null;
    }
  }

  private static class Uploads {
    private final List begun = new ArrayList();
    private int commits = 0;
  }

  private static class Daemons implements ThreadFactory {
    public Thread newThread(Runnable work) {
      Thread thread = new Thread(work, "applier-upload");
      thread.setDaemon(true);
      return thread;
    }
  }
}
