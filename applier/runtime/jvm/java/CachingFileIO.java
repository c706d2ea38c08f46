package applier;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.hadoop.HadoopConfigurable;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.DelegateFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.FileInfo;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.io.SupportsBulkOperations;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.io.SupportsStorageCredentials;
import org.apache.iceberg.relocated.com.google.common.base.Predicate;
import org.apache.iceberg.relocated.com.google.common.collect.Iterables;

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

  /** Bytes of files that wait for the end of their commits, of all tables together. */
  private static final int WAITING_BYTES = 64 << 20;

  /** By the folder of their metadata, the tables whose commits are under way. All access holds the lock of the map. */
  private static final Map COMMITS = new HashMap();

  private static long waiting = 0;

  /** Files that no commit needed in the end and that never went out: there is nothing to delete. */
  private static final Set DROPPED = Collections.newSetFromMap(Collections.synchronizedMap(new Names()));

  private static final int NAMES = 10000;

  /** By FileIO, metadata files that newer ones took the place of: they are deleted together. Access holds its lock. */
  private static final Map OLD = new IdentityHashMap();

  private static final int OLD_FILES = 20;


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
    return newInputFile(location, -1);
  }

  public InputFile newInputFile(String location, long length) {
    boolean isKept = KEPT.matcher(location).matches() && length <= FILE_BYTES;
    byte[] body = isKept ? kept(location) : null;
    if (body != null) {
      // The file may wait yet: no storage is asked for it.
      return new InMemoryInputFile(location, body);
    }
    InputFile file = length < 0 ? inner.newInputFile(location) : inner.newInputFile(location, length);
    return isKept ? new Input(file, length) : file;
  }

  public OutputFile newOutputFile(String location) {
    OutputFile file = inner.newOutputFile(location);
    return KEPT.matcher(location).matches() ? new Output(file, this) : file;
  }

  public void deleteFile(String location) {
    forget(location);
    if (!DROPPED.remove(location)) {
      inner.deleteFile(location);
    }
  }

  public void deleteFiles(Iterable locations) {
    List there = new ArrayList();
    boolean areOld = true;
    for (Object location : locations) {
      forget((String) location);
      if (!DROPPED.remove(location)) {
        there.add(location);
        // A numbered version may be that of a table which was made anew by the time.
        areOld &= ((String) location).endsWith(".json") && KEPT.matcher((String) location).matches();
      }
    }
    if (there.isEmpty()) {
      return;
    }
    if (areOld) {
      deleteLater(inner, there);
    } else {
      new Deletion(inner, there).call();
    }
  }

  /** A commit need not wait until the metadata before it is gone. */
  private static void deleteLater(FileIO io, List locations) {
    synchronized (OLD) {
      List old = (List) OLD.get(io);
      if (old == null) {
        old = new ArrayList();
        OLD.put(io, old);
      }
      old.addAll(locations);
      if (old.size() >= OLD_FILES) {
        UPLOADS.submit(new Deletion(io, (List) OLD.remove(io)));
      }
    }
  }

  /** Let what waits to be deleted go with the keys of a FileIO that takes the place of another one. */
  public static void replace(FileIO former, FileIO next) {
    if (former instanceof CachingFileIO && next instanceof CachingFileIO) {
      List old;
      synchronized (OLD) {
        old = (List) OLD.remove(((CachingFileIO) former).inner);
      }
      if (old != null) {
        deleteLater(((CachingFileIO) next).inner, old);
      }
    }
  }

  /** Delete what waits to be deleted, as far as the storage answers within some seconds. */
  public static void deleteOld() throws InterruptedException {
    List deletions = new ArrayList();
    synchronized (OLD) {
      for (Object each : OLD.entrySet()) {
        Map.Entry old = (Map.Entry) each;
        deletions.add(new Deletion((FileIO) old.getKey(), (List) old.getValue()));
      }
      OLD.clear();
    }
    UPLOADS.invokeAll(deletions, 5, TimeUnit.SECONDS);
  }

  /** Whether the files of a table can be listed: a FileIO need not be able to. */
  static boolean lists(FileIO io) {
    return (io instanceof CachingFileIO ? ((CachingFileIO) io).inner : io) instanceof SupportsPrefixOperations;
  }

  /** What waits to be deleted is gone: a search for orphans would take it for the metadata of another table. */
  public Iterable listPrefix(String prefix) {
    return Iterables.filter(((SupportsPrefixOperations) inner).listPrefix(prefix), new Staying(inner));
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

  /**
   * Let manifests and lists of a table wait for `end`, before which the catalog shows none of them. Tables may share a
   * folder that a property names: over REST, another one would be shown while files of it wait here, so none does.
   */
  static String begin(Table table) {
    boolean mayShare = table.properties().containsKey("write.metadata.path");
    return mayShare ? "" : begin(folder(((HasTableOperations) table).operations().metadataFileLocation("any")));
  }

  public static String begin(String folder) {
    synchronized (COMMITS) {
      Waiting files = (Waiting) COMMITS.get(folder);
      if (files == null) {
        files = new Waiting();
        COMMITS.put(folder, files);
      }
      files.commits++;
    }
    return folder;
  }

  /**
   * Let what the snapshot of a commit lists go out side by side, and wait until it is there. Manifests that the commit
   * merged into others go nowhere: most of what it wrote. Without a snapshot the commit failed.
   */
  public static void end(String folder, Snapshot written, FileIO io) {
    if (folder.isEmpty()) {
      return;
    }
    Set listed = new HashSet();
    String own = "";
    try {
      if (written != null) {
        own = commitOf(written.manifestListLocation());
        listed.add(written.manifestListLocation());
        for (Object manifest : written.allManifests(io)) {
          listed.add(((ManifestFile) manifest).path());
        }
      }
    } finally {
      List begun = new ArrayList();
      synchronized (COMMITS) {
        Waiting files = (Waiting) COMMITS.get(folder);
        files.commits--;
        // What another commit's metadata sent ahead may have failed, or still be on its way.
        begun.addAll(files.sent);
        boolean isLast = files.commits == 0;
        Iterator each = files.byLocation.values().iterator();
        while (each.hasNext()) {
          Stream file = (Stream) each.next();
          boolean isOwn = !own.isEmpty() && file.location.contains(own);
          if (isOwn || isLast) {
            each.remove();
            waiting -= file.length();
            // Another commit may share the folder: what is not known to be needless goes out.
            if (!isOwn || listed.contains(file.location)) {
              begun.add(UPLOADS.submit(file));
            } else {
              DROPPED.add(file.location);
              forget(file.location);
            }
          }
        }
        if (isLast) {
          COMMITS.remove(folder);
        }
      }
      await(begun);
    }
  }

  /** Let all that waits in a folder go out, before metadata there shows a snapshot of whatever commit. */
  private static void sendAll(String folder) {
    List begun = new ArrayList();
    synchronized (COMMITS) {
      Waiting files = (Waiting) COMMITS.get(folder);
      if (files == null) {
        return;
      }
      for (Object file : files.byLocation.values()) {
        waiting -= ((Stream) file).length();
        begun.add(UPLOADS.submit((Stream) file));
      }
      files.byLocation.clear();
      files.sent.addAll(begun);
    }
    await(begun);
  }

  private static void await(List begun) {
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

  /** The UUID with which Iceberg names all manifests of a commit, and its list. */
  private static String commitOf(String list) {
    return list.substring(list.length() - ".avro".length() - 36, list.length() - ".avro".length());
  }

  /** Whether a commit is under way that sends the file at its end, if it needs it then. */
  private static boolean isAwaited(Stream file) {
    synchronized (COMMITS) {
      Waiting files = (Waiting) COMMITS.get(folder(file.location));
      if (files == null || waiting + file.length() > WAITING_BYTES) {
        return false;
      }
      files.byLocation.put(file.location, file);
      waiting += file.length();
      return true;
    }
  }

  private static byte[] kept(String location) {
    synchronized (CACHE) {
      Object body = CACHE.get(location);
      if (body != null) {
        return (byte[]) body;
      }
    }
    synchronized (COMMITS) {
      Waiting files = (Waiting) COMMITS.get(folder(location));
      Stream file = files == null ? null : (Stream) files.byLocation.get(location);
      return file == null ? null : file.bytes;
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
      return new Stream(file);
    }

    public String location() {
      return file.location();
    }

    public InputFile toInputFile() {
      return io.newInputFile(location());
    }
  }

  /** What is written stays in memory until it goes out in one piece, unless it is too large. */
  private static class Stream extends PositionOutputStream implements Callable {
    private final String location;
    private final OutputFile file;
    private ByteArrayOutputStream body = new ByteArrayOutputStream();
    private byte[] bytes = null;
    private PositionOutputStream large = null;
    private long position = 0;
    private boolean closed = false;

    Stream(OutputFile file) {
      this.file = file;
      this.location = file.location();
    }

    public long getPos() {
      return position;
    }

    int length() {
      return bytes.length;
    }

    public void write(int value) throws IOException {
      write(new byte[] {(byte) value}, 0, 1);
    }

    public void write(byte[] from, int start, int count) throws IOException {
      position += count;
      if (large == null && position > FILE_BYTES) {
        large = file.createOrOverwrite();
        body.writeTo(large);
        body = null;
      }
      OutputStream to = large == null ? (OutputStream) body : large;
      to.write(from, start, count);
    }

    public void close() throws IOException {
      if (closed) {
        return;
      }
      closed = true;
      if (large != null) {
        large.close();
        return;
      }
      bytes = body.toByteArray();
      body = null;
      // The same commit may read it before it is there.
      keep(location, bytes);
      if (location.endsWith(".json")) {
        // The catalog shows metadata as soon as it is written, of tables as well that share the folder with a commit.
        sendAll(folder(location));
        call();
      } else if (!isAwaited(this)) {
        call();
      }
    }

    /** Write the file. One that did not come is not known. */
    public Object call() throws IOException {
      boolean done = false;
      try {
        OutputStream to = file.createOrOverwrite();
        try {
          to.write(bytes, 0, bytes.length);
        } finally {
          to.close();
        }
        done = true;
      } finally {
        if (!done) {
          forget(location);
        }
      }
      return null;
    }
  }

  private static class Staying implements Predicate {
    private final FileIO io;

    Staying(FileIO io) {
      this.io = io;
    }

    public boolean apply(Object file) {
      synchronized (OLD) {
        List old = (List) OLD.get(io);
        return old == null || !old.contains(((FileInfo) file).location());
      }
    }
  }

  private static class Deletion implements Callable {
    private final FileIO io;
    private final List locations;

    Deletion(FileIO io, List locations) {
      this.io = io;
      this.locations = locations;
    }

    public Object call() {
      if (io instanceof SupportsBulkOperations) {
        ((SupportsBulkOperations) io).deleteFiles(locations);
      } else {
        CatalogUtil.deleteFiles(io, locations, "table", true);
      }
      return null;
    }
  }

  private static class Waiting {
    private final Map byLocation = new LinkedHashMap();
    private final List sent = new ArrayList();
    private int commits = 0;
  }

  /** The newest names. */
  private static class Names extends LinkedHashMap {
    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > NAMES;
    }
  }

  private static class Daemons implements ThreadFactory {
    public Thread newThread(Runnable work) {
      Thread thread = new Thread(work, "applier-upload");
      thread.setDaemon(true);
      return thread;
    }
  }
}
